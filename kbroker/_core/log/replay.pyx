# Producers and aborted transactions out of snapshots and batch headers.
from libc.errno cimport EBADMSG, EINVAL, ENOENT, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc
from libc.string cimport memset

from kbroker._core.c.prelude cimport store_int64
from kbroker._core.log.files cimport PATH_BYTES, path_of_segment, read_at, remove_path
from kbroker._core.log.listing cimport holds, listing_free, listing_read
from kbroker._core.log.open_files cimport files_open_log
from kbroker._core.log.producer_state cimport (
    ProducerTable, producers_clear, producers_free, producers_init, producers_note, producers_read_snapshot,
)
from kbroker._core.log.segment cimport (
    Walk, segment_add_txn, segment_open_txns, segment_write_txns, walk_begin, walk_header, walk_next,
)
from kbroker._core.log.state cimport RECOVERY_NOTES_MAX, RecoveryNote, first_unstable
from kbroker._core.log.txn_index cimport NOT_READ, AbortedTxn, txn_index_reset
from kbroker._core.record.batch cimport (
    ATTR_CONTROL, BATCH_HEADER_BYTES, batch_attributes, batch_has_producer_id, batch_last_offset, batch_size_bytes,
)

cdef enum:
    MARKER_BYTES = 128               # a transaction marker's batch is 78 bytes
    NO_SNAPSHOT = -1


cdef void note(Log *log, int64_t segment_base_offset, int64_t offset, int64_t position, int64_t bytes,
               const char *reason) noexcept nogil:
    cdef RecoveryNote *n
    if log.notes == NULL:
        log.notes = <RecoveryNote *> calloc(RECOVERY_NOTES_MAX, sizeof(RecoveryNote))
    if log.notes != NULL and log.note_count < RECOVERY_NOTES_MAX:
        n = &log.notes[log.note_count]
        n.segment_base_offset = segment_base_offset
        n.offset = offset
        n.position = position
        n.bytes = bytes
        n.reason = reason
        log.note_count += 1


cdef int read_newest(Log *log, ProducerTable *t, const Listing *names, int64_t most, int64_t now_ms, int64_t *found) noexcept nogil:
    # The newest good snapshot at or below `most`; *found is its offset or NO_SNAPSHOT.
    cdef char path[PATH_BYTES]
    cdef int64_t offset
    cdef int32_t i
    cdef int rc
    for i in range(names.snapshots.count - 1, -1, -1):
        offset = names.snapshots.items[i]
        if offset > most:
            continue
        producers_clear(t)
        rc = producers_read_snapshot(t, log.directory, offset, now_ms, log.config.producer_id_expiration_ms)
        if rc == 0:
            found[0] = offset
            return 0
        if rc != -EINVAL and rc != -ENOENT:
            return rc                        # the disk's or the memory's fault, not the file's
        if rc == -EINVAL:
            note(log, offset, offset, 0, 0, b"a producer snapshot cannot be read")
            if path_of_segment(path, log.directory, offset, ".snapshot") == 0:
                remove_path(path)
    producers_clear(t)
    t.snapshot_offset = -1
    found[0] = NO_SNAPSHOT
    return 0


cdef int replay_batch(ProducerTable *t, Segment *s, const Walk *w, const uint8_t *header, bint into_index) noexcept nogil:
    # A marker is read whole: its kind and coordinator epoch stand in its record.
    cdef uint8_t marker[128]
    cdef AbortedTxn aborted
    cdef int64_t n = BATCH_HEADER_BYTES
    if not batch_has_producer_id(header):
        return 0
    if batch_attributes(header) & ATTR_CONTROL:
        n = read_at(s.fd, marker, min(<int64_t> batch_size_bytes(header), <int64_t> MARKER_BYTES), w.position)
        if n < BATCH_HEADER_BYTES:
            return <int> n if n < 0 else -EBADMSG
        header = marker
    if not producers_note(t, header, n, &aborted):
        return -ENOMEM
    return segment_add_txn(s, &aborted) if into_index and aborted.producer_id >= 0 else 0


cdef int replay(Log *log, ProducerTable *t, int64_t offset, int32_t count, const Segment *indexed) noexcept nogil:
    # The batches of the first `count` segments from the one that holds `offset` on.
    cdef Segment *s
    cdef Walk w
    cdef const uint8_t *header
    cdef int32_t i
    cdef int rc
    for i in range(count):
        s = log.segments[i]
        if s.size_bytes == 0 or s.next_offset <= offset:
            continue
        rc = files_open_log(log.files, s)
        if rc != 0:
            return rc
        walk_begin(&w, s.fd, 0, s.size_bytes)
        while True:
            header = walk_header(&w)
            if header == NULL:
                break
            rc = replay_batch(t, s, &w, header, s == indexed) if batch_last_offset(header) >= offset else 0
            if rc != 0:
                return rc
            walk_next(&w, header)
        if w.error != 0:
            return w.error
    return 0


cdef int producers_before(Log *log, const Listing *names, int32_t index, int64_t start_offset, int64_t now_ms) noexcept nogil:
    cdef int64_t base_offset = log.segments[index].base_offset
    cdef int64_t found = NO_SNAPSHOT
    cdef int rc = read_newest(log, &log.producers, names, base_offset, now_ms, &found)
    if rc == 0 and found < base_offset:
        rc = replay(log, &log.producers, found if found != NO_SNAPSHOT else start_offset, index, NULL)
    log.producers.snapshot_offset = -1
    return rc


cdef void remove_beyond(const Log *log, const Listing *names, int64_t end_offset) noexcept nogil:
    # Snapshots of an end that was cut off.
    cdef char path[PATH_BYTES]
    cdef int32_t i
    for i in range(names.snapshots.count):
        if names.snapshots.items[i] > end_offset:
            if path_of_segment(path, log.directory, names.snapshots.items[i], ".snapshot") == 0:
                remove_path(path)


cdef int restore_producers(Log *log, const Listing *names, bint replay_all, int64_t now_ms) noexcept nogil:
    # Without any snapshot a clean log had no producers worth remembering, as Kafka decides too; a damaged one tells
    # that there were some.
    cdef int64_t found = NO_SNAPSHOT
    cdef int rc = read_newest(log, &log.producers, names, log.end_offset, now_ms, &found)
    if rc == 0 and found != NO_SNAPSHOT and found < log.end_offset:
        rc = replay(log, &log.producers, found, log.segment_count, NULL)
    elif rc == 0 and found == NO_SNAPSHOT and (replay_all or names.snapshots.count > 0):
        rc = replay(log, &log.producers, log.start_offset, log.segment_count, NULL)
    log.producers.swept_ms = now_ms
    store_int64(&log.first_unstable_offset, first_unstable(log))
    return rc


cdef int reload_producers(Log *log, bint replay_all, int64_t now_ms) noexcept nogil:
    cdef Listing names
    cdef int rc = 0
    memset(&names, 0, sizeof(Listing))
    if log.directory != NULL:
        rc = listing_read(&names, log.directory)
    if rc == 0:
        rc = restore_producers(log, &names, replay_all, now_ms)
    if rc == 0:
        remove_beyond(log, &names, log.end_offset)
    listing_free(&names)
    return rc


cdef void remove_stray_snapshots(const Log *log, const Listing *names) noexcept nogil:
    # One per segment and the newest are of use.
    cdef char path[PATH_BYTES]
    cdef int64_t newest = -1
    cdef int32_t i
    for i in range(names.snapshots.count):
        if names.snapshots.items[i] <= log.end_offset:
            newest = names.snapshots.items[i]
    for i in range(names.snapshots.count):
        if names.snapshots.items[i] != newest and not holds(&names.logs, names.snapshots.items[i]):
            if path_of_segment(path, log.directory, names.snapshots.items[i], ".snapshot") == 0:
                remove_path(path)
    remove_beyond(log, names, log.end_offset)


cdef int rebuild_txns(Log *log, int32_t index) noexcept nogil:
    # The producers before the segment are found anew, in a table of their own.
    cdef Segment *s = log.segments[index]
    cdef ProducerTable t
    cdef Listing names
    cdef int64_t found = NO_SNAPSHOT
    cdef int rc = listing_read(&names, log.directory)
    producers_init(&t)
    note(log, s.base_offset, s.base_offset, 0, 0, b"the transaction index does not fit the segment: made anew")
    if rc == 0:
        rc = read_newest(log, &t, &names, s.base_offset, 0, &found)
    if rc == 0:
        txn_index_reset(&s.txn_index)
        rc = replay(log, &t, found if found != NO_SNAPSHOT else log.start_offset, index + 1, s)
        if rc == 0:
            rc = segment_write_txns(s)
        if rc != 0:
            txn_index_reset(&s.txn_index)
            s.txn_index.count = NOT_READ
    producers_free(&t)
    listing_free(&names)
    return rc


cdef int open_txns(Log *log, int32_t index) noexcept nogil:
    cdef int rc = segment_open_txns(log.segments[index])
    return rebuild_txns(log, index) if rc == -EINVAL else rc
