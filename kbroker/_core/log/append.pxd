# append: batches come into a log: validated, numbered, written, indexed; segments roll.
# Called by   partition_log's door and, through it, partitions; recovery and upkeep for the smaller steps.
# Threads     log_append, log_roll: any. The others: under the log's lock.
# Fails by    an Err code. A write that failed is cut off again and puts the log offline, its errno kept.
from libc.stdint cimport int16_t, int32_t, int64_t
from kbroker._core.log.state cimport Append, AppendResult, Log
from kbroker._core.record.batch cimport Origin
from kbroker._core.record.compression cimport Scratch

# What flush.messages wants synced first is told by log_awaits_sync; the caller sees to it.
# At most APPENDS_AT_ONCE of them, each judged for itself and told in its `out`; those that are fit are written together.
cdef void log_append(Log *log, Append *appends, int32_t count, Origin origin, int32_t leader_epoch,
                     Scratch *scratch, int64_t now_ms) noexcept nogil
cdef void append_begin(AppendResult *out, int16_t error) noexcept nogil   # nothing has come of it but `error`
cdef int log_roll(Log *log, int64_t now_ms) noexcept nogil                # 0 or -errno; an empty active segment stays

cdef int roll(Log *log, int64_t base_offset, int64_t now_ms) noexcept nogil   # whatever the reason; past the active one's
cdef int push_segment(Log *log, int64_t base_offset, bint create, int64_t now_ms) noexcept nogil
cdef void forget_positions(Log *log) noexcept nogil                       # after a roll or a cut
