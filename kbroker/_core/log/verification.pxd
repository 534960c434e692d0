# verification: transactions that a partition has been asked to take part in, and whose coordinator is being asked about it
# (KIP-890). From that question to the first batch an entry stands here with a guard, a number that is never given again.
# A marker, and the first batch itself, forget the entry: whoever comes with its guard afterwards was told of a transaction
# that is over, and is refused. But a marker of transaction version 2 leaves what its own epoch asks: that is the next one.
# Owns        its entries.
# Called by   log/verify (begin), log/append (look up, forget), log/upkeep (expiry).
# Threads     under the log's lock.
# Fails by    a guard of 0 when memory ran out.
# Invariants  at most VERIFICATIONS_PER_LOG_MAX entries: the oldest makes room.
from libc.stdint cimport int16_t, int32_t, int64_t
from kbroker._core.log.id_map cimport IdMap

cdef struct Verification:
    int64_t guard
    int64_t producer_id
    int64_t begun_ms
    int32_t lowest_sequence          # of all batches that asked: none may come before it
    int16_t producer_epoch
    bint adds                        # the client's protocol adds partitions by producing to them (transaction version 2)

cdef struct Verifications:
    Verification *entries            # 0..count, in no order
    int32_t count
    int32_t capacity
    int64_t last_guard
    IdMap places                     # producer id -> index into entries

cdef int64_t verification_begin(Verifications *v, int64_t producer_id, int16_t producer_epoch, int32_t sequence, bint adds,
                                int64_t now_ms) noexcept nogil
cdef Verification *verification_find(const Verifications *v, int64_t producer_id) noexcept nogil     # NULL: there is none
cdef void verification_forget(Verifications *v, int64_t producer_id) noexcept nogil
cdef void verifications_expire(Verifications *v, int64_t now_ms, int64_t expiration_ms) noexcept nogil
cdef void verifications_free(Verifications *v) noexcept nogil
