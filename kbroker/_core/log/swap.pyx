# The dance of names around a compaction.
from libc.errno cimport ENOENT
from libc.stdint cimport int32_t, int64_t

from kbroker._core.c.prelude cimport load_pointer
from kbroker._core.log.append cimport forget_positions
from kbroker._core.log.files cimport (
    CREATE_EMPTY, LOG_FILE, OFFSET_INDEX_FILE, PATH_BYTES, SEGMENT_FILES, SNAPSHOT_FILE, TIME_INDEX_FILE, TXN_INDEX_FILE,
    open_file, path_of_file, pthread_mutex_lock, pthread_mutex_unlock, remove_path, rename_file, sync_file, sync_path,
)
from kbroker._core.log.open_files cimport files_forget, files_note, out_of_files
from kbroker._core.log.segment cimport Segment, segment_mark_empty, segment_release, segment_write_indexes
from kbroker._core.log.state cimport go_offline, usable
from kbroker._core.log.txn_index cimport txn_index_write


cdef inline int files_of(const Segment *cleaned) noexcept nogil:
    # Its log and two indexes, and a transaction index if something aborted is left.
    return TXN_INDEX_FILE + 1 if cleaned.txn_index.count > 0 else TXN_INDEX_FILE


cdef int create(const Segment *s, int which) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef int rc = path_of_file(path, s.directory, s.base_offset, which, ".cleaned")
    return open_file(path, CREATE_EMPTY) if rc == 0 else rc


cdef int cleaned_create(Segment *s) noexcept nogil:
    s.fd = create(s, LOG_FILE)
    if s.fd < 0:
        return s.fd
    s.offset_index.fd = create(s, OFFSET_INDEX_FILE)
    if s.offset_index.fd < 0:
        return s.offset_index.fd
    s.time_index.fd = create(s, TIME_INDEX_FILE)
    if s.time_index.fd < 0:
        return s.time_index.fd
    segment_mark_empty(s)
    return 0


cdef int cleaned_sync(Segment *s) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef int rc = segment_write_indexes(s, True)
    if rc == 0:
        rc = sync_file(s.fd)
    if rc == 0:
        rc = sync_file(s.offset_index.fd)
    if rc == 0:
        rc = sync_file(s.time_index.fd)
    if rc == 0 and s.txn_index.count > 0:
        rc = txn_index_write(&s.txn_index, s.directory, s.base_offset, ".cleaned")
        if rc == 0:
            rc = path_of_file(path, s.directory, s.base_offset, TXN_INDEX_FILE, ".cleaned")
        if rc == 0:
            rc = sync_path(path)
    return rc


cdef void cleaned_remove(const Segment *s) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef int i
    for i in range(TXN_INDEX_FILE + 1):
        if path_of_file(path, s.directory, s.base_offset, i, ".cleaned") == 0:
            remove_path(path)
        if path_of_file(path, s.directory, s.base_offset, i, ".swap") == 0:
            remove_path(path)


cdef int rename_one(const Segment *s, int which, const char *before, const char *after, int32_t *steps_left) noexcept nogil:
    if steps_left[0] == 0:
        return STOPPED
    if steps_left[0] > 0:
        steps_left[0] -= 1
    return rename_file(s.directory, s.base_offset, which, before, after)


cdef int retire_files(const Segment *s, bint with_snapshot, int32_t *steps_left) noexcept nogil:
    # The transaction index first: left behind, it would pass for the cleaned segment's, which need not have one, and tell of
    # transactions whose markers are gone.
    cdef int i, which, rc
    for i in range(SEGMENT_FILES if with_snapshot else SNAPSHOT_FILE):
        which = i if i == SNAPSHOT_FILE else (i + TXN_INDEX_FILE) % SNAPSHOT_FILE
        rc = rename_one(s, which, "", ".deleted", steps_left)
        if rc != 0 and not (rc == -ENOENT and which != LOG_FILE):
            return rc                        # a segment need not have every file, but it has a log
    return 0


cdef int rename_all(Segment **old, int32_t count, Segment *cleaned, int32_t *steps_left, bint *begun) noexcept nogil:
    cdef int32_t i
    cdef int rc
    begun[0] = False
    for i in range(files_of(cleaned)):
        rc = rename_one(cleaned, i, ".cleaned", ".swap", steps_left)
        if rc != 0:
            return rc
    begun[0] = True
    for i in range(count):
        rc = retire_files(old[i], i > 0, steps_left)
        if rc != 0:
            return rc
    for i in range(files_of(cleaned) - 1, -1, -1):
        rc = rename_one(cleaned, i, ".swap", "", steps_left)
        if rc != 0:
            return rc
    return 0


cdef int32_t place_of(const Log *log, Segment **old, int32_t count) noexcept nogil:
    # Where the old segments stand in the log, one after the other; -1: not any more.
    cdef int32_t first, i
    for first in range(log.segment_count - count):   # the last segment is never cleaned
        if log.segments[first] == old[0]:
            for i in range(count):
                if log.segments[first + i] != old[i]:
                    return -1
            return first
    return -1


cdef void take_place(Log *log, int32_t first, int32_t count, Segment *cleaned) noexcept nogil:
    cdef Segment *s
    cdef int32_t i
    for i in range(first, first + count):
        s = log.segments[i]
        cleaned.next_offset = s.next_offset
        cleaned.created_ms = s.created_ms
        files_forget(log.files, s)
        segment_release(s)                   # whoever still reads has its descriptor
    log.segments[first] = cleaned
    for i in range(first + count, log.segment_count):
        log.segments[i - count + 1] = log.segments[i]
    log.segment_count -= count - 1
    forget_positions(log)
    files_note(log.files, cleaned)


cdef void sync_names(Log *log) noexcept nogil:
    # The swap stands; a directory that cannot be synced takes its log offline, as any failed sync does.
    cdef int rc = sync_path(<const char *> load_pointer(<void **> &log.directory))
    if rc != 0:
        pthread_mutex_lock(&log.lock)
        if out_of_files(rc):
            log.names_changed = True         # the next flush syncs it
        elif not log.closed:
            go_offline(log, rc)
        pthread_mutex_unlock(&log.lock)


cdef int swap_in(Log *log, Segment **old, int32_t count, Segment *cleaned, int64_t cuts, int32_t *steps_left) noexcept nogil:
    cdef bint begun = False
    cdef int32_t first = -1
    cdef int rc = LOG_CHANGED
    pthread_mutex_lock(&log.lock)
    if usable(log) and log.cuts == cuts:
        first = place_of(log, old, count)
    if first >= 0:
        rc = rename_all(old, count, cleaned, steps_left, &begun)
        if rc == 0:
            take_place(log, first, count, cleaned)
        elif begun:
            go_offline(log, rc)
    pthread_mutex_unlock(&log.lock)
    if rc == 0:
        sync_names(log)
    return rc
