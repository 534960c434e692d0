# Transactions of a log that have begun, and those whose coordinator is being asked.
from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker._core.c.prelude cimport load_int32
from kbroker._core.log.files cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker._core.log.producer_state cimport producers_in_transaction
from kbroker._core.log.verification cimport verification_begin


cdef bint log_in_transaction(Log *log, int64_t producer_id, int16_t producer_epoch) noexcept nogil:
    cdef bint found
    pthread_mutex_lock(&log.lock)
    found = producers_in_transaction(&log.producers, producer_id, producer_epoch)
    pthread_mutex_unlock(&log.lock)
    return found


cdef bint log_verifies(const Log *log) noexcept nogil:
    return load_int32(&log.config.verifies_transactions) != 0


cdef int64_t log_begin_verification(Log *log, int64_t producer_id, int16_t producer_epoch, int32_t sequence, bint adds,
                                    int64_t now_ms) noexcept nogil:
    cdef int64_t guard = NOTHING_TO_VERIFY
    pthread_mutex_lock(&log.lock)
    if not producers_in_transaction(&log.producers, producer_id, producer_epoch):
        guard = verification_begin(&log.verifications, producer_id, producer_epoch, sequence, adds, now_ms)
        if guard == 0:
            guard = NO_GUARD
    pthread_mutex_unlock(&log.lock)
    return guard
