# offset_map: the newest offset of every key in a stretch of log, in a buffer of fixed size.
# Owns        the buffer.
# Called by   log/cleaner (fills it), log/batch_filter (asks it).
# Threads     one at a time.
# Fails by    False when there is no room for a further key. Never takes the GIL.
# Invariants  count <= most < slots, so that every search ends at an empty slot.
#
# A key is known by 128 bits of SipHash-2-4 under a secret that each map draws anew, as it is known to Kafka by its MD5. Two
# keys of one hash would cost one of them its record, so the hash must withstand whoever chooses the keys: without the
# secret nobody can look for such a pair, where for MD5 pairs can be bought. It is cheaper, too. Nothing of
# the map is ever written to a file, so nobody has to agree on it.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef enum:
    MAP_ENTRY_BYTES = 24
    KEYS_AT_ONCE = 32

cdef struct KeyHash:
    uint64_t low
    uint64_t high

cdef struct MapEntry:
    KeyHash key
    int64_t offset_plus_one  # 0: the slot is empty

cdef struct OffsetMap:
    uint64_t secret[2]
    MapEntry *entries
    int64_t slots
    int64_t most             # keys it takes: the load factor's share of the slots
    int64_t count

cdef bint map_make(OffsetMap *m, int64_t slots, int64_t most) noexcept nogil     # empty; False: out of memory. `secret` is kept
cdef void map_free(OffsetMap *m) noexcept nogil
# A large map lies in no cache: keys are hashed a handful at a time, and the slot of each is on its way from memory by the
# time it is looked at.
cdef void map_hash(const OffsetMap *m, const uint8_t *key, int32_t length, KeyHash *out) noexcept nogil
cdef bint map_put(OffsetMap *m, const KeyHash *key, int64_t offset) noexcept nogil
cdef int64_t map_get(const OffsetMap *m, const KeyHash *key) noexcept nogil      # -1: unknown
