# Guards of transactions that are being verified, by producer.
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from kbroker._core.limits cimport VERIFICATIONS_PER_LOG_MAX
from kbroker._core.log.id_map cimport IdSlot, ids_clear, ids_find, ids_put, ids_remove

cdef enum:
    FIRST_CAPACITY = 4


cdef Verification *verification_find(const Verifications *v, int64_t producer_id) noexcept nogil:
    cdef IdSlot *slot = ids_find(&v.places, producer_id) if v.count > 0 and producer_id >= 0 else NULL
    return &v.entries[slot.value] if slot != NULL else NULL


cdef void remove(Verifications *v, int32_t index) noexcept nogil:
    # The last entry takes the place that becomes free.
    cdef int32_t last = v.count - 1
    ids_remove(&v.places, ids_find(&v.places, v.entries[index].producer_id))
    if index != last:
        v.entries[index] = v.entries[last]
        ids_find(&v.places, v.entries[index].producer_id).value = index
    v.count = last


cdef void make_room(Verifications *v) noexcept nogil:
    cdef int32_t oldest = 0
    cdef int32_t i
    for i in range(1, v.count):
        if v.entries[i].guard < v.entries[oldest].guard:
            oldest = i
    remove(v, oldest)


cdef bint grow(Verifications *v) noexcept nogil:
    cdef int32_t capacity = 2 * v.capacity if v.capacity > 0 else FIRST_CAPACITY
    cdef void *moved = realloc(v.entries, capacity * sizeof(Verification))
    if moved == NULL:
        return False
    v.entries = <Verification *> moved
    v.capacity = capacity
    return True


cdef int64_t verification_begin(Verifications *v, int64_t producer_id, int16_t producer_epoch, int32_t sequence, bint adds,
                                int64_t now_ms) noexcept nogil:
    # Who asks again while the first is still asking shares its guard, as in Kafka.
    cdef Verification *entry = verification_find(v, producer_id)
    if entry != NULL:
        if producer_epoch > entry.producer_epoch:
            entry.producer_epoch = producer_epoch
            entry.lowest_sequence = sequence
        elif producer_epoch == entry.producer_epoch and sequence < entry.lowest_sequence:
            entry.lowest_sequence = sequence
        return entry.guard
    if producer_id < 0:                  # nobody's: its coordinator will say so, and the guard opens nothing
        v.last_guard += 1
        return v.last_guard
    if v.count >= VERIFICATIONS_PER_LOG_MAX:
        make_room(v)
    if (v.count == v.capacity and not grow(v)) or not ids_put(&v.places, producer_id, v.count):
        return 0
    v.last_guard += 1
    entry = &v.entries[v.count]
    v.count += 1
    entry.guard = v.last_guard
    entry.producer_id = producer_id
    entry.begun_ms = now_ms
    entry.lowest_sequence = sequence
    entry.producer_epoch = producer_epoch
    entry.adds = adds
    return entry.guard


cdef void verification_forget(Verifications *v, int64_t producer_id) noexcept nogil:
    cdef Verification *entry = verification_find(v, producer_id)
    if entry != NULL:
        remove(v, <int32_t> (entry - v.entries))


cdef void verifications_expire(Verifications *v, int64_t now_ms, int64_t expiration_ms) noexcept nogil:
    cdef int32_t i = 0
    while i < v.count:
        if now_ms - v.entries[i].begun_ms >= expiration_ms:
            remove(v, i)                 # the last one is now here: look again
        else:
            i += 1


cdef void verifications_free(Verifications *v) noexcept nogil:
    free(v.entries)
    ids_clear(&v.places)
    memset(v, 0, sizeof(Verifications))
