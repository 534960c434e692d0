# upkeep: what happens to a log besides appends and reads: the end is cut, it is closed. Its beginning is retention's.
# Called by   the door, log/retention; later replication.
# Threads     any.
# Returns     0 or -errno; a log that could not finish a cut is offline.
from libc.stdint cimport int32_t, int64_t
from kbroker._core.log.state cimport Log

cdef int log_truncate_to(Log *log, int64_t offset, int64_t now_ms) noexcept nogil     # ends at the batch that holds it
# A second time does nothing. Without `sync` nothing is written, so it cannot fail: the log is to be deleted.
cdef int log_close(Log *log, bint sync) noexcept nogil
cdef void log_assign_epoch(Log *log, int32_t epoch) noexcept nogil
cdef void log_expire_producers(Log *log, int64_t now_ms) noexcept nogil

# Under the lock: out of the list. The bytes stay for as long as someone reads them.
cdef void forget_segment(Log *log, int32_t index) noexcept nogil
