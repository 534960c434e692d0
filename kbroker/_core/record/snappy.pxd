# snappy: the block format and the xerial framing around it, both ways.
# Owns        nothing.
# Called by   record/compression.
# Threads     any. Never takes the GIL.
# Fails by    DecompressError's values.
#
# A producer may send one raw block or the framing of the Java library: a 16-byte header (magic, two versions), then
# blocks, each behind its int32 length. As the Java reader does: versions are not looked at, a header may stand where a
# block is expected, and fewer than four bytes behind the last block are ignored. We write the framing, in 32 KiB blocks.
from libc.stdint cimport int64_t, uint8_t
from kbroker._core.record.scratch cimport Scratch

cdef int64_t snappy_inflate(const uint8_t *data, int64_t length, Scratch *out, int64_t cap_bytes) noexcept nogil
cdef int64_t snappy_deflate(const uint8_t *data, int64_t length, Scratch *out, int64_t offset) noexcept nogil
