# swap: cleaned files take the place of the segments they were made of, so that a kill at any moment loses nothing.
# Called by   log/cleaner. log/leftovers finishes what a kill interrupted.
# Threads     any; swap_in takes the log's lock for its renames.
# Returns     0 or -errno. LOG_CHANGED: it is not the log it was, nothing was done. A swap that failed half-way puts the log
#             offline: the next start finishes it.
#
#   X.log.cleaned, X.index.cleaned, X.timeindex.cleaned        written and synced beside the log, which does not change; and
#                                                              X.txnindex.cleaned, where an aborted transaction is left
#   -> .swap, the log first                                    while a .cleaned is left, a start gives both up
#   the old segments' files -> .deleted, in ascending order    a later one may hold the tombstone of what an earlier holds
#   .swap -> the segment's own name, the log last
from libc.stdint cimport int32_t, int64_t
from kbroker._core.log.segment cimport Segment
from kbroker._core.log.state cimport Log

cdef enum:
    STOPPED = -2000000       # by `steps_left`; no errno is that large
    LOG_CHANGED = -2000001   # closed, offline or cut since

cdef int cleaned_create(Segment *s) noexcept nogil                # its log and two indexes, empty
cdef int cleaned_sync(Segment *s) noexcept nogil                  # indexes written, everything synced
cdef void cleaned_remove(const Segment *s) noexcept nogil         # the names, whatever they are by now
# `old` are neighbours, in order. On success they are released by the log, and `cleaned` belongs to it. `cuts` is the log's
# when its segments were first looked at. `steps_left`: files that may be renamed before it stops as a kill would stop it,
# for tests; -1: all.
cdef int swap_in(Log *log, Segment **old, int32_t count, Segment *cleaned, int64_t cuts, int32_t *steps_left) noexcept nogil
