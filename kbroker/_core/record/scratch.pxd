# scratch: one thread's working memory for codecs, reused from batch to batch because fresh memory is dear.
# Owns        the bytes it has grown, and the decompressor contexts kept warm beside them.
# Called by   record (decompress, rewrite), network threads (one per worker), the Python doors.
# Threads     one at a time.
# Invariants  zero-initialised is empty and valid; data[0:capacity] is writable; growth is geometric and capped.
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memset

cdef enum:
    SCRATCH_FIRST_BYTES = 16384

cdef struct Scratch:
    uint8_t *data
    int64_t capacity
    uint8_t disabled_codecs     # bit 1 << codec: pretend that this engine is missing (tests run the fallback by it)
    void *gzip_state            # of compression; freed by scratch_free
    void *zstd_state


cdef inline Scratch empty_scratch() noexcept nogil:
    # How every Scratch begins: a field left out would be a dangling context or a codec disabled by accident.
    cdef Scratch s
    memset(&s, 0, sizeof(Scratch))
    return s


cdef inline bint scratch_reserve(Scratch *s, int64_t capacity) noexcept nogil:
    # At least `capacity` bytes, what is there is kept. False: out of memory, nothing changed.
    cdef uint8_t *grown
    if capacity <= s.capacity:
        return True
    grown = <uint8_t *> realloc(s.data, capacity)
    if grown == NULL:
        return False
    s.data = grown
    s.capacity = capacity
    return True


cdef inline bint scratch_grow(Scratch *s, int64_t wanted, int64_t most) noexcept nogil:
    # At least `wanted` bytes; a buffer that has to move doubles, but not past `most` (which `wanted` may not pass either).
    cdef int64_t doubled = 2 * s.capacity
    if wanted <= s.capacity:
        return True
    if doubled > most:
        doubled = most
    return scratch_reserve(s, wanted if wanted > doubled else doubled)


cdef inline void scratch_swap(Scratch *a, Scratch *b) noexcept nogil:
    # The bytes only: contexts and disabled codecs stay where they are.
    cdef uint8_t *data = a.data
    cdef int64_t capacity = a.capacity
    a.data = b.data
    a.capacity = b.capacity
    b.data = data
    b.capacity = capacity
