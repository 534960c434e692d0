# lz4_frame: the LZ4 frame as Kafka reads and writes it, around a block codec that the caller brings.
# Owns        nothing.
# Called by   record/compression (liblz4's block functions), record/codecs (cramjam's, through `blocks`).
# Threads     any. Never takes the GIL.
# Fails by    DecompressError's values.
#
# Kafka's reader is narrower than the format: blocks must be independent, no dictionary, no skippable or legacy frames;
# and wider: the content size and content checksum are not looked at, and what follows the end mark is ignored.
# The header checksum and, where present, block checksums are verified.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from kbroker._core.record.scratch cimport Scratch

cdef enum:
    LZ4_BLOCK_END = 0
    LZ4_BLOCK_FOUND = 1
    LZ4_BLOCK_BROKEN = 2

# One pass over a frame.
cdef struct FrameWalk:
    const uint8_t *at
    const uint8_t *end
    bint block_checksums
    bint content_checksum
    int32_t block_max_bytes
    const uint8_t *block        # the current block
    int32_t block_length
    bint block_compressed

ctypedef int (*block_decoder)(const char *source, char *to, int length, int capacity) noexcept nogil
ctypedef int (*block_encoder)(const char *source, char *to, int length, int capacity) noexcept nogil
ctypedef int (*block_encoder_hc)(const char *source, char *to, int length, int capacity, int level) noexcept nogil

cdef uint32_t xxh32(const uint8_t *data, int64_t length) noexcept nogil
cdef bint open_frame(const uint8_t *data, int64_t length, FrameWalk *walk) noexcept nogil
cdef int next_block(FrameWalk *walk) noexcept nogil      # LZ4_BLOCK_*
cdef int64_t inflate_frame(block_decoder decode, const uint8_t *data, int64_t length, Scratch *out,
                           int64_t cap_bytes) noexcept nogil
# Level 0 or 9 (Kafka's default) takes the fast encoder, as Kafka does; any other the high-compression one. Without
# encoders (NULL) the blocks are stored.
cdef int64_t deflate_frame(block_encoder fast, block_encoder_hc high, int level, const uint8_t *data, int64_t length,
                           Scratch *out, int64_t offset) noexcept nogil
