# verify: what a log says of a producer's transaction before a batch of it is appended.
# Called by   partitions.
# Threads     any; the log's lock is taken.
from libc.stdint cimport int16_t, int32_t, int64_t
from kbroker._core.log.state cimport Log

cdef enum:
    NOTHING_TO_VERIFY = 0        # the transaction has begun here: its coordinator was asked then
    NO_GUARD = -1                # no memory

# Whether the producer's transaction, of this epoch, has begun in this log.
cdef bint log_in_transaction(Log *log, int64_t producer_id, int16_t producer_epoch) noexcept nogil
cdef bint log_verifies(const Log *log) noexcept nogil            # transaction.partition.verification.enable
# A guard to append the first batch with, once the coordinator knows of it.
cdef int64_t log_begin_verification(Log *log, int64_t producer_id, int16_t producer_epoch, int32_t sequence, bint adds,
                                    int64_t now_ms) noexcept nogil
