# compression: gzip, snappy, lz4 and zstd without the GIL.
# Owns        the table of codec engines: libz, liblz4, libzstd opened at run time, snappy written here. ADR 0003.
# Called by   record/batch (validation), log/batch_filter (compaction), and Python through the door below.
# Threads     any, each with its own Scratch. The table is filled once, at import, and only read afterwards.
# Fails by    a negative DecompressError. Output never exceeds `cap_bytes`, whatever a header claims, and memory grows
#             with what was really decompressed, not with what was promised.
# What is accepted is what Kafka's own readers accept; each codec's function says how they differ from the format's letter.
from libc.stdint cimport int32_t, int64_t, uint8_t
from kbroker._core.record.scratch cimport Scratch, empty_scratch, scratch_reserve, scratch_swap

cdef enum Codec:
    CODEC_NONE = 0
    CODEC_GZIP = 1
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4

cdef enum DecompressError:
    UNDECODABLE = -1        # garbage, truncated, trailing bytes where Kafka minds them
    OVER_CAP = -2           # would exceed cap_bytes
    NO_ENGINE = -3          # the library is not on this machine: the request goes to the Python worker (record/codecs)
    NO_MEMORY = -4

cdef bint codec_available(int codec) noexcept nogil
# Bytes in out.data, or a DecompressError.
cdef int64_t decompress(int codec, const uint8_t *data, int64_t length, Scratch *out, int64_t cap_bytes) noexcept nogil
# Level 0 is Kafka's default for the codec. Bytes in out.data, or NO_ENGINE, NO_MEMORY, UNDECODABLE (the engine refused).
# Without their library lz4 and zstd are still written, as frames of stored blocks: a topic's codec is a promise about
# the format, and no request has to leave its thread for it. Only gzip can be NO_ENGINE.
cdef int64_t compress(int codec, int level, const uint8_t *data, int64_t length, Scratch *out) noexcept nogil
# The same, leaving `offset` bytes of out.data free in front: room for a batch header.
cdef int64_t compress_behind(int codec, int level, const uint8_t *data, int64_t length, Scratch *out,
                             int64_t offset) noexcept nogil
cdef void scratch_trim(Scratch *s) noexcept nogil      # gives back what grew past SCRATCH_KEEP_BYTES
cdef void scratch_free(Scratch *s) noexcept nogil      # gives back everything; the Scratch is empty and valid again
