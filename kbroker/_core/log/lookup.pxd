# lookup: where things are in a log: the slice for a fetch, an offset for a time, the end of an epoch.
# Called by   api/fetch through partitions, the control side through the door.
# Threads     any. log_read holds the lock for its few reads of headers; a look-up by time reads batches without it.
# Fails by    an Err code in the answer.
from libc.stdint cimport int32_t, int64_t
from kbroker._core.log.segment cimport Segment
from kbroker._core.log.state cimport Log, ReadPlan, TimestampOffset

# Whole batches from the one that holds `offset`, none at or past `bound` (high watermark, last stable offset or log end).
cdef void log_read(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint at_least_one, ReadPlan *out) noexcept nogil
# The first record with a timestamp >= `timestamp`.
cdef void log_offset_for_timestamp(Log *log, int64_t timestamp, TimestampOffset *out) noexcept nogil
# The first record that carries the largest timestamp, deleted ones of the first segment included.
cdef void log_offset_of_max_timestamp(Log *log, TimestampOffset *out) noexcept nogil
# OffsetForLeaderEpoch: (epoch, end offset), or (-1, -1).
cdef void log_end_offset_for_epoch(Log *log, int32_t epoch, int32_t *found_epoch, int64_t *end_offset) noexcept nogil
cdef int32_t log_latest_epoch(Log *log) noexcept nogil                        # -1: none yet

# Under the lock: the segment that may hold `offset`, and the position in it of the first batch that ends at or after it
# (its size when there is none); -errno.
cdef int32_t segment_of(const Log *log, int64_t offset) noexcept nogil
cdef int64_t position_of(Log *log, int32_t segment, int64_t offset) noexcept nogil
cdef int load_max_timestamp(Log *log, Segment *s) noexcept nogil             # when it is not known yet
