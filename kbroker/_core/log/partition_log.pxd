# partition_log: the log of one partition: append, read plan, roll, truncate, look-ups by time and epoch.
# Owns        its directory, the segments, producer state, leader-epoch cache; high watermark and log start offset.
# Called by   api/produce, api/fetch (network threads); the control side through the PartitionLog door, with nogil.
# Threads     any; one mutex per log. log_end_offset, high_watermark and log_start_offset may be read without it (acquire).
# Fails by    an Err code. A failed write or fsync puts the log and its directory (health) offline: KAFKA_STORAGE_ERROR from
#             then on, errno kept.
# Invariants  log_start_offset <= high_watermark <= log_end_offset; offsets only grow; what was acknowledged stays.
#
# This is the front door; the work is done in append, lookup, flush, upkeep, retention and recovery, and other rooms
# cimport their functions from here.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from kbroker._core.clock cimport Clock
# Appends the batches of one produced partition (a client sends exactly one). The bytes are stamped in place.
# On success log_end_offset has moved; the high watermark has not: that is the caller's decision (partitions).
from kbroker._core.log.append cimport append_begin, log_append, log_roll
from kbroker._core.log.flush cimport log_flush, log_flush_or_fail, log_flush_sealed
from kbroker._core.log.lookup cimport (
    log_end_offset_for_epoch, log_latest_epoch, log_offset_for_timestamp, log_offset_of_max_timestamp, log_read,
)
from kbroker._core.log.retention cimport log_raise_start, log_retire
from kbroker._core.log.segment cimport Segment
from kbroker._core.log.state cimport Append, AppendResult, Log, LogConfig, ReadPlan, TimestampOffset
from kbroker._core.log.upkeep cimport log_assign_epoch, log_close, log_truncate_to
from kbroker._core.log.verify cimport log_begin_verification, log_in_transaction, log_verifies
from kbroker._core.record.batch cimport BatchRules, Origin, Verdict
from kbroker._core.record.compression cimport Scratch

cdef int64_t log_end_offset(const Log *log) noexcept nogil
cdef int64_t log_start_offset(const Log *log) noexcept nogil
cdef int64_t log_high_watermark(const Log *log) noexcept nogil
cdef int64_t log_last_stable_offset(const Log *log) noexcept nogil
cdef bint log_awaits_sync(const Log *log) noexcept nogil         # flush.messages: log_flush comes before the acknowledgement
cdef int64_t log_settled_end(const Log *log) noexcept nogil     # how far this replica may acknowledge
cdef bint log_syncs(const Log *log) noexcept nogil              # whether appends may have to wait for the disk at all
cdef bint log_failed(const Log *log) noexcept nogil             # it is offline
cdef bint log_raise_high_watermark(Log *log, int64_t offset) noexcept nogil   # never lowers; True when it moved
cdef void log_retain(Log *log) noexcept nogil
cdef void log_release(Log *log) noexcept nogil

cdef class PartitionLog:
    cdef Log *log
    cdef object _clock
    cdef readonly str directory        # "": in memory
    cdef readonly bytes topic_id       # sixteen bytes, or empty
    cdef int be_fresh(self, int64_t start_offset, int64_t now_ms) except -1
    cdef int64_t now(self, object now_ms) except? -1
    cdef object found(self, TimestampOffset *out)
    cdef int checked(self, int rc) except -1
