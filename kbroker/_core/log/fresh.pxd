# fresh: a log that has no files yet. A topic of many partitions is answered before all their directories are made: the
# first append makes its own, a worker the rest. Nothing is lost if the broker stops or dies before: the metadata log
# tells that the partition is there, and an empty log is what the next start makes of it.
# Owns        nothing.
# Called by   log/append (first write), the door (make).
# Threads     any, under the log's lock.
# Returns     0 or -errno; a log whose files cannot be made is offline, unless descriptors ran out.
from kbroker._core.log.state cimport Log

cdef int fresh_make(Log *log) noexcept nogil                  # nothing to do when the files are there
