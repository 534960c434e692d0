# Look-ups over the transaction indexes of a log's segments.
from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t

from kbroker._core.log.files cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker._core.log.lookup cimport segment_of
from kbroker._core.log.offset_index cimport position_of_entry
from kbroker._core.log.open_files cimport files_note, files_open_indexes
from kbroker._core.log.replay cimport open_txns
from kbroker._core.log.segment cimport Segment
from kbroker._core.log.sparse_index cimport NO_ENTRY, index_floor
from kbroker._core.log.state cimport refusal, usable
from kbroker._core.log.txn_index cimport AbortedTxn, txn_index_collect

cdef enum:
    NO_MORE = 1


cdef int open_next(Log *log, int64_t *offset, Segment **found) noexcept nogil:
    # Under the lock: the segment that holds *offset, with its index in memory; *offset moves on to the next segment. NO_MORE
    # behind the last one.
    cdef int32_t i
    cdef int rc
    if not usable(log) or log.segment_count == 0:
        return refusal(log)
    if offset[0] >= log.end_offset:
        return NO_MORE
    i = segment_of(log, offset[0])
    rc = open_txns(log, i)
    found[0] = log.segments[i]
    offset[0] = log.segments[i + 1].base_offset if i + 1 < log.segment_count else log.end_offset
    if rc == 0 and found[0].txn_index.count > 0:
        files_note(log.files, found[0])      # so that its memory goes when it has rested
    return rc


cdef int log_collect_aborted(Log *log, int64_t from_offset, int64_t upper_bound, TxnIndex *out) noexcept nogil:
    return collect(log, from_offset, from_offset, upper_bound, out)


cdef int collect(Log *log, int64_t offset, int64_t from_offset, int64_t upper_bound, TxnIndex *out) noexcept nogil:
    # From the segment that holds `offset` on.
    cdef Segment *s = NULL
    cdef bint no_memory = False
    cdef int rc = 0
    while rc == 0:
        pthread_mutex_lock(&log.lock)
        rc = open_next(log, &offset, &s)
        if rc == 0 and txn_index_collect(&s.txn_index, from_offset, upper_bound, out, &no_memory):
            rc = -ENOMEM if no_memory else <int> NO_MORE
        pthread_mutex_unlock(&log.lock)
    return min(rc, 0)


cdef int64_t bound_of_slice(Log *log, int32_t i, int64_t end_position) noexcept nogil:
    # The first offset known to lie behind a position of the segment; -errno.
    cdef Segment *s = log.segments[i]
    cdef int64_t relative = 0
    cdef int64_t position
    cdef int32_t entry
    cdef int rc = files_open_indexes(log.files, s, log.config.index_interval_bytes)
    if rc != 0:
        return rc
    entry = index_floor(&s.offset_index, 4, 4, end_position - 1)
    if entry < 0 and entry != NO_ENTRY:
        return entry
    entry = entry + 1 if entry >= 0 else 0
    if entry < s.offset_index.count:
        position = position_of_entry(&s.offset_index, entry, &relative)
        return s.base_offset + relative if position >= 0 else position
    return log.segments[i + 1].base_offset if i + 1 < log.segment_count else log.end_offset


cdef int64_t locate_slice(Log *log, const ReadPlan *plan, int64_t *offset) noexcept nogil:
    # Under the lock: how far the slice goes, or 0 when there is nothing to look for. A compaction may have replaced the
    # segment since the slice was planned; then everything stable will do.
    cdef int32_t i
    cdef int rc
    if not usable(log):
        return refusal(log)
    i = segment_of(log, plan.segment.base_offset)
    if log.segments[i] != plan.segment:
        return plan.last_stable_offset
    offset[0] = plan.segment.base_offset
    rc = open_txns(log, i)
    if rc != 0:
        return rc
    if i + 1 == log.segment_count and plan.segment.txn_index.count == 0:
        return 0
    return bound_of_slice(log, i, plan.position + plan.length)


cdef int log_collect_of_slice(Log *log, int64_t from_offset, const ReadPlan *plan, TxnIndex *out) noexcept nogil:
    cdef int64_t offset = from_offset
    cdef int64_t bound
    pthread_mutex_lock(&log.lock)
    bound = locate_slice(log, plan, &offset)
    pthread_mutex_unlock(&log.lock)
    if bound <= 0:
        return <int> bound
    return collect(log, offset, from_offset, bound, out)


cdef void confirm(Transactions *t, const AbortedTxn *txn) noexcept nogil:
    # Those of a scan ascend by marker.
    cdef int64_t low = 0
    cdef int64_t high = t.count
    cdef int64_t middle
    while low < high:
        middle = low + (high - low) // 2
        if t.aborted[middle].last_offset < txn.last_offset:
            low = middle + 1
        else:
            high = middle
    if low < t.count and t.aborted[low].last_offset == txn.last_offset and t.aborted[low].producer_id == txn.producer_id:
        t.aborted[low] = txn[0]


cdef int log_confirm_aborted(Log *log, Transactions *t) noexcept nogil:
    cdef Segment *s = NULL
    cdef int64_t offset = 0
    cdef int32_t i
    cdef int rc = 0
    if t.count > 0:
        offset = t.aborted[0].last_offset
    while rc == 0 and t.count > 0 and offset <= t.aborted[t.count - 1].last_offset:
        pthread_mutex_lock(&log.lock)
        rc = open_next(log, &offset, &s) if usable(log) else <int> NO_MORE
        if rc == 0:
            for i in range(s.txn_index.count):
                confirm(t, &s.txn_index.entries[i])
        pthread_mutex_unlock(&log.lock)
    return min(rc, 0)
