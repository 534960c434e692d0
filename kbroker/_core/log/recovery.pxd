# recovery: a directory becomes a log again.
# Called by   the door (open).
# Threads     the opener's, before anyone else knows the log.
# Returns     0 or -errno. What was given up or rebuilt stands in log.notes, for the Python side to tell.
#
# After a clean stop the files are believed: names and sizes are listed, only the headers behind the last index entry of
# the last segment are read. Otherwise every segment that reaches past the recovery point is read through, checksums and
# order of offsets checked; its indexes, the producers and what was aborted are made anew on the way. Bad bytes at the
# end of the log are cut off. Bad bytes with records behind them, in a later segment, are not ours to give up: the log is not
# opened (ADR 0009).
from libc.stdint cimport int64_t
from kbroker._core.log.state cimport Log

cdef enum:
    LOG_DAMAGED = -2000002   # no errno is that large; the last note says where

cdef int open_directory(Log *log, bint clean, int64_t recovery_point, int64_t log_start_offset, int64_t now_ms) noexcept nogil
