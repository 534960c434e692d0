# Codec engines and the scratch buffers they work in.
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kbroker._core.limits cimport SCRATCH_KEEP_BYTES


cdef bint codec_available(int codec) noexcept nogil:
    return codec == CODEC_NONE


cdef int64_t decompress(int codec, const uint8_t *data, int64_t length, Scratch *out, int64_t cap_bytes) noexcept nogil:
    return NO_ENGINE


cdef int64_t compress(int codec, int level, const uint8_t *data, int64_t length, Scratch *out) noexcept nogil:
    return compress_behind(codec, level, data, length, out, 0)


cdef int64_t compress_behind(int codec, int level, const uint8_t *data, int64_t length, Scratch *out,
                             int64_t offset) noexcept nogil:
    if codec != CODEC_NONE:
        return NO_ENGINE
    if not scratch_reserve(out, offset + length):
        return NO_MEMORY
    memcpy(out.data + offset, data, length)
    return length


cdef bint scratch_reserve(Scratch *s, int64_t capacity) noexcept nogil:
    cdef uint8_t *grown
    if capacity <= s.capacity:
        return True
    grown = <uint8_t *> realloc(s.data, capacity)
    if grown == NULL:
        return False
    s.data = grown
    s.capacity = capacity
    return True


cdef void scratch_swap(Scratch *a, Scratch *b) noexcept nogil:
    cdef uint8_t *data = a.data
    cdef int64_t capacity = a.capacity
    a.data = b.data
    a.capacity = b.capacity
    b.data = data
    b.capacity = capacity


cdef void scratch_trim(Scratch *s) noexcept nogil:
    if s.capacity > SCRATCH_KEEP_BYTES:
        scratch_free(s)


cdef void scratch_free(Scratch *s) noexcept nogil:
    free(s.data)
    s.data = NULL
    s.capacity = 0
