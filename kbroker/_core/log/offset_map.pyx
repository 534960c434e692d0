# An open-addressing table with linear probing: at the default load of 0.9 a search stays within a few cache lines.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cdef extern from *:
    """
    static inline unsigned long long kb_scale(unsigned long long hash, unsigned long long slots) {
        return (unsigned long long) (((unsigned __int128) hash * slots) >> 64);   /* hash / 2**64 of the way */
    }
    #define kb_prefetch(address) __builtin_prefetch(address)
    """
    uint64_t kb_scale(uint64_t hash, uint64_t slots) nogil
    void kb_prefetch(const void *address) nogil

cdef struct Sip:
    uint64_t v0, v1, v2, v3


cdef inline uint64_t rotated(uint64_t x, int bits) noexcept nogil:
    return x << bits | x >> (64 - bits)


cdef inline void sip_round(Sip *s) noexcept nogil:
    s.v0 += s.v1
    s.v1 = rotated(s.v1, 13) ^ s.v0
    s.v0 = rotated(s.v0, 32)
    s.v2 += s.v3
    s.v3 = rotated(s.v3, 16) ^ s.v2
    s.v0 += s.v3
    s.v3 = rotated(s.v3, 21) ^ s.v0
    s.v2 += s.v1
    s.v1 = rotated(s.v1, 17) ^ s.v2
    s.v2 = rotated(s.v2, 32)


cdef inline void sip_take(Sip *s, uint64_t word) noexcept nogil:
    s.v3 ^= word
    sip_round(s)
    sip_round(s)
    s.v0 ^= word


cdef inline uint64_t sip_end(Sip *s) noexcept nogil:
    sip_round(s)
    sip_round(s)
    sip_round(s)
    sip_round(s)
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3


cdef void hash_key(const uint64_t *secret, const uint8_t *key, int32_t length, KeyHash *out) noexcept nogil:
    # SipHash-2-4 with 128 bits of output, on a little-endian machine to the letter.
    cdef Sip s
    cdef uint64_t word = 0
    cdef int32_t at = 0
    s.v0 = secret[0] ^ 0x736f6d6570736575ULL
    s.v1 = secret[1] ^ 0x646f72616e646f6dULL ^ 0xee
    s.v2 = secret[0] ^ 0x6c7967656e657261ULL
    s.v3 = secret[1] ^ 0x7465646279746573ULL
    while length - at >= 8:
        memcpy(&word, key + at, 8)
        sip_take(&s, word)
        at += 8
    word = 0
    if length > at:
        memcpy(&word, key + at, length - at)
    sip_take(&s, word | <uint64_t> length << 56)
    s.v2 ^= 0xee
    out.low = sip_end(&s)
    s.v1 ^= 0xdd
    out.high = sip_end(&s)


cdef bint map_make(OffsetMap *m, int64_t slots, int64_t most) noexcept nogil:
    m.entries = <MapEntry *> calloc(slots, sizeof(MapEntry))
    m.slots = slots
    m.most = most
    m.count = 0
    return m.entries != NULL


cdef void map_free(OffsetMap *m) noexcept nogil:
    free(m.entries)
    m.entries = NULL
    m.slots = m.most = m.count = 0


cdef inline MapEntry *home_of(const OffsetMap *m, const KeyHash *key) noexcept nogil:
    return m.entries + kb_scale(key.low, <uint64_t> m.slots)


cdef void map_hash(const OffsetMap *m, const uint8_t *key, int32_t length, KeyHash *out) noexcept nogil:
    hash_key(m.secret, key, length, out)
    kb_prefetch(home_of(m, out))


cdef inline MapEntry *find(const OffsetMap *m, const KeyHash *key) noexcept nogil:
    # The key's entry, or the empty one where it belongs.
    cdef MapEntry *entry = home_of(m, key)
    cdef const MapEntry *end = m.entries + m.slots
    while entry.offset_plus_one != 0 and (entry.key.low != key.low or entry.key.high != key.high):
        entry += 1
        if entry == end:
            entry = m.entries
    return entry


cdef bint map_put(OffsetMap *m, const KeyHash *key, int64_t offset) noexcept nogil:
    cdef MapEntry *entry = find(m, key)
    if entry.offset_plus_one == 0:
        if m.count >= m.most:
            return False
        m.count += 1
        entry.key = key[0]
    entry.offset_plus_one = offset + 1
    return True


cdef int64_t map_get(const OffsetMap *m, const KeyHash *key) noexcept nogil:
    return find(m, key).offset_plus_one - 1


def hash_of(secret: bytes, key: bytes) -> bytes:
    """The hash by which a map knows `key`, for its tests; `secret` has sixteen bytes."""
    cdef uint64_t words[2]
    cdef KeyHash out
    if len(secret) != 16:
        raise ValueError("a secret has sixteen bytes")
    memcpy(words, <const uint8_t *> secret, 16)
    hash_key(words, key, <int32_t> len(key), &out)
    return (<const char *> &out)[:16]
