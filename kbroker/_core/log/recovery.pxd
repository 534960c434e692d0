# recovery: a directory becomes a log again.
# Called by   the door (open), log/upkeep (producer state after a cut).
# Threads     the opener's, before anyone else knows the log; reload_producers under the lock.
# Returns     0 or -errno. What was given up or rebuilt stands in log.notes, for the Python side to tell.
#
# After a clean stop the files are believed: names and sizes are listed, only the headers behind the last index entry of
# the last segment are read. Otherwise every segment that reaches past the recovery point is read through, checksums and
# order of offsets checked, its indexes made anew; at the first bad byte the log is cut and later segments go.
# Producer state is the newest good snapshot and a replay of the batch headers behind it.
from libc.stdint cimport int64_t
from kbroker._core.log.state cimport Log

cdef int open_directory(Log *log, bint clean, int64_t recovery_point, int64_t log_start_offset, int64_t now_ms) noexcept nogil
cdef int reload_producers(Log *log, bint replay_all, int64_t now_ms) noexcept nogil
