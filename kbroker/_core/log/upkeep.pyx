# Cutting the end of a log, and closing it.
from libc.errno cimport EINVAL, EIO
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._core.c.prelude cimport store_int64
from kbroker._core.log.append cimport forget_positions, push_segment
from kbroker._core.log.files cimport (
    PATH_BYTES, path_of_segment, pthread_mutex_lock, pthread_mutex_unlock, sync_path,
)
from kbroker._core.log.flush cimport log_flush
from kbroker._core.log.leader_epochs cimport epochs_assign, epochs_cut_end, epochs_write
from kbroker._core.log.lookup cimport position_of
from kbroker._core.log.open_files cimport files_forget, files_note, files_open_indexes, files_open_log
from kbroker._core.log.producer_state cimport producers_expire, producers_write_snapshot
from kbroker._core.log.replay cimport open_txns, reload_producers
from kbroker._core.log.segment cimport (
    Segment, Walk, segment_close_files, segment_cut, segment_indexes_written, segment_release, segment_remove_files,
    segment_trim, segment_write_indexes, walk_begin, walk_header,
)
from kbroker._core.log.state cimport active, go_offline, offline_errno, refusal, usable
from kbroker._core.log.verification cimport verifications_expire
from kbroker._core.record.batch cimport batch_base_offset


cdef void forget_segment(Log *log, int32_t index) noexcept nogil:
    cdef Segment *s = log.segments[index]
    cdef int32_t i
    files_forget(log.files, s)
    for i in range(index + 1, log.segment_count):
        log.segments[i - 1] = log.segments[i]
    log.segment_count -= 1
    log.names_changed = True
    segment_release(s)


cdef int drop_segment(Log *log, int32_t index) noexcept nogil:
    # The names go now, the bytes when the last reader is done.
    cdef int rc = segment_remove_files(log.segments[index])
    forget_segment(log, index)
    return rc


cdef int cut_within(Log *log, int64_t offset) noexcept nogil:
    # The last segment holds `offset`, or ends there.
    cdef Segment *s = active(log)
    cdef Walk w
    cdef const uint8_t *header
    cdef int64_t position
    cdef int rc
    rc = files_open_indexes(log.files, s, log.config.index_interval_bytes)
    if rc == 0:
        rc = files_open_log(log.files, s)
    if rc == 0:
        rc = open_txns(log, log.segment_count - 1)
    if rc != 0:
        return rc
    position = position_of(log, log.segment_count - 1, offset)
    if position < 0:
        return <int> position
    if position < s.size_bytes:
        walk_begin(&w, s.fd, position, s.size_bytes)
        header = walk_header(&w)
        if header == NULL:
            return w.error if w.error != 0 else -EIO
        offset = min(offset, batch_base_offset(header))
    rc = segment_cut(s, position, offset)
    if rc == 0 and s.next_offset < offset:
        s.next_offset = offset
    return rc


cdef int truncate_locked(Log *log, int64_t offset, int64_t now_ms) noexcept nogil:
    cdef int rc = 0
    if offset >= log.end_offset:
        return 0
    store_int64(&log.cuts, log.cuts + 1)
    forget_positions(log)
    if offset < log.segments[0].base_offset:
        while log.segment_count > 0 and rc == 0:
            rc = drop_segment(log, log.segment_count - 1)
        if rc == 0:
            rc = push_segment(log, offset, True, now_ms)
    else:
        while log.segment_count > 1 and active(log).base_offset >= offset and rc == 0:
            rc = drop_segment(log, log.segment_count - 1)
        if rc == 0:
            rc = cut_within(log, offset)
    if rc != 0:
        return rc
    forget_positions(log)
    offset = active(log).next_offset
    store_int64(&log.end_offset, offset)
    if log.start_offset > offset:
        store_int64(&log.start_offset, offset)
    if log.high_watermark > offset:
        store_int64(&log.high_watermark, offset)
    if log.recovery_point > offset:
        store_int64(&log.recovery_point, offset)
    epochs_cut_end(&log.epochs, offset)
    log.producers.snapshot_offset = -1
    return reload_producers(log, True, now_ms)


cdef int log_truncate_to(Log *log, int64_t offset, int64_t now_ms) noexcept nogil:
    cdef int rc
    pthread_mutex_lock(&log.lock)
    if not usable(log):
        rc = refusal(log)
    elif offset < 0:
        rc = -EINVAL
    else:
        rc = truncate_locked(log, offset, now_ms)
        if rc != 0:
            go_offline(log, rc)
    pthread_mutex_unlock(&log.lock)
    return rc


cdef int write_last(Log *log) noexcept nogil:
    # What a clean start relies on: indexes to their end, the producers at the end offset.
    cdef Segment *s = active(log)
    cdef int rc
    if log.directory == NULL:
        return 0
    rc = 0
    if not segment_indexes_written(s, True):     # of a log that only rested nothing is opened
        rc = files_open_indexes(log.files, s, log.config.index_interval_bytes)
        if rc == 0:
            rc = segment_write_indexes(s, True)
    if rc == 0:
        rc = segment_trim(s)
    if rc == 0 and log.end_offset > 0:
        rc = producers_write_snapshot(&log.producers, log.directory, log.end_offset)
    if rc == 0:
        rc = epochs_write(&log.epochs, log.directory, log.end_offset)
    return rc


cdef int sync_last(Log *log, int64_t recovery_point) noexcept nogil:
    # The snapshot of the end has no segment that would sync it.
    cdef char path[PATH_BYTES]
    cdef int rc = log_flush(log)
    if rc == 0 and log.directory != NULL and recovery_point < log.end_offset:
        rc = path_of_segment(path, log.directory, log.end_offset, ".snapshot")
        if rc == 0:
            rc = sync_path(path)
    return rc


cdef int log_close(Log *log, bint sync) noexcept nogil:
    cdef Segment *s
    cdef int64_t recovery_point = log.recovery_point
    cdef int rc = 0
    pthread_mutex_lock(&log.lock)
    if log.closed:
        pthread_mutex_unlock(&log.lock)
        return 0
    if usable(log) and sync and not log.fresh:       # a log without files is made again from the metadata
        rc = write_last(log)
        if rc != 0:
            go_offline(log, rc)
    pthread_mutex_unlock(&log.lock)
    if rc == 0 and sync and offline_errno(log) == 0:
        rc = sync_last(log, recovery_point)
    pthread_mutex_lock(&log.lock)
    if not log.closed:
        log.closed = True
        while log.segment_count > 0:
            s = active(log)
            log.segment_count -= 1
            files_forget(log.files, s)
            s.directory = NULL               # whoever still reads has the descriptor and needs no path
            segment_release(s)
    pthread_mutex_unlock(&log.lock)
    return rc


cdef void log_assign_epoch(Log *log, int32_t epoch) noexcept nogil:
    cdef int rc = 0
    pthread_mutex_lock(&log.lock)
    if not log.closed:
        rc = epochs_assign(&log.epochs, epoch, log.end_offset)
    if rc != 0:
        go_offline(log, rc)
    pthread_mutex_unlock(&log.lock)


cdef void log_expire_producers(Log *log, int64_t now_ms) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    producers_expire(&log.producers, now_ms, log.config.producer_id_expiration_ms)
    verifications_expire(&log.verifications, now_ms, log.config.producer_id_expiration_ms)
    pthread_mutex_unlock(&log.lock)
