# Opening a log: list, believe or scan, cut what is torn, rebuild what can be rebuilt.
from libc.errno cimport EFBIG, EINVAL, EIO, ENOENT, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, qsort
from libc.string cimport strcmp

from kbroker._core.c.prelude cimport store_int64
from kbroker._core.errors cimport NONE
from kbroker._core.log.append cimport forget_positions, push_segment
from kbroker._core.log.directory cimport DIR, Offsets, add_offset, closedir, dirent, opendir, readdir
from kbroker._core.log.files cimport (
    PATH_BYTES, cut_file, offset_of_name, path_of_segment, read_at, remove_path, size_of_path,
)
from kbroker._core.log.leader_epochs cimport epochs_assign, epochs_cut_end, epochs_cut_start, epochs_latest, epochs_read
from kbroker._core.log.leftovers cimport clear_leftovers
from kbroker._core.log.open_files cimport files_forget, files_note, files_open_log
from kbroker._core.log.producer_state cimport producers_clear, producers_note, producers_read_snapshot
from kbroker._core.log.segment cimport (
    Segment, Walk, batch_belongs, segment_account, segment_close_files, segment_load_tail, segment_mark_empty, segment_open_log,
    segment_release, segment_remove_files, segment_reset_indexes, segment_write_indexes, walk_begin, walk_header, walk_next,
)
from kbroker._core.log.state cimport RECOVERY_NOTES_MAX, RecoveryNote, active, first_unstable
from kbroker._core.record.batch cimport (
    ATTR_CONTROL, BATCH_HEADER_BYTES, batch_attributes, batch_base_offset, batch_has_producer_id, batch_last_offset,
    batch_leader_epoch, batch_magic, batch_size_bytes, check_batch,
)
from kbroker._core.record.compression cimport Scratch, empty_scratch, scratch_free, scratch_reserve

cdef enum:
    SCAN_BYTES = 1048576
    MARKER_BYTES = 128               # a transaction marker's batch is 78 bytes


cdef int by_value(const void *a, const void *b) noexcept nogil:
    cdef int64_t x = (<const int64_t *> a)[0]
    cdef int64_t y = (<const int64_t *> b)[0]
    return (x > y) - (x < y)


cdef bint holds(const Offsets *o, int64_t offset) noexcept nogil:
    cdef int32_t i
    for i in range(o.count):
        if o.items[i] == offset:
            return True
    return False


cdef void note(Log *log, int64_t segment_base_offset, int64_t offset, int64_t bytes, const char *reason) noexcept nogil:
    cdef RecoveryNote *n
    if log.note_count < RECOVERY_NOTES_MAX:
        n = &log.notes[log.note_count]
        n.segment_base_offset = segment_base_offset
        n.offset = offset
        n.bytes = bytes
        n.reason = reason
        log.note_count += 1


cdef int list_directory(const Log *log, Offsets *logs, Offsets *snapshots, Offsets *indexes) noexcept nogil:
    cdef DIR *d = opendir(log.directory)
    cdef dirent *entry
    cdef const char *suffix = NULL
    cdef int64_t offset
    cdef int rc = 0
    if d == NULL:
        return -errno if errno > 0 else -EIO
    while rc == 0:
        entry = readdir(d)
        if entry == NULL:
            break
        offset = offset_of_name(entry.d_name, &suffix)
        if offset < 0:
            continue
        if strcmp(suffix, ".log") == 0:
            rc = add_offset(logs, offset)
        elif strcmp(suffix, ".snapshot") == 0:
            rc = add_offset(snapshots, offset)
        elif strcmp(suffix, ".index") == 0 or strcmp(suffix, ".timeindex") == 0 or strcmp(suffix, ".txnindex") == 0:
            rc = add_offset(indexes, offset)
    closedir(d)
    if logs.count > 0:
        qsort(logs.items, logs.count, sizeof(int64_t), by_value)
    if snapshots.count > 0:
        qsort(snapshots.items, snapshots.count, sizeof(int64_t), by_value)
    return rc


cdef int remove_orphans(const Log *log, const Offsets *logs, const Offsets *indexes) noexcept nogil:
    # An index without its log says nothing.
    cdef char path[PATH_BYTES]
    cdef const char *suffixes[3]
    cdef int32_t i, j
    cdef int rc = 0
    suffixes[0] = ".index"
    suffixes[1] = ".timeindex"
    suffixes[2] = ".txnindex"
    for i in range(indexes.count):
        if holds(logs, indexes.items[i]):
            continue
        for j in range(3):
            if rc == 0:
                rc = path_of_segment(path, log.directory, indexes.items[i], suffixes[j])
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


cdef int scan_segment(Log *log, Segment *s, Scratch *buffer, const char **reason) noexcept nogil:
    # Reads the whole file and accounts for every good batch. *reason: why it stopped before the end. 0 or -errno.
    cdef int64_t position = 0
    cdef int64_t window_at = 0
    cdef int64_t window_length = 0
    cdef int64_t wanted, n
    cdef const uint8_t *batch
    cdef int rc
    reason[0] = NULL
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
                return -EIO
            window_at = position
            window_length = n
            continue
        reason[0] = fault_of(s, batch, n)
        if reason[0] != NULL:
            break
        rc = segment_account(s, batch, position, log.config.index_interval_bytes)
        if rc == 0 and batch_leader_epoch(batch) > epochs_latest(&log.epochs):
            rc = epochs_assign(&log.epochs, batch_leader_epoch(batch), batch_base_offset(batch))
        if rc != 0:
            return rc
        position += batch_size_bytes(batch)
    if position < s.size_bytes:
        note(log, s.base_offset, s.next_offset, s.size_bytes - position, reason[0])
        rc = cut_file(s.fd, position)
        if rc != 0:
            return rc
        s.size_bytes = position
    s.reserved_bytes = s.size_bytes + 1      # a killed broker may have left blocks beyond the end: who closes it trims it
    return 0


cdef int recover_segment(Log *log, Segment *s, bint *was_cut) noexcept nogil:
    cdef Scratch buffer
    cdef const char *reason = NULL
    cdef int rc = segment_open_log(s)
    buffer = empty_scratch()
    was_cut[0] = False
    if rc == 0:
        rc = segment_reset_indexes(s)
    if rc == 0:
        files_note(log.files, s)
        rc = scan_segment(log, s, &buffer, &reason)
    if rc == 0:
        was_cut[0] = reason != NULL
        rc = segment_write_indexes(s, False)
    scratch_free(&buffer)
    return rc


cdef void drop_last_segment(Log *log) noexcept nogil:
    cdef Segment *s = active(log)
    segment_remove_files(s)
    files_forget(log.files, s)
    segment_release(s)
    log.segment_count -= 1
    log.names_changed = True


cdef int load_segments(Log *log, const Offsets *logs, int64_t now_ms) noexcept nogil:
    # Names and sizes only.
    cdef char path[PATH_BYTES]
    cdef Segment *s
    cdef int32_t i
    cdef int rc
    for i in range(logs.count):
        rc = push_segment(log, logs.items[i], False, now_ms)
        if rc == 0:
            rc = path_of_segment(path, log.directory, logs.items[i], ".log")
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
    return 0


cdef int recover_from(Log *log, int64_t recovery_point) noexcept nogil:
    cdef Segment *s
    cdef bint was_cut = False
    cdef int32_t i
    cdef int rc
    for i in range(log.segment_count):
        s = log.segments[i]
        if i + 1 < log.segment_count and log.segments[i + 1].base_offset <= recovery_point:
            continue
        rc = recover_segment(log, s, &was_cut)
        if rc != 0:
            return rc
        if was_cut or (i + 1 < log.segment_count and s.next_offset > log.segments[i + 1].base_offset):
            while log.segment_count > i + 1:
                note(log, active(log).base_offset, active(log).base_offset, active(log).size_bytes,
                     b"a segment behind a cut one")
                drop_last_segment(log)
            return 0
        if i + 1 < log.segment_count:
            rc = segment_write_indexes(s, True)
            if rc != 0:
                return rc
    return 0


cdef int trust_tail(Log *log) noexcept nogil:
    # After a clean stop. A tail that does not add up is scanned after all.
    cdef Segment *s = active(log)
    cdef bint was_cut = False
    cdef int rc
    if s.size_bytes == 0:
        return 0
    rc = segment_load_tail(s)
    if rc == -EINVAL or rc == -ENOENT:
        note(log, s.base_offset, s.base_offset, 0, b"the indexes do not fit the segment: made anew")
        rc = recover_segment(log, s, &was_cut)
    segment_close_files(s)                   # thousands are opened in a row; most of them rest
    return rc


cdef int open_segments(Log *log, const Offsets *logs, bint clean, int64_t recovery_point, int64_t log_start_offset,
                       int64_t now_ms) noexcept nogil:
    cdef int rc = load_segments(log, logs, now_ms)
    if rc == 0 and log.segment_count > 0:
        rc = trust_tail(log) if clean else recover_from(log, recovery_point)
    if rc == 0 and log.segment_count > 0 and active(log).next_offset < log_start_offset:
        note(log, log.segments[0].base_offset, active(log).next_offset, 0, b"the log ends before its start offset")
        while log.segment_count > 0:
            drop_last_segment(log)
    if rc == 0 and log.segment_count == 0:
        rc = push_segment(log, log_start_offset, True, now_ms)
    return rc


cdef bint read_newest_snapshot(Log *log, Offsets *snapshots, int64_t now_ms) noexcept nogil:
    # Damaged ones, and those of an end that was cut off, go. True when one was good.
    cdef char path[PATH_BYTES]
    cdef int64_t offset
    cdef int rc
    while snapshots.count > 0:
        offset = snapshots.items[snapshots.count - 1]
        rc = -EINVAL
        if offset <= log.end_offset:
            producers_clear(&log.producers)
            rc = producers_read_snapshot(&log.producers, log.directory, offset, now_ms,
                                         log.config.producer_id_expiration_ms)
            if rc == 0:
                return True
            note(log, offset, offset, 0, b"a producer snapshot cannot be read")
        if path_of_segment(path, log.directory, offset, ".snapshot") == 0:
            remove_path(path)
        snapshots.count -= 1
    producers_clear(&log.producers)
    log.producers.snapshot_offset = -1
    return False


cdef int replay_batch(Log *log, const Segment *s, const Walk *w, const uint8_t *header) noexcept nogil:
    # A marker is read whole: its kind and coordinator epoch stand in its record.
    cdef uint8_t marker[128]
    cdef int64_t n = BATCH_HEADER_BYTES
    if not batch_has_producer_id(header):
        return 0
    if batch_attributes(header) & ATTR_CONTROL:
        n = read_at(s.fd, marker, min(<int64_t> batch_size_bytes(header), <int64_t> MARKER_BYTES), w.position)
        if n < BATCH_HEADER_BYTES:
            return <int> n if n < 0 else -EIO
        header = marker
    return 0 if producers_note(&log.producers, header, n) else -ENOMEM


cdef int replay_from(Log *log, int64_t offset) noexcept nogil:
    cdef Segment *s
    cdef Walk w
    cdef const uint8_t *header
    cdef int32_t i
    cdef int rc
    for i in range(log.segment_count):
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
            rc = replay_batch(log, s, &w, header) if batch_last_offset(header) >= offset else 0
            if rc != 0:
                return rc
            walk_next(&w, header)
        if w.error != 0:
            return w.error
    return 0


cdef void remove_stray_snapshots(const Log *log, const Offsets *logs, const Offsets *snapshots) noexcept nogil:
    # One per segment and the newest are of use.
    cdef char path[PATH_BYTES]
    cdef int32_t i
    for i in range(snapshots.count - 1):
        if not holds(logs, snapshots.items[i]) and path_of_segment(path, log.directory, snapshots.items[i], ".snapshot") == 0:
            remove_path(path)


cdef int restore_producers(Log *log, Offsets *snapshots, bint replay_all, int64_t now_ms) noexcept nogil:
    # Without any snapshot a clean log had no producers worth remembering, as Kafka decides too; a damaged one tells
    # that there were some.
    cdef bint had = snapshots.count > 0
    cdef int rc = 0
    if read_newest_snapshot(log, snapshots, now_ms):
        if log.producers.snapshot_offset < log.end_offset:
            rc = replay_from(log, log.producers.snapshot_offset)
    elif replay_all or had:
        rc = replay_from(log, log.start_offset)
    log.producers.swept_ms = now_ms
    store_int64(&log.first_unstable_offset, first_unstable(log))
    return rc


cdef int reload_producers(Log *log, bint replay_all, int64_t now_ms) noexcept nogil:
    cdef Offsets logs, snapshots, indexes
    cdef int rc
    logs.items = snapshots.items = indexes.items = NULL
    logs.count = snapshots.count = indexes.count = 0
    logs.capacity = snapshots.capacity = indexes.capacity = 0
    rc = 0 if log.directory == NULL else list_directory(log, &logs, &snapshots, &indexes)
    if rc == 0:
        rc = restore_producers(log, &snapshots, replay_all, now_ms)
    free(logs.items)
    free(snapshots.items)
    free(indexes.items)
    return rc


cdef int open_directory(Log *log, bint clean, int64_t recovery_point, int64_t log_start_offset, int64_t now_ms) noexcept nogil:
    cdef Offsets logs, snapshots, indexes
    cdef int rc
    logs.items = snapshots.items = indexes.items = NULL
    logs.count = snapshots.count = indexes.count = 0
    logs.capacity = snapshots.capacity = indexes.capacity = 0
    rc = clear_leftovers(log.directory)
    if rc == 0:
        rc = list_directory(log, &logs, &snapshots, &indexes)
    if rc == 0:
        rc = remove_orphans(log, &logs, &indexes)
    if rc == 0:
        rc = epochs_read(&log.epochs, log.directory)
        if rc == -EINVAL:
            note(log, 0, 0, 0, b"leader-epoch-checkpoint cannot be read")
            rc = 0
    if rc == 0:
        rc = open_segments(log, &logs, clean, recovery_point, log_start_offset, now_ms)
    if rc == 0:
        log.end_offset = active(log).next_offset
        log.start_offset = max(log_start_offset, log.segments[0].base_offset)
        log.high_watermark = log.start_offset
        log.recovery_point = log.end_offset if clean else min(recovery_point, log.end_offset)
        epochs_cut_end(&log.epochs, log.end_offset)
        epochs_cut_start(&log.epochs, log.start_offset)
        rc = restore_producers(log, &snapshots, not clean, now_ms)
        remove_stray_snapshots(log, &logs, &snapshots)
        forget_positions(log)
    free(logs.items)
    free(snapshots.items)
    free(indexes.items)
    return rc
