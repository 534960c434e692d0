# cursor: bounded reads of big-endian wire data where it lies.
# Owns        nothing; a Cursor points into someone's buffer and carries its end.
# Called by   every hand-written reader (api/produce, api/fetch, record, log) and the plan walker's C half.
# Threads     any; a Cursor belongs to one stack frame.
# Fails by    the sticky `truncated` flag: reads past the end give 0 and leave the cursor at its end, so a reader checks
#             once per frame instead of once per field. Counts and lengths are checked against the bytes that remain.
# Never raises, never takes the GIL, never allocates.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #define kb_bswap16 __builtin_bswap16
    #define kb_bswap32 __builtin_bswap32
    #define kb_bswap64 __builtin_bswap64
    """
    uint16_t kb_bswap16(uint16_t v) noexcept nogil
    uint32_t kb_bswap32(uint32_t v) noexcept nogil
    uint64_t kb_bswap64(uint64_t v) noexcept nogil

cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end
    bint truncated


cdef inline uint16_t load_be16(const uint8_t *p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return kb_bswap16(v)

cdef inline uint32_t load_be32(const uint8_t *p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return kb_bswap32(v)

cdef inline uint64_t load_be64(const uint8_t *p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return kb_bswap64(v)

cdef inline void store_be16(uint8_t *p, uint16_t v) noexcept nogil:
    v = kb_bswap16(v)
    memcpy(p, &v, 2)

cdef inline void store_be32(uint8_t *p, uint32_t v) noexcept nogil:
    v = kb_bswap32(v)
    memcpy(p, &v, 4)

cdef inline void store_be64(uint8_t *p, uint64_t v) noexcept nogil:
    v = kb_bswap64(v)
    memcpy(p, &v, 8)


cdef inline Cursor cursor_over(const uint8_t *data, int64_t length) noexcept nogil:
    cdef Cursor c
    c.at = data
    c.end = data + length
    c.truncated = False
    return c

cdef inline int64_t remaining(const Cursor *c) noexcept nogil:
    return c.end - c.at

cdef inline void fail(Cursor *c) noexcept nogil:
    c.truncated = True
    c.at = c.end

cdef inline const uint8_t *take_bytes(Cursor *c, int64_t length) noexcept nogil:
    # NULL and truncated when fewer bytes remain or the length is negative.
    cdef const uint8_t *p = c.at
    if length < 0 or c.end - p < length:
        fail(c)
        return NULL
    c.at = p + length
    return p

cdef inline int8_t take_int8(Cursor *c) noexcept nogil:
    cdef const uint8_t *p = take_bytes(c, 1)
    return <int8_t> p[0] if p != NULL else 0

cdef inline int16_t take_int16(Cursor *c) noexcept nogil:
    cdef const uint8_t *p = take_bytes(c, 2)
    return <int16_t> load_be16(p) if p != NULL else 0

cdef inline int32_t take_int32(Cursor *c) noexcept nogil:
    cdef const uint8_t *p = take_bytes(c, 4)
    return <int32_t> load_be32(p) if p != NULL else 0

cdef inline int64_t take_int64(Cursor *c) noexcept nogil:
    cdef const uint8_t *p = take_bytes(c, 8)
    return <int64_t> load_be64(p) if p != NULL else 0

cdef inline uint32_t take_uvarint(Cursor *c) noexcept nogil:
    # At most five bytes; a fifth byte that does not fit in 32 bits is a broken frame.
    cdef uint32_t value = 0
    cdef uint32_t byte
    cdef int shift = 0
    while shift <= 28:
        if c.at >= c.end:
            fail(c)
            return 0
        byte = c.at[0]
        c.at += 1
        if shift == 28 and byte > 0x0f:
            fail(c)
            return 0
        value |= (byte & 0x7f) << shift
        if not byte & 0x80:
            return value
        shift += 7
    fail(c)
    return 0

cdef inline uint64_t take_uvarlong(Cursor *c) noexcept nogil:
    cdef uint64_t value = 0
    cdef uint64_t byte
    cdef int shift = 0
    while shift <= 63:
        if c.at >= c.end:
            fail(c)
            return 0
        byte = c.at[0]
        c.at += 1
        if shift == 63 and byte > 1:
            fail(c)
            return 0
        value |= (byte & 0x7f) << shift
        if not byte & 0x80:
            return value
        shift += 7
    fail(c)
    return 0

cdef inline int32_t take_varint(Cursor *c) noexcept nogil:
    cdef uint32_t v = take_uvarint(c)
    return <int32_t> ((v >> 1) ^ (0 - (v & 1)))

cdef inline int64_t take_varlong(Cursor *c) noexcept nogil:
    cdef uint64_t v = take_uvarlong(c)
    return <int64_t> ((v >> 1) ^ (0 - (v & 1)))

cdef inline const uint8_t *take_string(Cursor *c, bint flexible, int32_t *length) noexcept nogil:
    # A (nullable) string; NULL with length -1 for null, NULL with the flag up when broken.
    if flexible:
        length[0] = <int32_t> take_uvarint(c) - 1
    else:
        length[0] = take_int16(c)
    if c.truncated or length[0] < 0:
        length[0] = -1
        return NULL
    return take_bytes(c, length[0])

cdef inline const uint8_t *take_blob(Cursor *c, bint flexible, int32_t *length) noexcept nogil:
    # (Nullable) bytes or records; as take_string but with a 32-bit length.
    if flexible:
        length[0] = <int32_t> take_uvarint(c) - 1
    else:
        length[0] = take_int32(c)
    if c.truncated or length[0] < 0:
        length[0] = -1
        return NULL
    return take_bytes(c, length[0])

cdef inline int32_t take_count(Cursor *c, bint flexible, int32_t element_min_bytes) noexcept nogil:
    # An array's count; -1 for null. More elements than the remaining bytes can hold is a broken frame.
    cdef int64_t count
    if flexible:
        count = <int64_t> take_uvarint(c) - 1
    else:
        count = take_int32(c)
    if c.truncated or count < 0:
        return -1
    if count * element_min_bytes > remaining(c):
        fail(c)
        return -1
    return <int32_t> count

cdef inline void skip_tags(Cursor *c) noexcept nogil:
    # Unknown tagged fields are skipped by their size and never kept.
    cdef uint32_t count = take_uvarint(c)
    if count > remaining(c):
        fail(c)
        return
    while count > 0 and not c.truncated:
        take_uvarint(c)
        take_bytes(c, take_uvarint(c))
        count -= 1
