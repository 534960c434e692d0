# Open addressing with linear probing; a removal moves what probed past it, so there are no tombstones.
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

cdef enum:
    FIRST_SLOTS = 16


cdef inline int64_t home_of(const IdMap *m, int64_t id) noexcept nogil:
    return <int64_t> ((<uint64_t> id * 0x9e3779b97f4a7c15ULL) >> 20) & m.mask


cdef void ids_clear(IdMap *m) noexcept nogil:
    free(m.slots)
    m.slots = NULL
    m.mask = 0
    m.count = 0


cdef inline int64_t slot_of(const IdMap *m, int64_t id) noexcept nogil:
    cdef int64_t i = home_of(m, id)
    while m.slots[i].id != id and m.slots[i].id >= 0:
        i = (i + 1) & m.mask
    return i


cdef IdSlot *ids_find(const IdMap *m, int64_t id) noexcept nogil:
    cdef int64_t i
    if m.slots == NULL:
        return NULL
    i = slot_of(m, id)
    return &m.slots[i] if m.slots[i].id == id else NULL


cdef bint grow(IdMap *m) noexcept nogil:
    cdef IdMap larger
    cdef int64_t i
    cdef int64_t size = 2 * (m.mask + 1) if m.slots != NULL else <int64_t> FIRST_SLOTS
    larger.slots = <IdSlot *> malloc(size * sizeof(IdSlot))
    if larger.slots == NULL:
        return False
    larger.mask = size - 1
    larger.count = m.count
    for i in range(size):
        larger.slots[i].id = -1
    if m.slots != NULL:
        for i in range(m.mask + 1):
            if m.slots[i].id >= 0:
                larger.slots[slot_of(&larger, m.slots[i].id)] = m.slots[i]
        free(m.slots)
    m[0] = larger
    return True


cdef bint ids_put(IdMap *m, int64_t id, int64_t value) noexcept nogil:
    cdef int64_t i
    if (m.slots == NULL or 2 * m.count > m.mask) and not grow(m):
        return False
    i = slot_of(m, id)
    if m.slots[i].id < 0:
        m.count += 1
    m.slots[i].id = id
    m.slots[i].value = value
    return True


cdef void ids_remove(IdMap *m, IdSlot *slot) noexcept nogil:
    cdef int64_t hole = slot - m.slots
    cdef int64_t i = hole
    cdef int64_t home
    m.count -= 1
    while True:
        i = (i + 1) & m.mask
        if m.slots[i].id < 0:
            break
        home = home_of(m, m.slots[i].id)
        if ((i - home) & m.mask) >= ((i - hole) & m.mask):
            m.slots[hole] = m.slots[i]
            hole = i
    m.slots[hole].id = -1
