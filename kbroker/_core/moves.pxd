# moves: a live partition goes on with another log, the copy of its own in another data directory.
# Owns        the buffer between the two logs of one move.
# Called by   the control side's mover threads, with nogil.
# Threads     one at a time for a move; the swap takes the partition's lock, so an append or a fetch sees one log or the other.
# Invariants  what was appended before the swap is in both logs; what is appended after it is in the copy only, and the
#             source has lost its name by then, so that no start takes it for the partition.
from libc.stdint cimport int64_t
from kbroker._core.log.handover cimport Carrier
from kbroker._core.log.partition_log cimport PartitionLog

cdef class LogMove:
    cdef readonly PartitionLog source
    cdef readonly PartitionLog copy
    cdef Carrier carrier
    cdef object problem(self, int rc)
