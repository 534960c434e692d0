# Kafka's LZ4 frames. See the .pxd for what they are and are not.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kbroker._core.record.compression cimport NO_MEMORY, OVER_CAP, UNDECODABLE
from kbroker._core.record.scratch cimport Scratch, scratch_grow, scratch_reserve

cdef enum:
    FLG_KAFKA = 0x60             # version 1, independent blocks: what we write
    FLG_FORBIDDEN = 0x03         # a reserved bit, and the dictionary id that Kafka does not read
    FLG_CONTENT_CHECKSUM = 0x04
    FLG_CONTENT_SIZE = 0x08
    FLG_BLOCK_CHECKSUMS = 0x10
    FLG_INDEPENDENT = 0x20
    BD_64_KIB = 0x40
    BLOCK_BYTES_WRITTEN = 65536
    HEADER_BYTES_WRITTEN = 7
    WORST_RATIO = 255            # no LZ4 block inflates further than this

cdef enum:
    PRIME_1 = 0x9E3779B1u
    PRIME_2 = 0x85EBCA77u
    PRIME_3 = 0xC2B2AE3Du
    PRIME_4 = 0x27D4EB2Fu
    PRIME_5 = 0x165667B1u


cdef inline uint32_t load_le32(const uint8_t *p) noexcept nogil:
    return <uint32_t> p[0] | <uint32_t> p[1] << 8 | <uint32_t> p[2] << 16 | <uint32_t> p[3] << 24


cdef inline void store_le32(uint8_t *p, uint32_t v) noexcept nogil:
    p[0] = <uint8_t> v
    p[1] = <uint8_t> (v >> 8)
    p[2] = <uint8_t> (v >> 16)
    p[3] = <uint8_t> (v >> 24)


cdef inline uint32_t rotl(uint32_t v, int by) noexcept nogil:
    return v << by | v >> (32 - by)


cdef inline uint32_t stir(uint32_t lane, const uint8_t *p) noexcept nogil:
    return rotl(lane + load_le32(p) * <uint32_t> PRIME_2, 13) * <uint32_t> PRIME_1


cdef uint32_t xxh32(const uint8_t *data, int64_t length) noexcept nogil:
    # XXH32 with seed 0.
    cdef const uint8_t *p = data
    cdef const uint8_t *end = data + length
    cdef uint32_t a = <uint32_t> PRIME_1 + <uint32_t> PRIME_2
    cdef uint32_t b = PRIME_2
    cdef uint32_t c = 0
    cdef uint32_t d = 0 - <uint32_t> PRIME_1
    cdef uint32_t h
    if length >= 16:
        while end - p >= 16:
            a = stir(a, p)
            b = stir(b, p + 4)
            c = stir(c, p + 8)
            d = stir(d, p + 12)
            p += 16
        h = rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18)
    else:
        h = PRIME_5
    h += <uint32_t> length
    while end - p >= 4:
        h = rotl(h + load_le32(p) * <uint32_t> PRIME_3, 17) * <uint32_t> PRIME_4
        p += 4
    while p < end:
        h = rotl(h + p[0] * <uint32_t> PRIME_5, 11) * <uint32_t> PRIME_1
        p += 1
    h = (h ^ (h >> 15)) * <uint32_t> PRIME_2
    h = (h ^ (h >> 13)) * <uint32_t> PRIME_3
    return h ^ (h >> 16)


cdef bint open_frame(const uint8_t *data, int64_t length, FrameWalk *walk) noexcept nogil:
    cdef uint8_t flags
    cdef uint8_t sizes
    cdef int described = 2
    if length < HEADER_BYTES_WRITTEN or load_le32(data) != 0x184D2204u:
        return False
    flags = data[4]
    sizes = data[5]
    if flags >> 6 != 1 or flags & FLG_FORBIDDEN or not flags & FLG_INDEPENDENT:
        return False
    if sizes & 0x8f or sizes >> 4 < 4:
        return False
    if flags & FLG_CONTENT_SIZE:
        described += 8
    if length < 4 + described + 1 or data[4 + described] != <uint8_t> (xxh32(data + 4, described) >> 8):
        return False
    walk.at = data + 4 + described + 1
    walk.end = data + length
    walk.block_checksums = (flags & FLG_BLOCK_CHECKSUMS) != 0
    walk.content_checksum = (flags & FLG_CONTENT_CHECKSUM) != 0
    walk.block_max_bytes = 1 << (8 + 2 * (sizes >> 4))
    return True


cdef int next_block(FrameWalk *walk) noexcept nogil:
    cdef uint32_t word
    cdef int64_t needed
    if walk.end - walk.at < 4:
        return LZ4_BLOCK_BROKEN
    word = load_le32(walk.at)
    walk.at += 4
    walk.block_compressed = not word >> 31
    word &= 0x7fffffffu
    if word == 0:
        return LZ4_BLOCK_BROKEN if walk.content_checksum and walk.end - walk.at < 4 else LZ4_BLOCK_END
    if word > <uint32_t> walk.block_max_bytes:
        return LZ4_BLOCK_BROKEN
    needed = <int64_t> word + (4 if walk.block_checksums else 0)
    if walk.end - walk.at < needed:
        return LZ4_BLOCK_BROKEN
    walk.block = walk.at
    walk.block_length = <int32_t> word
    if walk.block_checksums and load_le32(walk.at + word) != xxh32(walk.block, word):
        return LZ4_BLOCK_BROKEN
    walk.at += needed
    return LZ4_BLOCK_FOUND


cdef int64_t inflate_frame(block_decoder decode, const uint8_t *data, int64_t length, Scratch *out,
                           int64_t cap_bytes) noexcept nogil:
    cdef FrameWalk walk
    cdef int64_t used = 0
    cdef int64_t room
    cdef int step
    cdef int got
    if not open_frame(data, length, &walk):
        return UNDECODABLE
    while True:
        step = next_block(&walk)
        if step != LZ4_BLOCK_FOUND:
            return used if step == LZ4_BLOCK_END else UNDECODABLE
        room = walk.block_length
        if walk.block_compressed:
            room = min(<int64_t> walk.block_max_bytes, room * WORST_RATIO + 16)
        if not scratch_grow(out, used + room, cap_bytes + walk.block_max_bytes):
            return NO_MEMORY
        if walk.block_compressed:
            got = decode(<const char *> walk.block, <char *> out.data + used, walk.block_length, <int> room)
            if got < 0:
                return UNDECODABLE
        else:
            memcpy(out.data + used, walk.block, room)
            got = walk.block_length
        used += got
        if used > cap_bytes:
            return OVER_CAP


cdef int64_t deflate_frame(block_encoder fast, block_encoder_hc high, int level, const uint8_t *data, int64_t length,
                           Scratch *out, int64_t offset) noexcept nogil:
    cdef int64_t blocks = (length + BLOCK_BYTES_WRITTEN - 1) // BLOCK_BYTES_WRITTEN
    cdef uint8_t *to
    cdef int piece
    cdef int got
    if not scratch_reserve(out, offset + HEADER_BYTES_WRITTEN + length + 4 * blocks + 4):
        return NO_MEMORY
    to = out.data + offset
    store_le32(to, 0x184D2204u)
    to[4] = FLG_KAFKA
    to[5] = BD_64_KIB
    to[6] = <uint8_t> (xxh32(to + 4, 2) >> 8)
    to += HEADER_BYTES_WRITTEN
    while length > 0:
        piece = <int> min(length, <int64_t> BLOCK_BYTES_WRITTEN)
        # A block that does not shrink is stored as it is: the encoders give 0 when they run out of room.
        if fast == NULL or high == NULL:
            got = 0
        elif level == 0 or level == 9:
            got = fast(<const char *> data, <char *> to + 4, piece, piece - 1)
        else:
            got = high(<const char *> data, <char *> to + 4, piece, piece - 1, level)
        if got <= 0:
            memcpy(to + 4, data, piece)
            store_le32(to, <uint32_t> piece | 0x80000000u)
            got = piece
        else:
            store_le32(to, got)
        to += 4 + got
        data += piece
        length -= piece
    store_le32(to, 0)
    return to + 4 - (out.data + offset)


def blocks(const uint8_t[::1] data not None) -> list[tuple[bytes, bool]] | None:
    """The blocks of a frame and whether each is compressed, checksums verified; None when Kafka would not read it.

    Each block inflates to at most 4 MiB (65536 in frames written here).
    """
    cdef FrameWalk walk
    cdef int step
    cdef list found = []
    if data.shape[0] == 0 or not open_frame(&data[0], data.shape[0], &walk):
        return None
    while True:
        step = next_block(&walk)
        if step != LZ4_BLOCK_FOUND:
            return found if step == LZ4_BLOCK_END else None
        found.append((<bytes> walk.block[:walk.block_length], bool(walk.block_compressed)))


def frame(pieces: list[tuple[bytes, bool]]) -> bytes:
    """A frame of the given blocks, each of at most 64 KiB once inflated: (bytes, compressed)."""
    cdef uint8_t head[HEADER_BYTES_WRITTEN]
    store_le32(head, 0x184D2204u)
    head[4] = FLG_KAFKA
    head[5] = BD_64_KIB
    head[6] = <uint8_t> (xxh32(head + 4, 2) >> 8)
    body = b"".join((len(b) | (0 if compressed else 0x80000000)).to_bytes(4, "little") + b for b, compressed in pieces)
    return <bytes> head[:HEADER_BYTES_WRITTEN] + body + bytes(4)
