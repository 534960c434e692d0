# leftovers: what an interrupted deletion, compaction or replacement left in a log's directory.
# Called by   log/recovery, before the directory is listed.
# Returns     0 or -errno.
#
# A cleaner writes X.log.cleaned, renames it X.log.swap, renames the segments it replaces X.log.deleted, and at last
# renames .swap away. So `.cleaned` was never part of the log and goes; `.deleted` no longer is and goes; a `.swap` is
# whole and replaces every segment that begins within its range; one that is not, beside the first it would replace, was
# damaged later and goes. Where a `.cleaned` lies at or before a `.swap`, an
# oversized segment was being split and not all parts were ready: then the swaps go and the originals stay.
#
# Indexes, snapshots and the epochs' checkpoint can be made anew: what has the name of one and is no file loses it.
# *displaced counts those.
from libc.stdint cimport int32_t

cdef int clear_leftovers(const char *directory, int32_t *displaced) noexcept nogil
