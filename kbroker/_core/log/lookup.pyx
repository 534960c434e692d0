# The read side of a log. The less it looks into files the better: recent batches and hints first, then the index, then
# the headers of one index interval.
from libc.errno cimport EBADMSG
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker._core.c.prelude cimport load_int64, store_int64
from kbroker._core.errors cimport KAFKA_STORAGE_ERROR, NONE, OFFSET_OUT_OF_RANGE
from kbroker._core.limits cimport DECOMPRESSED_BATCH_MAX_BYTES
from kbroker._core.log.files cimport pthread_mutex_lock, pthread_mutex_unlock, read_at
from kbroker._core.log.health cimport is_disks_fault
from kbroker._core.log.leader_epochs cimport epochs_end_offset, epochs_latest
from kbroker._core.log.offset_index cimport position_before_offset, position_before_position
from kbroker._core.log.open_files cimport files_open_indexes, files_open_log
from kbroker._core.log.segment cimport (
    Segment, Walk, segment_blame, segment_load_max_timestamp, segment_rebuild_indexes, segment_release, segment_retain,
    walk_begin, walk_header, walk_next,
)
from kbroker._core.log.sparse_index cimport index_floor
from kbroker._core.log.state cimport READ_HINTS, RECENT_BATCHES, ReadHint, RecentBatch, active, go_offline, usable
from kbroker._core.log.time_index cimport time_index_entry
from kbroker._core.record.batch cimport (
    batch_base_offset, batch_last_offset, batch_leader_epoch, batch_max_timestamp, batch_size_bytes, check_batch,
)
from kbroker._core.record.compression cimport Scratch, empty_scratch, scratch_free, scratch_reserve
from kbroker._core.record.record_view cimport RECORD_FINE, RecordView
from kbroker._core.record.records cimport RecordWalk, next_record, open_records


cdef int32_t segment_of(const Log *log, int64_t offset) noexcept nogil:
    cdef int32_t low = 0
    cdef int32_t high = log.segment_count
    cdef int32_t middle
    if log.segments[high - 1].base_offset <= offset:
        return high - 1
    while high - low > 1:
        middle = low + (high - low) // 2
        if log.segments[middle].base_offset <= offset:
            low = middle
        else:
            high = middle
    return low


cdef int64_t recent_position(const Log *log, int64_t offset) noexcept nogil:
    # In the active segment: the batch that ends at or after `offset`, when it and the one before are remembered; else -1.
    cdef uint32_t steps = 0
    cdef const RecentBatch *found = NULL
    cdef const RecentBatch *r
    while steps < log.recent_count:
        steps += 1
        r = &log.recent[(log.recent_next - steps) % RECENT_BATCHES]
        if r.last_offset < offset:
            return found.position if found != NULL else -1
        found = r
        if r.base_offset <= offset:
            return r.position
    return -1


cdef int doubt_indexes(Log *log, Segment *s) noexcept nogil:
    # An entry leads to where no batch begins, or past what was looked for: they are made anew, once. -EBADMSG: it was done, or
    # the log itself is damaged; then what the entries behind the damage lead to is all that can still be found.
    cdef Walk w
    cdef const uint8_t *header
    if s.indexes_doubted:
        return -EBADMSG
    s.indexes_doubted = True
    walk_begin(&w, s.fd, 0, s.size_bytes)
    header = walk_header(&w)
    while header != NULL:
        walk_next(&w, header)
        header = walk_header(&w)
    if w.error != 0:
        return w.error
    return segment_rebuild_indexes(s, log.config.index_interval_bytes) if w.position == s.size_bytes else -EBADMSG


cdef int64_t position_of(Log *log, int32_t segment, int64_t offset) noexcept nogil:
    cdef Segment *s = log.segments[segment]
    cdef Walk w
    cdef const uint8_t *header
    cdef int64_t position
    cdef int i, rc
    if offset <= s.base_offset:
        return 0
    if s == active(log):
        if offset >= s.next_offset:
            return s.size_bytes
        position = recent_position(log, offset)
        if position >= 0:
            return position
    for i in range(READ_HINTS):
        if log.hints[i].segment == s and log.hints[i].offset == offset:
            return log.hints[i].position
    rc = files_open_indexes(log.files, s, log.config.index_interval_bytes)
    if rc == 0:
        rc = files_open_log(log.files, s)
    if rc != 0:
        return rc
    position = position_before_offset(&s.offset_index, offset - s.base_offset)
    if position < 0:
        return position
    walk_begin(&w, s.fd, position, s.size_bytes)
    header = walk_header(&w)
    if position > 0 and w.error == 0 and (header == NULL or batch_base_offset(header) > offset):
        rc = doubt_indexes(log, s)           # an entry names the batch that ends at or before what it is asked for
        return rc if rc < 0 else position_of(log, segment, offset)
    while header != NULL:
        if batch_last_offset(header) >= offset:
            return w.position
        walk_next(&w, header)
        header = walk_header(&w)
    if w.error != 0:
        return w.error
    return w.position if w.position == s.size_bytes else -EBADMSG


cdef int64_t fitting_end(Log *log, Segment *s, int64_t position, int64_t end, int64_t max_bytes, bint at_least_one) noexcept nogil:
    # The last end of a batch within max_bytes of `position`; notes where the next read will begin. -errno.
    cdef Walk w
    cdef const uint8_t *header
    cdef ReadHint *hint
    cdef int64_t start = position
    cdef int64_t bound = position + max_bytes
    cdef int rc = files_open_indexes(log.files, s, log.config.index_interval_bytes)
    if rc == 0:
        rc = files_open_log(log.files, s)
    if rc != 0:
        return rc
    position = position_before_position(&s.offset_index, bound)
    if position < 0:
        return position
    walk_begin(&w, s.fd, position if position > start else start, end)
    if position > start and position < end and walk_header(&w) == NULL and w.error == 0:
        rc = doubt_indexes(log, s)
        if rc < 0 and rc != -EBADMSG:
            return rc
        walk_begin(&w, s.fd, start, end)
    while True:
        header = walk_header(&w)
        if header == NULL:
            break
        if w.position + batch_size_bytes(header) > bound and not (at_least_one and w.position == start):
            hint = &log.hints[log.hint_next]
            log.hint_next = (log.hint_next + 1) % READ_HINTS
            hint.segment = s
            hint.offset = batch_base_offset(header)
            hint.position = w.position
            break
        walk_next(&w, header)
    return w.error if w.error != 0 else w.position


cdef int plan_slice(Log *log, int32_t segment, int64_t offset, int64_t bound, int64_t max_bytes, bint at_least_one,
                    ReadPlan *out) noexcept nogil:
    # 0 or -errno; fills position and length.
    cdef Segment *s = log.segments[segment]
    cdef int64_t start = position_of(log, segment, offset)
    cdef int64_t end = s.size_bytes
    out.position = start
    out.length = 0
    if start < 0:
        return <int> start
    if start == end:
        return 0
    if bound < s.next_offset:
        end = position_of(log, segment, bound)
        if end < 0:
            return <int> end
    if end - start > max_bytes:
        end = fitting_end(log, s, start, end, max_bytes, at_least_one)
        if end < 0:
            return <int> end
    if end <= start:
        return 0
    out.length = end - start
    return files_open_log(log.files, s)


cdef void nothing(ReadPlan *out, int16_t error) noexcept nogil:
    out.error = error
    out.segment = NULL
    out.position = 0
    out.length = 0
    out.more_behind = False
    if error != NONE:
        out.high_watermark = -1
        out.last_stable_offset = -1
        out.log_start_offset = -1
        out.log_end_offset = -1


cdef void read_locked(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint at_least_one, ReadPlan *out) noexcept nogil:
    cdef int32_t segment
    cdef int rc
    nothing(out, NONE)
    if not usable(log):
        nothing(out, KAFKA_STORAGE_ERROR)
        return
    if offset < log.start_offset or offset > log.end_offset:
        nothing(out, OFFSET_OUT_OF_RANGE)
        return
    out.high_watermark = log.high_watermark
    out.last_stable_offset = log.high_watermark
    if 0 <= log.first_unstable_offset < log.high_watermark:
        out.last_stable_offset = log.first_unstable_offset
    out.log_start_offset = log.start_offset
    out.log_end_offset = log.end_offset
    if bound > log.end_offset:
        bound = log.end_offset
    if offset >= bound or (max_bytes <= 0 and not at_least_one):
        return
    segment = segment_of(log, offset)
    while True:
        rc = plan_slice(log, segment, offset, bound, max_bytes if max_bytes > 0 else 0, at_least_one, out)
        if rc != 0:
            if is_disks_fault(rc):
                go_offline(log, rc)
            elif rc == -EBADMSG:
                store_int64(&log.damaged_offset, offset)
            nothing(out, KAFKA_STORAGE_ERROR)
            return
        if out.length > 0:
            out.segment = log.segments[segment]
            segment_retain(out.segment)
            out.more_behind = segment + 1 < log.segment_count and log.segments[segment + 1].base_offset <= bound
            return
        segment += 1                         # compaction may have left nothing at the end of a segment
        if out.position < log.segments[segment - 1].size_bytes or segment == log.segment_count:
            return
        offset = log.segments[segment].base_offset
        if offset >= bound:
            return


cdef void log_read(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint at_least_one, ReadPlan *out) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    read_locked(log, offset, bound, max_bytes, at_least_one, out)
    pthread_mutex_unlock(&log.lock)


cdef bint search_batch(const uint8_t *batch, int64_t timestamp, int64_t start_offset, Scratch *inflated, TimestampOffset *out) noexcept nogil:
    # The first record of this batch at or past `timestamp`. A codec without an engine here answers with the batch itself,
    # which is early but never late: no record is skipped.
    cdef RecordWalk walk
    cdef RecordView record
    cdef int64_t offset = 0
    cdef int64_t at = 0
    out.leader_epoch = batch_leader_epoch(batch)
    if open_records(batch, inflated, DECOMPRESSED_BATCH_MAX_BYTES, &walk) != 0:
        out.offset = max(batch_base_offset(batch), start_offset)
        out.timestamp = batch_max_timestamp(batch)
        return True
    while walk.left > 0:
        if next_record(&walk, &record, &offset, &at) != RECORD_FINE:
            return False
        if at >= timestamp and offset >= start_offset:
            out.offset = offset
            out.timestamp = at
            return True
    return False


cdef bint search_segment(Segment *s, int64_t position, int64_t end, int64_t timestamp, int64_t start_offset,
                         TimestampOffset *out) noexcept nogil:
    # The caller holds a reference, not the lock.
    cdef Walk w
    cdef const uint8_t *header
    cdef Scratch batch
    cdef Scratch inflated
    cdef bint found = False
    cdef int32_t size
    cdef int64_t n
    batch = empty_scratch()
    inflated = empty_scratch()
    walk_begin(&w, s.fd, position, end)
    while not found:
        header = walk_header(&w)
        if header == NULL:
            break
        if batch_max_timestamp(header) >= timestamp and batch_last_offset(header) >= start_offset:
            size = batch_size_bytes(header)
            if not scratch_reserve(&batch, size):
                out.error = KAFKA_STORAGE_ERROR
                break
            n = read_at(s.fd, batch.data, size, w.position)
            if n != size:
                w.error = <int> n if n < 0 else -EBADMSG
                break
            if check_batch(batch.data, size) == NONE:
                found = search_batch(batch.data, timestamp, start_offset, &inflated, out)
        walk_next(&w, header)
    if w.error != 0:
        segment_blame(s, w.error)
        out.error = KAFKA_STORAGE_ERROR
    scratch_free(&batch)
    scratch_free(&inflated)
    return found or out.error != NONE


cdef int64_t begin_of_search(Log *log, Segment *s, int64_t timestamp) noexcept nogil:
    # A position before which every timestamp is smaller; -errno.
    cdef int64_t found = 0
    cdef int64_t relative = 0
    cdef int rc = files_open_indexes(log.files, s, log.config.index_interval_bytes)
    if rc == 0:
        rc = files_open_log(log.files, s)
    if rc == 0:
        rc = time_index_entry(&s.time_index, index_floor(&s.time_index, 0, 8, timestamp), &found, &relative)
    if rc != 0:
        return rc
    return position_before_offset(&s.offset_index, relative)


cdef int load_max_timestamp(Log *log, Segment *s) noexcept nogil:
    cdef int rc = 0
    if s.max_timestamp < -1:
        rc = files_open_indexes(log.files, s, log.config.index_interval_bytes)
        if rc == 0:
            rc = segment_load_max_timestamp(s)
    if is_disks_fault(rc):
        go_offline(log, rc)
    return rc


cdef void no_offset(TimestampOffset *out) noexcept nogil:
    out.error = NONE
    out.offset = -1
    out.timestamp = -1
    out.leader_epoch = -1


cdef void find_timestamp(Log *log, int64_t timestamp, bint below_start, TimestampOffset *out) noexcept nogil:
    cdef Segment *s
    cdef int64_t position = 0
    cdef int64_t end = 0
    cdef int64_t start_offset = 0
    cdef int64_t after = -1                  # base offset of the last segment looked into
    cdef int32_t i
    no_offset(out)
    while True:
        s = NULL
        pthread_mutex_lock(&log.lock)
        if not usable(log):
            out.error = KAFKA_STORAGE_ERROR
        else:
            start_offset = 0 if below_start else log.start_offset
            for i in range(log.segment_count):
                if log.segments[i].base_offset <= after or log.segments[i].size_bytes == 0:
                    continue
                if load_max_timestamp(log, log.segments[i]) != 0:
                    out.error = KAFKA_STORAGE_ERROR
                    break
                if log.segments[i].max_timestamp >= timestamp:
                    s = log.segments[i]
                    position = begin_of_search(log, s, timestamp)
                    if is_disks_fault(<int> min(position, <int64_t> 0)):
                        go_offline(log, <int> position)
                    end = s.size_bytes
                    segment_retain(s)
                    break
        pthread_mutex_unlock(&log.lock)
        if s == NULL:
            return
        after = s.base_offset
        if position < 0:
            out.error = KAFKA_STORAGE_ERROR
        if position < 0 or search_segment(s, position, end, timestamp, start_offset, out):
            segment_release(s)
            return
        segment_release(s)


cdef void log_offset_for_timestamp(Log *log, int64_t timestamp, TimestampOffset *out) noexcept nogil:
    find_timestamp(log, timestamp, False, out)


cdef void log_offset_of_max_timestamp(Log *log, TimestampOffset *out) noexcept nogil:
    cdef int64_t largest = -2      # below the -1 of records without a timestamp: of those the first is the answer
    cdef int32_t i
    no_offset(out)
    pthread_mutex_lock(&log.lock)
    if not usable(log):
        out.error = KAFKA_STORAGE_ERROR
    else:
        for i in range(log.segment_count):
            if log.segments[i].size_bytes == 0:
                continue
            if load_max_timestamp(log, log.segments[i]) != 0:
                out.error = KAFKA_STORAGE_ERROR
                break
            if log.segments[i].max_timestamp > largest:
                largest = log.segments[i].max_timestamp
    pthread_mutex_unlock(&log.lock)
    if out.error == NONE and largest >= -1:
        find_timestamp(log, largest, True, out)      # as Kafka: a deleted record counts until its segment goes


cdef void log_end_offset_for_epoch(Log *log, int32_t epoch, int32_t *found_epoch, int64_t *end_offset) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    epochs_end_offset(&log.epochs, epoch, log.end_offset, found_epoch, end_offset)
    pthread_mutex_unlock(&log.lock)


cdef int32_t log_latest_epoch(Log *log) noexcept nogil:
    cdef int32_t epoch
    pthread_mutex_lock(&log.lock)
    epoch = epochs_latest(&log.epochs)
    pthread_mutex_unlock(&log.lock)
    return epoch
