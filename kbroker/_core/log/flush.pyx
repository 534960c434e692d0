# fsync of everything a log has written since the last time.
from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free, malloc
from posix.unistd cimport usleep

from kbroker._core.c.prelude cimport store_int64
from kbroker._core.limits cimport SYNC_RETRIES, SYNC_RETRY_MS
from kbroker._core.log.files cimport (
    PATH_BYTES, path_in, path_of_segment, pthread_mutex_lock, pthread_mutex_unlock, sync_file, sync_path,
)
from kbroker._core.log.leader_epochs cimport epochs_write
from kbroker._core.log.open_files cimport files_open_indexes, files_open_log, out_of_files
from kbroker._core.log.segment cimport Segment, segment_release, segment_retain, segment_write_indexes
from kbroker._core.log.state cimport active, go_offline, refusal, usable


cdef int32_t gather(Log *log, Segment **held, int64_t end_offset) noexcept nogil:
    # Every segment with bytes past the recovery point that begins before `end_offset`. How many.
    cdef Segment *s
    cdef int32_t count = 0
    cdef int32_t i
    for i in range(log.segment_count):
        s = log.segments[i]
        if s.next_offset > log.recovery_point and s.size_bytes > 0 and s.base_offset < end_offset:
            segment_retain(s)
            held[count] = s
            count += 1
    return count


cdef int make_ready(Log *log, Segment *s) noexcept nogil:
    # Files open, indexes written; 1 when the segment has left the log in the meantime.
    cdef int32_t i
    cdef int rc = 1
    pthread_mutex_lock(&log.lock)
    for i in range(log.segment_count):
        if log.segments[i] == s:
            rc = files_open_log(log.files, s)
            if rc == 0:
                rc = files_open_indexes(log.files, s, log.config.index_interval_bytes)
            if rc == 0:
                rc = segment_write_indexes(s, False)
            break
    pthread_mutex_unlock(&log.lock)
    return rc


cdef const char *name_of(Log *log) noexcept nogil:
    cdef const char *name
    pthread_mutex_lock(&log.lock)
    name = log.directory
    pthread_mutex_unlock(&log.lock)
    return name


cdef int path_under(char *path, const char *directory, const Segment *s, const char *name) noexcept nogil:
    return path_in(path, directory, name) if s == NULL else path_of_segment(path, directory, s.base_offset, name)


cdef int sync_named(Log *log, const Segment *s, const char *name) noexcept nogil:
    # A file of the log's or, by its suffix, a segment's. -ENOENT: there is none; nor was there one under the name that a
    # log which moves (log/handover) may have been given in this moment.
    cdef char path[PATH_BYTES]
    cdef const char *before = NULL
    cdef const char *directory = name_of(log)
    cdef int rc = -ENOENT
    while rc == -ENOENT and directory != before:
        rc = path_under(path, directory, s, name)
        if rc == 0:
            rc = sync_path(path)
        before = directory
        directory = name_of(log)
    return rc


cdef int sync_if_there(Log *log, const Segment *s, const char *name) noexcept nogil:
    cdef int rc = sync_named(log, s, name)
    return 0 if rc == -ENOENT else rc


cdef int sync_segment(Log *log, const Segment *s) noexcept nogil:
    cdef int rc = sync_file(s.fd)
    if rc == 0:
        rc = sync_file(s.offset_index.fd)
    if rc == 0:
        rc = sync_file(s.time_index.fd)
    if rc == 0 and s.txn_index.count != 0:
        rc = sync_if_there(log, s, ".txnindex")
    return sync_if_there(log, s, ".snapshot") if rc == 0 else rc


cdef int sync_all(Log *log, Segment **held, int32_t count, bint names_changed, int rc) noexcept nogil:
    # One segment at a time, so that a log with many of them does not hold all their files open. Gives all back.
    cdef int32_t i
    for i in range(count):
        if rc == 0:
            rc = make_ready(log, held[i])
            if rc == 0:
                rc = sync_segment(log, held[i])
            elif rc == 1:
                rc = 0
        segment_release(held[i])
    if rc == 0:
        rc = sync_if_there(log, NULL, "leader-epoch-checkpoint")
    if rc == 0 and names_changed:
        rc = sync_named(log, NULL, ".")
    return rc


cdef int flush_to(Log *log, bint sealed) noexcept nogil:
    cdef Segment **held = NULL
    cdef int32_t count = 0
    cdef int64_t end_offset
    cdef bint names_changed = False
    cdef int rc = 0
    pthread_mutex_lock(&log.lock)
    end_offset = active(log).base_offset if sealed and usable(log) else log.end_offset
    if not usable(log):
        rc = refusal(log)
    elif log.directory != NULL and log.recovery_point < end_offset and not log.handed_over:
        names_changed = log.names_changed
        log.names_changed = False            # what changes from here on is the next flush's
        held = <Segment **> malloc(log.segment_count * sizeof(Segment *))
        if held == NULL:
            rc = -ENOMEM
        else:
            count = gather(log, held, end_offset)
            rc = epochs_write(&log.epochs, log.directory, INT64_MAX)
    pthread_mutex_unlock(&log.lock)
    if held != NULL:
        rc = sync_all(log, held, count, names_changed, rc)
    pthread_mutex_lock(&log.lock)
    if log.handed_over:
        rc = 0                                   # what it had is the other's to sync
    elif rc == 0:
        if end_offset > log.end_offset:
            end_offset = log.end_offset          # cut in the meantime
        if end_offset > log.recovery_point:
            store_int64(&log.recovery_point, end_offset)
    else:
        log.names_changed = log.names_changed or names_changed
        if not log.closed and not out_of_files(rc):      # then nothing was synced amiss: it may be tried again
            go_offline(log, rc)
    pthread_mutex_unlock(&log.lock)
    free(held)
    return rc


cdef int log_flush(Log *log) noexcept nogil:
    return flush_to(log, False)


cdef int log_flush_sealed(Log *log) noexcept nogil:
    return flush_to(log, True)


cdef int log_flush_or_fail(Log *log) noexcept nogil:
    cdef int tries = SYNC_RETRIES
    cdef int rc = log_flush(log)
    while out_of_files(rc) and tries > 0:
        tries -= 1
        usleep(SYNC_RETRY_MS * 1000)
        rc = log_flush(log)
    if out_of_files(rc):
        pthread_mutex_lock(&log.lock)
        go_offline(log, rc)
        pthread_mutex_unlock(&log.lock)
    return rc
