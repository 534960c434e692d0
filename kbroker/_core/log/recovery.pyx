# Opening a log: list, believe or scan, cut what is torn, rebuild what can be rebuilt.
from libc.errno cimport EBADMSG, EFBIG, EINVAL, ENOENT, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from kbroker._core.c.prelude cimport store_int64
from kbroker._core.errors cimport NONE
from kbroker._core.log.append cimport forget_positions, push_segment
from kbroker._core.log.directory cimport Offsets
from kbroker._core.log.files cimport (
    LOG_FILE, PATH_BYTES, SNAPSHOT_FILE, cut_file, path_of_file, path_of_segment, read_at, remove_path, size_of_path,
)
from kbroker._core.log.leader_epochs cimport epochs_assign, epochs_cut_end, epochs_cut_start, epochs_latest, epochs_read
from kbroker._core.log.leftovers cimport clear_leftovers
from kbroker._core.log.listing cimport Listing, holds, listing_free, listing_read
from kbroker._core.log.open_files cimport files_forget, files_note
from kbroker._core.log.producer_state cimport producers_note, producers_write_snapshot
from kbroker._core.log.replay cimport note, producers_before, remove_stray_snapshots, restore_producers
from kbroker._core.log.segment cimport (
    Segment, batch_belongs, segment_account, segment_add_txn, segment_close_files, segment_load_tail, segment_mark_empty,
    segment_open_log, segment_open_txns, segment_release, segment_remove_files, segment_reset_indexes, segment_write_indexes,
    segment_write_txns,
)
from kbroker._core.log.state cimport RECOVERY_NOTES_MAX, active, first_unstable
from kbroker._core.log.txn_index cimport AbortedTxn, txn_index_reset
from kbroker._core.record.batch cimport (
    BATCH_HEADER_BYTES, batch_base_offset, batch_has_producer_id, batch_leader_epoch, batch_magic, batch_size_bytes,
    check_batch,
)
from kbroker._core.record.compression cimport Scratch, empty_scratch, scratch_free, scratch_reserve

cdef enum:
    SCAN_BYTES = 1048576


cdef int remove_orphans(const Log *log, const Listing *names, const Offsets *indexes) noexcept nogil:
    # An index without its log says nothing.
    cdef char path[PATH_BYTES]
    cdef int32_t i
    cdef int which
    cdef int rc = 0
    for i in range(indexes.count):
        if holds(&names.logs, indexes.items[i]):
            continue
        for which in range(LOG_FILE + 1, SNAPSHOT_FILE):
            if rc == 0:
                rc = path_of_file(path, log.directory, indexes.items[i], which, "")
            if rc == 0:
                rc = remove_path(path)
    return rc


cdef const char *fault_of(const Segment *s, const uint8_t *batch, int64_t available) noexcept nogil:
    # Why the bytes at hand are not the next batch; NULL when they are.
    if available < BATCH_HEADER_BYTES:
        return b"a batch header is cut short"
    if batch_magic(batch) != 2:
        return b"the bytes are not a record batch"
    if batch_size_bytes(batch) < BATCH_HEADER_BYTES:
        return b"a batch states an impossible length"
    if batch_size_bytes(batch) > available:
        return b"a batch is cut short"
    if check_batch(batch, available) != NONE:
        return b"a batch does not match its checksum"
    if not batch_belongs(s, batch):
        return b"a batch does not follow the one before it"
    return NULL


cdef int account(Log *log, Segment *s, const uint8_t *batch, int64_t position) noexcept nogil:
    # What an append would have noted: indexes, epochs, producers, an aborted transaction.
    cdef AbortedTxn aborted
    cdef int rc = segment_account(s, batch, position, log.config.index_interval_bytes)
    if rc == 0 and batch_leader_epoch(batch) > epochs_latest(&log.epochs):
        rc = epochs_assign(&log.epochs, batch_leader_epoch(batch), batch_base_offset(batch))
    if rc == 0 and batch_has_producer_id(batch):
        if not producers_note(&log.producers, batch, batch_size_bytes(batch), &aborted):
            rc = -ENOMEM
        elif aborted.producer_id >= 0:
            rc = segment_add_txn(s, &aborted)
    return rc


cdef int scan_batches(Log *log, Segment *s, Scratch *buffer, int64_t *good, const char **reason) noexcept nogil:
    # Reads the whole file and accounts for every good batch. *reason: why they end at *good, before the file does.
    cdef int64_t position = 0
    cdef int64_t window_at = 0
    cdef int64_t window_length = 0
    cdef int64_t wanted, n
    cdef const uint8_t *batch
    cdef int rc
    while position < s.size_bytes:
        batch = buffer.data + (position - window_at)
        n = window_at + window_length - position
        wanted = BATCH_HEADER_BYTES
        if n >= BATCH_HEADER_BYTES and batch_size_bytes(batch) > BATCH_HEADER_BYTES:
            wanted = batch_size_bytes(batch)
        if n < wanted and window_at + window_length < s.size_bytes and wanted <= s.size_bytes - position:
            wanted = max(wanted, SCAN_BYTES)
            if not scratch_reserve(buffer, wanted):
                return -ENOMEM
            n = read_at(s.fd, buffer.data, min(wanted, s.size_bytes - position), position)
            if n < 0:
                return <int> n
            if n < min(wanted, s.size_bytes - position):
                return -EBADMSG
            window_at = position
            window_length = n
            continue
        reason[0] = fault_of(s, batch, n)
        if reason[0] != NULL:
            break
        rc = account(log, s, batch, position)
        if rc != 0:
            return rc
        position += batch_size_bytes(batch)
    good[0] = position
    return 0


cdef int scan_segment(Log *log, Segment *s, int64_t *good, const char **reason) noexcept nogil:
    # Nothing in the directory is changed yet.
    cdef Scratch buffer
    cdef int rc = segment_open_log(s)
    buffer = empty_scratch()
    good[0] = 0
    reason[0] = NULL
    if rc == 0:
        rc = segment_reset_indexes(s)
    if rc == 0:
        txn_index_reset(&s.txn_index)
        files_note(log.files, s)
        rc = scan_batches(log, s, &buffer, good, reason)
    scratch_free(&buffer)
    return rc


cdef void drop_last_segment(Log *log) noexcept nogil:
    cdef Segment *s = active(log)
    segment_remove_files(s)
    files_forget(log.files, s)
    segment_release(s)
    log.segment_count -= 1
    log.names_changed = True


cdef int load_segments(Log *log, const Listing *names, int64_t now_ms) noexcept nogil:
    # Names and sizes only.
    cdef char path[PATH_BYTES]
    cdef Segment *s
    cdef int32_t i
    cdef int rc
    for i in range(names.logs.count):
        rc = push_segment(log, names.logs.items[i], False, now_ms)
        if rc == 0:
            rc = path_of_segment(path, log.directory, names.logs.items[i], ".log")
        if rc != 0:
            return rc
        s = active(log)
        s.size_bytes = size_of_path(path)
        if s.size_bytes < 0:
            return <int> s.size_bytes
        if s.size_bytes > 0x7fffffff:        # no index could name a position in it: not a segment
            return -EFBIG
        if i > 0:
            log.segments[i - 1].next_offset = s.base_offset
        if s.size_bytes == 0:                # nothing to index: whatever the index files hold is replaced
            segment_mark_empty(s)
        elif not holds(&names.txn_indexes, s.base_offset):
            txn_index_reset(&s.txn_index)    # nobody need look for a file that is not there
    return 0


cdef bint bytes_behind(const Log *log, int32_t index) noexcept nogil:
    cdef int32_t i
    for i in range(index + 1, log.segment_count):
        if log.segments[i].size_bytes > 0:
            return True
    return False


cdef int cut_here(Log *log, int32_t index, int64_t position, const char *reason) noexcept nogil:
    # The bad bytes are the log's last: they were never acknowledged, or were lost by a crash of the machine.
    cdef Segment *s = log.segments[index]
    cdef int rc = 0
    note(log, s.base_offset, s.next_offset, position, s.size_bytes - position, reason)
    if position < s.size_bytes:
        rc = cut_file(s.fd, position)
    s.size_bytes = position
    while rc == 0 and log.segment_count > index + 1:
        drop_last_segment(log)               # an empty one
    return rc


cdef int settle(Log *log, int32_t index) noexcept nogil:
    # What was found out is written down: indexes, and the producers where the next segment begins.
    cdef Segment *s = log.segments[index]
    cdef bint last = index + 1 == log.segment_count
    cdef int rc = segment_write_indexes(s, not last)
    if rc == 0:
        rc = segment_write_txns(s)
    if rc == 0 and not last:
        rc = producers_write_snapshot(&log.producers, log.directory, log.segments[index + 1].base_offset)
    s.reserved_bytes = s.size_bytes + 1      # a killed broker may have left blocks beyond the end: who closes it trims it
    return rc


cdef int recover_from(Log *log, const Listing *names, int32_t first, int64_t start_offset, int64_t now_ms) noexcept nogil:
    # Reads the segments from `first` on. Where one is bad and records follow in a later one, nothing is given up:
    # LOG_DAMAGED, and the last note tells where.
    cdef Segment *s
    cdef const char *reason = NULL
    cdef int64_t good = 0
    cdef int32_t i = first
    cdef int rc = producers_before(log, names, first, start_offset, now_ms)
    while rc == 0 and i < log.segment_count:
        s = log.segments[i]
        rc = scan_segment(log, s, &good, &reason)
        if rc == 0 and reason == NULL and i + 1 < log.segment_count and s.next_offset > log.segments[i + 1].base_offset:
            reason = b"the next segment begins before this one ends"
        if rc == 0 and reason != NULL:
            if bytes_behind(log, i):
                log.note_count = min(log.note_count, RECOVERY_NOTES_MAX - 1)
                note(log, s.base_offset, s.next_offset, good, s.size_bytes - good, reason)
                return LOG_DAMAGED
            rc = cut_here(log, i, good, reason)
        if rc == 0:
            rc = settle(log, i)
        i += 1
    return rc


cdef int32_t first_past(const Log *log, int64_t recovery_point) noexcept nogil:
    # Every byte below the recovery point was synced: the first segment that reaches past it, at least the last one.
    cdef int32_t i = 0
    while i + 1 < log.segment_count and log.segments[i + 1].base_offset <= recovery_point:
        i += 1
    return i


cdef int trust_tail(Log *log, const Listing *names, int64_t start_offset, int64_t now_ms, bint *scanned) noexcept nogil:
    # After a clean stop. A tail that does not add up is scanned after all.
    cdef Segment *s = active(log)
    cdef int rc
    if s.size_bytes == 0:
        return 0
    rc = segment_load_tail(s)
    if rc == 0:
        rc = segment_open_txns(s)
    if rc == -EINVAL or rc == -ENOENT:
        note(log, s.base_offset, s.base_offset, 0, 0, b"the indexes do not fit the segment: made anew")
        scanned[0] = True
        rc = recover_from(log, names, log.segment_count - 1, start_offset, now_ms)
    segment_close_files(s)                   # thousands are opened in a row; most of them rest
    return rc


cdef int open_segments(Log *log, const Listing *names, bint clean, int64_t recovery_point, int64_t log_start_offset,
                       int64_t now_ms, bint *scanned) noexcept nogil:
    # *scanned: the producers are known.
    cdef int rc = load_segments(log, names, now_ms)
    scanned[0] = False
    if rc == 0 and log.segment_count > 0:
        if clean:
            rc = trust_tail(log, names, log_start_offset, now_ms, scanned)
        else:
            scanned[0] = True
            rc = recover_from(log, names, first_past(log, recovery_point), log_start_offset, now_ms)
    if rc == 0 and log.segment_count > 0 and active(log).next_offset < log_start_offset:
        note(log, log.segments[0].base_offset, active(log).next_offset, 0, 0, b"the log ends before its start offset")
        scanned[0] = False
        while log.segment_count > 0:
            drop_last_segment(log)
    if rc == 0 and log.segment_count == 0:
        rc = push_segment(log, log_start_offset, True, now_ms)
    return rc


cdef int publish(Log *log, const Listing *names, bint clean, int64_t recovery_point, int64_t log_start_offset, int64_t now_ms,
                 bint scanned) noexcept nogil:
    cdef int rc = 0
    log.end_offset = active(log).next_offset
    log.start_offset = max(log_start_offset, log.segments[0].base_offset)
    log.high_watermark = log.start_offset
    log.recovery_point = log.end_offset if clean else min(recovery_point, log.end_offset)
    epochs_cut_end(&log.epochs, log.end_offset)
    epochs_cut_start(&log.epochs, log.start_offset)
    if scanned:
        log.producers.swept_ms = now_ms
        store_int64(&log.first_unstable_offset, first_unstable(log))
    else:
        rc = restore_producers(log, names, not clean, now_ms)
    remove_stray_snapshots(log, names)
    forget_positions(log)
    return rc


cdef int open_directory(Log *log, bint clean, int64_t recovery_point, int64_t log_start_offset, int64_t now_ms) noexcept nogil:
    cdef Listing names
    cdef bint scanned = False
    cdef int32_t displaced = 0
    cdef int rc = clear_leftovers(log.directory, &displaced)
    if displaced > 0:
        note(log, 0, 0, 0, 0, b"an index, a snapshot or leader-epoch-checkpoint is no file: made anew")
    memset(&names, 0, sizeof(Listing))
    if rc == 0:
        rc = listing_read(&names, log.directory)
    if rc == 0:
        rc = remove_orphans(log, &names, &names.indexes)
    if rc == 0:
        rc = remove_orphans(log, &names, &names.txn_indexes)
    if rc == 0:
        rc = epochs_read(&log.epochs, log.directory)
        if rc == -EINVAL:
            note(log, 0, 0, 0, 0, b"leader-epoch-checkpoint cannot be read")
            rc = 0
    if rc == 0:
        rc = open_segments(log, &names, clean, recovery_point, log_start_offset, now_ms, &scanned)
    if rc == 0:
        rc = publish(log, &names, clean, recovery_point, log_start_offset, now_ms, scanned)
    listing_free(&names)
    return rc
