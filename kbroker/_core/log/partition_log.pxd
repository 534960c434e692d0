# partition_log: the log of one partition: append, read plan, roll, truncate, look-ups by time and epoch.
# Owns        its directory, the segments, producer state, leader-epoch cache; high watermark and log start offset.
# Called by   api/produce, api/fetch (network threads); the control side through the PartitionLog door, with nogil.
# Threads     any; one mutex per log. log_end_offset, high_watermark and log_start_offset may be read without it (acquire).
# Fails by    an Err code. A failed write or fsync puts the log offline: KAFKA_STORAGE_ERROR from then on, errno kept.
# Invariants  log_start_offset <= high_watermark <= log_end_offset; offsets only grow; what was acknowledged stays.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from kbroker._core.clock cimport Clock
from kbroker._core.log.segment cimport Segment
from kbroker._core.record.batch cimport BatchRules, Origin, Verdict
from kbroker._core.record.compression cimport Scratch

cdef struct LogConfig:
    BatchRules rules
    int32_t segment_bytes
    int32_t segment_index_bytes
    int32_t index_interval_bytes
    int64_t segment_ms
    int64_t segment_jitter_ms
    int64_t producer_id_expiration_ms
    int64_t flush_messages          # kept for the durability work; 2**63-1 = never
    int8_t preallocate

cdef struct Log                     # opaque outside log/

cdef struct AppendResult:
    int16_t error
    bint duplicate                  # a retry of one of the last five batches: base_offset is the original's
    bint needs_fallback             # nothing was appended: hand the request to the Python worker
    int64_t base_offset             # -1 on error
    int64_t last_offset
    int64_t log_append_time_ms      # -1 for CreateTime
    int64_t log_start_offset        # -1 when the error came before the log was looked at
    int32_t appended_bytes
    Verdict verdict                 # record errors and message

# What a reader gets: one slice of one segment. The reference in `segment` is the caller's to release (or hand to a chain).
cdef struct ReadPlan:
    int16_t error                   # NONE, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR
    Segment *segment                # NULL: nothing to read
    int64_t position
    int64_t length                  # whole batches, unless one batch alone passes max_bytes and at_least_one is false
    int64_t high_watermark          # of the same moment; -1 on error, as the others
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t log_end_offset

cdef struct TimestampOffset:
    int16_t error
    int64_t offset                  # -1: none
    int64_t timestamp
    int32_t leader_epoch

# Appends the batches of one produced partition (a client sends exactly one). The bytes are stamped in place.
# On success log_end_offset has moved; the high watermark has not: that is the caller's decision (partitions).
cdef void log_append(Log *log, uint8_t *records, int32_t length, Origin origin, int32_t leader_epoch,
                     const uint8_t *inflated, int64_t inflated_length,
                     Scratch *scratch, int64_t now_ms, AppendResult *out) noexcept nogil

# Whole batches from the one that holds `offset`, none at or past `bound` (high watermark, last stable offset or log end).
cdef void log_read(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint at_least_one, ReadPlan *out) noexcept nogil

cdef int64_t log_end_offset(const Log *log) noexcept nogil
cdef int64_t log_start_offset(const Log *log) noexcept nogil
cdef int64_t log_high_watermark(const Log *log) noexcept nogil
cdef int64_t log_last_stable_offset(const Log *log) noexcept nogil
cdef bint log_raise_high_watermark(Log *log, int64_t offset) noexcept nogil   # never lowers; True when it moved
cdef void log_offset_for_timestamp(Log *log, int64_t timestamp, TimestampOffset *out) noexcept nogil
cdef void log_offset_of_max_timestamp(Log *log, TimestampOffset *out) noexcept nogil
# OffsetForLeaderEpoch: (epoch, end offset), or (-1, -1).
cdef void log_end_offset_for_epoch(Log *log, int32_t epoch, int32_t *found_epoch, int64_t *end_offset) noexcept nogil
cdef int32_t log_latest_epoch(Log *log) noexcept nogil                        # -1: none yet
cdef void log_assign_epoch(Log *log, int32_t epoch) noexcept nogil            # on becoming leader: (epoch, log end offset)
cdef void log_retain(Log *log) noexcept nogil
cdef void log_release(Log *log) noexcept nogil

cdef class PartitionLog:
    cdef Log *log
    cdef object _clock
    cdef readonly str directory
