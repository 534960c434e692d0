# Snappy, from the format description: a varint of the length, then literals and copies out of what was already written.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from kbroker._core.record.compression cimport NO_MEMORY, OVER_CAP, UNDECODABLE
from kbroker._core.record.scratch cimport Scratch, scratch_grow, scratch_reserve
from kbroker._core.wire.cursor cimport load_be32, store_be32

cdef enum:
    FRAMING_HEADER_BYTES = 16
    FRAMED_BLOCK_BYTES = 32768   # what the Java library writes by default
    TABLE_BITS = 13
    TABLE_SLOTS = 8192
    TAIL_BYTES = 15              # a fragment's end is not searched for matches: loads stay inside
    WORST_RATIO = 22             # a copy of 3 bytes gives at most 64
    SPARE_BYTES = 16             # literals and copies may write this much past their end

cdef extern from *:
    """
    static const char kb_xerial_magic[8] = {(char)0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};
    #define kb_trailing_zeroes(v) __builtin_ctzll(v)
    """
    const char *XERIAL_MAGIC "kb_xerial_magic"
    int trailing_zeroes "kb_trailing_zeroes"(uint64_t v) noexcept nogil


cdef inline uint32_t load32(const uint8_t *p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef inline uint64_t load64(const uint8_t *p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


cdef inline uint32_t load_le(const uint8_t *p, int count) noexcept nogil:
    cdef uint32_t v = 0
    while count > 0:
        count -= 1
        v = v << 8 | p[count]
    return v


cdef const uint8_t *read_length(const uint8_t *p, const uint8_t *end, uint32_t *length) noexcept nogil:
    # The block's claim about its output. The byte behind the varint, or NULL.
    cdef uint32_t byte
    cdef int shift = 0
    length[0] = 0
    while p < end and shift <= 28:
        byte = p[0]
        p += 1
        if shift == 28 and byte > 0x0f:
            return NULL
        length[0] |= (byte & 0x7f) << shift
        if byte < 0x80:
            return p
        shift += 7
    return NULL


cdef inline void copy_back(uint8_t *to, int64_t offset, int64_t length) noexcept nogil:
    # Source and target may overlap: a short offset repeats its pattern. At most SPARE_BYTES are written past the end.
    cdef const uint8_t *source = to - offset
    cdef uint8_t *end = to + length
    if offset >= 16:
        while True:
            memcpy(to, source, 16)
            to += 16
            source += 16
            if to >= end:
                return
    if offset >= 8:
        while True:
            memcpy(to, source, 8)
            to += 8
            source += 8
            if to >= end:
                return
    while to < end:
        to[0] = source[0]
        to += 1
        source += 1


cdef bint decode_block(const uint8_t *p, const uint8_t *end, uint8_t *out, int64_t length) noexcept nogil:
    # Exactly `length` bytes to `out`, which has SPARE_BYTES more behind them.
    cdef uint8_t *to = out
    cdef uint8_t *out_end = out + length
    cdef int64_t run
    cdef int64_t offset
    cdef uint8_t tag
    cdef int kind
    while p < end:
        tag = p[0]
        p += 1
        kind = tag & 3
        if kind == 0:
            run = (tag >> 2) + 1
            if run <= 16 and end - p >= 16 and out_end - to >= run:
                memcpy(to, p, 16)
                p += run
                to += run
                continue
            if run > 60:
                kind = <int> (run - 60)
                if end - p < kind:
                    return False
                run = <int64_t> load_le(p, kind) + 1
                p += kind
            if end - p < run or out_end - to < run:
                return False
            memcpy(to, p, run)
            p += run
            to += run
            continue
        if kind == 1:
            if p >= end:
                return False
            run = 4 + ((tag >> 2) & 7)
            offset = (<int64_t> (tag >> 5) << 8) | p[0]
            p += 1
        else:
            run = (tag >> 2) + 1
            kind = 2 if kind == 2 else 4
            if end - p < kind:
                return False
            offset = load_le(p, kind)
            p += kind
        if offset == 0 or offset > to - out or run > out_end - to:
            return False
        copy_back(to, offset, run)
        to += run
    return to == out_end


cdef int64_t inflate_block(const uint8_t *data, int64_t length, Scratch *out, int64_t used,
                           int64_t cap_bytes) noexcept nogil:
    # One raw block behind the `used` bytes; the new end. A claim that no block of this size can keep is refused unread.
    cdef uint32_t claimed
    cdef const uint8_t *p = read_length(data, data + length, &claimed)
    if p == NULL or claimed > WORST_RATIO * length:
        return UNDECODABLE
    if used + claimed > cap_bytes:
        return OVER_CAP
    if not scratch_grow(out, used + claimed + SPARE_BYTES, cap_bytes + SPARE_BYTES):
        return NO_MEMORY
    if not decode_block(p, data + length, out.data + used, claimed):
        return UNDECODABLE
    return used + claimed


cdef inline bint framing_header(const uint8_t *p, const uint8_t *end) noexcept nogil:
    return end - p >= FRAMING_HEADER_BYTES and memcmp(p, XERIAL_MAGIC, 8) == 0


cdef int64_t snappy_inflate(const uint8_t *data, int64_t length, Scratch *out, int64_t cap_bytes) noexcept nogil:
    cdef const uint8_t *p = data
    cdef const uint8_t *end = data + length
    cdef int64_t used = 0
    cdef int64_t piece
    if not framing_header(p, end):
        return inflate_block(data, length, out, 0, cap_bytes)
    p += FRAMING_HEADER_BYTES
    while end - p >= 4:
        if framing_header(p, end):
            p += FRAMING_HEADER_BYTES
            continue
        piece = <int32_t> load_be32(p)
        p += 4
        if piece <= 0 or piece > end - p:
            return UNDECODABLE
        used = inflate_block(p, piece, out, used, cap_bytes)
        if used < 0:
            return used
        p += piece
    return used


cdef inline uint8_t *emit_literal(uint8_t *to, const uint8_t *from_, int64_t length) noexcept nogil:
    cdef uint32_t n = <uint32_t> (length - 1)
    if length == 0:
        return to
    if n < 60:
        to[0] = <uint8_t> (n << 2)
        to += 1
    elif n < 256:
        to[0] = 60 << 2
        to[1] = <uint8_t> n
        to += 2
    else:
        to[0] = 61 << 2
        to[1] = <uint8_t> n
        to[2] = <uint8_t> (n >> 8)
        to += 3
    memcpy(to, from_, length)
    return to + length


cdef inline uint8_t *emit_copy_piece(uint8_t *to, uint32_t offset, int64_t length) noexcept nogil:
    # 4..64 bytes.
    if length < 12 and offset < 2048:
        to[0] = <uint8_t> (1 | (length - 4) << 2 | (offset >> 8) << 5)
        to[1] = <uint8_t> offset
        return to + 2
    to[0] = <uint8_t> (2 | (length - 1) << 2)
    to[1] = <uint8_t> offset
    to[2] = <uint8_t> (offset >> 8)
    return to + 3


cdef inline uint8_t *emit_copy(uint8_t *to, uint32_t offset, int64_t length) noexcept nogil:
    while length >= 68:
        to = emit_copy_piece(to, offset, 64)
        length -= 64
    if length > 64:              # never leave a piece shorter than four bytes
        to = emit_copy_piece(to, offset, 60)
        length -= 60
    return emit_copy_piece(to, offset, length)


cdef inline uint32_t slot_of(uint32_t word) noexcept nogil:
    return (word * 0x1e35a7bdu) >> (32 - TABLE_BITS)


cdef inline int64_t match_length(const uint8_t *a, const uint8_t *b, const uint8_t *end) noexcept nogil:
    # How far b[0:] agrees with a[0:]; b runs to `end`, a lies before it.
    cdef const uint8_t *start = b
    cdef uint64_t difference
    while end - b >= 8:
        difference = load64(a) ^ load64(b)
        if difference != 0:
            return b - start + (trailing_zeroes(difference) >> 3)
        a += 8
        b += 8
    while b < end and a[0] == b[0]:
        a += 1
        b += 1
    return b - start


cdef uint8_t *encode_fragment(const uint8_t *data, int64_t length, uint8_t *to, uint16_t *table) noexcept nogil:
    # At most 64 KiB, so that a table entry fits two bytes. Where nothing matches the search takes longer strides.
    cdef const uint8_t *p = data
    cdef const uint8_t *end = data + length
    cdef const uint8_t *limit
    cdef const uint8_t *candidate
    cdef const uint8_t *pending = data       # not yet emitted
    cdef uint32_t slot
    cdef uint32_t misses = 32
    cdef int64_t run
    memset(table, 0, TABLE_SLOTS * sizeof(uint16_t))
    if length > TAIL_BYTES:
        limit = end - TAIL_BYTES
        p += 1
        while p < limit:
            slot = slot_of(load32(p))
            candidate = data + table[slot]
            table[slot] = <uint16_t> (p - data)
            if load32(candidate) != load32(p):
                p += misses >> 5
                misses += 1
                continue
            misses = 32
            to = emit_literal(to, pending, p - pending)
            run = 4 + match_length(candidate + 4, p + 4, end)
            to = emit_copy(to, <uint32_t> (p - candidate), run)
            p += run
            pending = p
            if p < limit:
                table[slot_of(load32(p - 1))] = <uint16_t> (p - 1 - data)
    return emit_literal(to, pending, end - pending)


cdef int64_t snappy_deflate(const uint8_t *data, int64_t length, Scratch *out, int64_t offset) noexcept nogil:
    cdef uint16_t table[TABLE_SLOTS]
    cdef int64_t blocks = (length + FRAMED_BLOCK_BYTES - 1) // FRAMED_BLOCK_BYTES
    cdef uint8_t *to
    cdef uint8_t *block
    cdef int64_t piece
    cdef uint32_t n
    # A block grows by a sixth at worst, and by its length fields.
    if not scratch_reserve(out, offset + FRAMING_HEADER_BYTES + length + length // 6 + 40 * blocks):
        return NO_MEMORY
    to = out.data + offset
    memcpy(to, XERIAL_MAGIC, 8)
    store_be32(to + 8, 1)
    store_be32(to + 12, 1)
    to += FRAMING_HEADER_BYTES
    while length > 0:
        piece = min(length, <int64_t> FRAMED_BLOCK_BYTES)
        block = to
        to += 4
        n = <uint32_t> piece
        while n >= 0x80:
            to[0] = <uint8_t> (n | 0x80)
            to += 1
            n >>= 7
        to[0] = <uint8_t> n
        to = encode_fragment(data, piece, to + 1, table)
        store_be32(block, <uint32_t> (to - block - 4))
        data += piece
        length -= piece
    return to - (out.data + offset)
