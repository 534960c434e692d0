# fresh: a log that has no files yet. A topic of many partitions is answered before all their directories are made: the
# first append makes its own, a worker the rest. Nothing is lost if the broker stops or dies before: the metadata log
# tells that the partition is there, and an empty log is what the next start makes of it.
# Owns        the writing of partition.metadata.
# Called by   log/append (first write), the door (make, and the id of a directory that has none).
# Threads     any; fresh_make under the log's lock.
# Returns     0 or -errno; a log whose files cannot be made is offline, unless descriptors ran out.
from kbroker._core.log.state cimport Log

cdef int fresh_make(Log *log) noexcept nogil                  # nothing to do when the files are there
# Into partition.metadata, whole or not at all; an empty id is not written.
cdef int write_topic_id(const char *directory, const char *topic_id_text) noexcept nogil
