# writer: output that grows as it is written.
# Owns        its data, until close_writer.
# Called by   the plan walker's writing half, under the GIL.
# Fails by    MemoryError; the writer stays whole and must still be closed.
# Invariants  used <= capacity; a pointer from room() stands until the next room().
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy
from kbroker._core.wire.cursor cimport store_be16, store_be32, store_be64

cdef struct Writer:
    uint8_t *data
    int64_t used
    int64_t capacity


cdef inline int open_writer(Writer *w, int64_t capacity) except -1:
    w.used = 0
    w.capacity = capacity
    w.data = <uint8_t *> malloc(capacity)
    if w.data == NULL:
        raise MemoryError
    return 0

cdef inline void close_writer(Writer *w) noexcept:
    free(w.data)
    w.data = NULL

cdef inline int grow(Writer *w, int64_t count) except -1:
    cdef int64_t capacity = 2 * w.capacity + count
    cdef uint8_t *data = <uint8_t *> realloc(w.data, capacity)
    if data == NULL:
        raise MemoryError
    w.data = data
    w.capacity = capacity
    return 0

cdef inline uint8_t *room(Writer *w, int64_t count) except NULL:
    if w.capacity - w.used < count:
        grow(w, count)
    cdef uint8_t *p = w.data + w.used
    w.used += count
    return p

cdef inline int put_run(Writer *w, const void *data, int64_t length) except -1:
    memcpy(room(w, length), data, length)
    return 0

cdef inline int put_int8(Writer *w, int8_t value) except -1:
    room(w, 1)[0] = <uint8_t> value
    return 0

cdef inline int put_int16(Writer *w, int16_t value) except -1:
    store_be16(room(w, 2), value)
    return 0

cdef inline int put_int32(Writer *w, int32_t value) except -1:
    store_be32(room(w, 4), value)
    return 0

cdef inline int put_int64(Writer *w, int64_t value) except -1:
    store_be64(room(w, 8), value)
    return 0

cdef inline int uvarint_length(uint32_t value) noexcept:
    cdef int length = 1
    while value >= 0x80:
        value >>= 7
        length += 1
    return length

cdef inline void store_uvarint(uint8_t *p, uint32_t value) noexcept:
    while value >= 0x80:
        p[0] = <uint8_t> (value | 0x80)
        p += 1
        value >>= 7
    p[0] = <uint8_t> value

cdef inline int put_uvarint(Writer *w, uint32_t value) except -1:
    store_uvarint(room(w, uvarint_length(value)), value)
    return 0
