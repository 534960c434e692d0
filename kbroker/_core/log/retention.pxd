# retention: the beginning of a log goes: it is too old, the log is too large, or someone asked for it.
# Called by   the door: log_retire by a worker of the control side, log_raise_start for DeleteRecords.
# Threads     any. The lock is held for one segment at a time: readers and writers get in between.
# Returns     0 or -errno; a log whose files cannot be renamed is offline.
# Invariants  log_start_offset <= high_watermark; the log has an active segment: before all of it goes, it is rolled.
#
# A rule only says up to where. Then whatever segment lies wholly below leaves the log, the oldest first: its files are
# renamed *.deleted, the .log first, and the start offset rises to the next one's. What a kill leaves of the other files is
# an orphan, which the next start removes with the *.deleted ones; nobody was told of a start that the next start does not
# find. Whoever reads the segment has a reference and a descriptor. The control side removes the files when
# file.delete.delay.ms is over.
#
# The order is Kafka's: what lies below the start, then by size, then by time. A segment is as old as its largest
# timestamp, or as the last change of its file when no record has one.
from libc.stdint cimport int64_t
from kbroker._core.log.directory cimport Offsets
from kbroker._core.log.state cimport Log

cdef int log_raise_start(Log *log, int64_t offset) noexcept nogil       # -ERANGE: past the high watermark. Never lowers
cdef int log_retire(Log *log, int64_t now_ms, Offsets *retired) noexcept nogil   # base offsets of what went
