# flush: what was appended reaches the disk.
# Called by   the door (flush, close), log/append when flush.messages says so; later the io threads.
# Threads     any. The syncs themselves run without the lock: appends and reads go on.
# Returns     0 or -errno; a sync that failed puts the log and its directory offline, since the pages may be lost without a further
#             word. Without descriptors (EMFILE, ENFILE) nothing was synced amiss, and it may be tried again.
#
# A log without new records has nothing to lose and is not synced: an empty file, or an epoch that no batch carries, is
# made again by whoever leads next.
from kbroker._core.log.state cimport Log

cdef int log_flush(Log *log) noexcept nogil      # afterwards recovery_point >= the end offset of when it was called
cdef int log_flush_sealed(Log *log) noexcept nogil   # all but the active segment, so that a kill leaves only that to be scanned
# The same for whoever must know how it ended: it waits a while for descriptors, and then gives the log up.
cdef int log_flush_or_fail(Log *log) noexcept nogil
