# Codec engines: the system's libraries, opened at run time, and snappy from here. ADR 0003 says why.
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from kbroker._core.limits cimport SCRATCH_KEEP_BYTES
from kbroker._core.record.lz4_frame cimport block_decoder, block_encoder, block_encoder_hc, deflate_frame, inflate_frame
from kbroker._core.record.scratch cimport SCRATCH_FIRST_BYTES, Scratch, empty_scratch, scratch_grow, scratch_reserve
from kbroker._core.record.snappy cimport snappy_deflate, snappy_inflate

cdef extern from "<dlfcn.h>" nogil:
    enum:
        RTLD_NOW
        RTLD_LOCAL
    void *dlopen(const char *name, int flags)
    void *dlsym(void *library, const char *name)

cdef enum:
    GZIP_WINDOW = 31             # 15 bits of window, and the gzip wrapper
    GZIP_TRAILER_BYTES = 8
    GZIP_SMALLEST_REST = 18      # fewer bytes than a member needs are never looked at, as in Java's reader
    Z_OK = 0
    Z_STREAM_END = 1
    Z_BUF_ERROR = -5
    Z_NO_FLUSH = 0
    Z_FINISH = 4
    Z_DEFLATED = 8
    Z_DEFAULT_LEVEL = -1
    ZSTD_TOO_SMALL = 70          # ZSTD_error_dstSize_tooSmall, stable since 1.0
    ZSTD_WINDOW_LOG_MAX = 27     # what a streaming reader accepts by default: Kafka's, and every client's
    ZSTD_DEFAULT_LEVEL = 3
    ZSTD_STORED_BLOCK_BYTES = 131072
    ZSTD_STORED_HEADER_BYTES = 6

# zlib's z_stream: its layout is part of the library's ABI. Declared here because the headers need not be installed.
cdef struct ZStream:
    const uint8_t *next_in
    unsigned int avail_in
    unsigned long total_in
    uint8_t *next_out
    unsigned int avail_out
    unsigned long total_out
    const char *msg
    void *state
    void *zalloc
    void *zfree
    void *opaque
    int data_type
    unsigned long adler
    unsigned long reserved

ctypedef int (*inflate_init_fn)(ZStream *, int, const char *, int) noexcept nogil
ctypedef int (*deflate_init_fn)(ZStream *, int, int, int, int, int, const char *, int) noexcept nogil
ctypedef int (*flate_fn)(ZStream *, int) noexcept nogil
ctypedef int (*stream_fn)(ZStream *) noexcept nogil
ctypedef unsigned long (*deflate_bound_fn)(ZStream *, unsigned long) noexcept nogil
ctypedef const char *(*version_fn)() noexcept nogil
ctypedef void *(*create_fn)() noexcept nogil
ctypedef size_t (*destroy_fn)(void *) noexcept nogil
ctypedef size_t (*zstd_decompress_fn)(void *, void *, size_t, const void *, size_t) noexcept nogil
ctypedef size_t (*zstd_compress_fn)(void *, size_t, const void *, size_t, int) noexcept nogil
ctypedef size_t (*size_fn)(size_t) noexcept nogil
ctypedef unsigned int (*is_error_fn)(size_t) noexcept nogil
ctypedef int (*error_code_fn)(size_t) noexcept nogil

# The engines. An engine is there when its last pointer is set. Written by open_engines() at import, never again.
cdef struct Engines:
    const char *gzip_library
    version_fn zlib_version
    inflate_init_fn inflate_init
    flate_fn inflate
    stream_fn inflate_reset
    stream_fn inflate_end
    deflate_init_fn deflate_init
    flate_fn deflate
    deflate_bound_fn deflate_bound
    stream_fn deflate_end
    const char *lz4_library
    version_fn lz4_version
    block_encoder lz4_fast
    block_encoder_hc lz4_high
    block_decoder lz4_decode
    const char *zstd_library
    version_fn zstd_version
    create_fn zstd_create
    destroy_fn zstd_destroy
    size_fn zstd_bound
    is_error_fn zstd_is_error
    error_code_fn zstd_error_code
    zstd_compress_fn zstd_compress
    zstd_decompress_fn zstd_decompress

cdef Engines ENGINES


cdef void *open_library(list names, const char **found) except? NULL:
    cdef void *library
    for name in names:
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL)
        if library != NULL:
            found[0] = name
            return library
    return NULL


# Debian and its kin, then macOS: its own, Homebrew on Apple silicon, Homebrew on Intel. The names outlive the table.
cdef list GZIP_NAMES = [b"libz.so.1", b"libz.1.dylib"]
cdef list LZ4_NAMES = [b"liblz4.so.1", b"liblz4.1.dylib", b"/opt/homebrew/lib/liblz4.1.dylib",
                       b"/usr/local/lib/liblz4.1.dylib"]
cdef list ZSTD_NAMES = [b"libzstd.so.1", b"libzstd.1.dylib", b"/opt/homebrew/lib/libzstd.1.dylib",
                        b"/usr/local/lib/libzstd.1.dylib"]


cdef int open_engines() except -1:
    cdef Engines *e = &ENGINES
    cdef void *library
    memset(e, 0, sizeof(Engines))
    library = open_library(GZIP_NAMES, &e.gzip_library)
    if library != NULL:
        e.zlib_version = <version_fn> dlsym(library, b"zlibVersion")
        e.inflate_init = <inflate_init_fn> dlsym(library, b"inflateInit2_")
        e.inflate = <flate_fn> dlsym(library, b"inflate")
        e.inflate_reset = <stream_fn> dlsym(library, b"inflateReset")
        e.inflate_end = <stream_fn> dlsym(library, b"inflateEnd")
        e.deflate_init = <deflate_init_fn> dlsym(library, b"deflateInit2_")
        e.deflate = <flate_fn> dlsym(library, b"deflate")
        e.deflate_bound = <deflate_bound_fn> dlsym(library, b"deflateBound")
        e.deflate_end = <stream_fn> dlsym(library, b"deflateEnd")
        if (e.zlib_version == NULL or e.inflate_init == NULL or e.inflate == NULL or e.inflate_reset == NULL
                or e.inflate_end == NULL or e.deflate_init == NULL or e.deflate == NULL or e.deflate_bound == NULL
                or e.deflate_end == NULL):
            e.gzip_library = NULL
    library = open_library(LZ4_NAMES, &e.lz4_library)
    if library != NULL:
        e.lz4_version = <version_fn> dlsym(library, b"LZ4_versionString")
        e.lz4_fast = <block_encoder> dlsym(library, b"LZ4_compress_default")
        e.lz4_high = <block_encoder_hc> dlsym(library, b"LZ4_compress_HC")
        e.lz4_decode = <block_decoder> dlsym(library, b"LZ4_decompress_safe")
        if e.lz4_version == NULL or e.lz4_fast == NULL or e.lz4_high == NULL or e.lz4_decode == NULL:
            e.lz4_library = NULL
    library = open_library(ZSTD_NAMES, &e.zstd_library)
    if library != NULL:
        e.zstd_version = <version_fn> dlsym(library, b"ZSTD_versionString")
        e.zstd_create = <create_fn> dlsym(library, b"ZSTD_createDCtx")
        e.zstd_destroy = <destroy_fn> dlsym(library, b"ZSTD_freeDCtx")
        e.zstd_bound = <size_fn> dlsym(library, b"ZSTD_compressBound")
        e.zstd_is_error = <is_error_fn> dlsym(library, b"ZSTD_isError")
        e.zstd_error_code = <error_code_fn> dlsym(library, b"ZSTD_getErrorCode")
        e.zstd_compress = <zstd_compress_fn> dlsym(library, b"ZSTD_compress")
        e.zstd_decompress = <zstd_decompress_fn> dlsym(library, b"ZSTD_decompressDCtx")
        if (e.zstd_version == NULL or e.zstd_create == NULL or e.zstd_destroy == NULL or e.zstd_bound == NULL
                or e.zstd_is_error == NULL or e.zstd_error_code == NULL or e.zstd_compress == NULL
                or e.zstd_decompress == NULL):
            e.zstd_library = NULL
    return 0

open_engines()


cdef bint codec_available(int codec) noexcept nogil:
    if codec == CODEC_GZIP:
        return ENGINES.gzip_library != NULL
    if codec == CODEC_LZ4:
        return ENGINES.lz4_library != NULL
    if codec == CODEC_ZSTD:
        return ENGINES.zstd_library != NULL
    return codec == CODEC_NONE or codec == CODEC_SNAPPY


cdef inline bint usable(int codec, const Scratch *s) noexcept nogil:
    return codec_available(codec) and not s.disabled_codecs >> codec & 1


# gzip ---------------------------------------------------------------------------------------------------------------

cdef ZStream *warm_inflater(Scratch *s) noexcept nogil:
    cdef ZStream *z = <ZStream *> s.gzip_state
    if z != NULL:
        ENGINES.inflate_reset(z)
        return z
    z = <ZStream *> calloc(1, sizeof(ZStream))
    if z == NULL:
        return NULL
    if ENGINES.inflate_init(z, GZIP_WINDOW, ENGINES.zlib_version(), sizeof(ZStream)) != Z_OK:
        free(z)
        return NULL
    s.gzip_state = z
    return z


cdef const uint8_t *skip_zero_terminated(const uint8_t *p, const uint8_t *end) noexcept nogil:
    while p < end and p[0] != 0:
        p += 1
    return p + 1 if p < end else NULL


cdef bint member_starts(const uint8_t *p, const uint8_t *end) noexcept nogil:
    # Whether a further gzip member's header stands here, whole. Anything else behind a member ends the stream quietly.
    cdef uint8_t flags
    cdef int64_t extra
    if end - p <= GZIP_SMALLEST_REST or p[0] != 0x1f or p[1] != 0x8b or p[2] != Z_DEFLATED:
        return False
    flags = p[3]
    p += 10
    if flags & 4:
        if end - p < 2:
            return False
        extra = p[0] | <int64_t> p[1] << 8
        if end - p < 2 + extra:
            return False
        p += 2 + extra
    if flags & 8:
        p = skip_zero_terminated(p, end)
    if p != NULL and flags & 16:
        p = skip_zero_terminated(p, end)
    return p != NULL and end - p >= (2 if flags & 2 else 0)


cdef int64_t gzip_inflate(const uint8_t *data, int64_t length, Scratch *out, int64_t cap_bytes) noexcept nogil:
    # Members one after the other, checksums verified, as Java's GZIPInputStream reads them.
    cdef ZStream *z = warm_inflater(out)
    cdef int64_t used = 0
    cdef int64_t room
    cdef int status
    if z == NULL:
        return NO_MEMORY
    z.next_in = data
    z.avail_in = <unsigned int> length
    while True:
        # One byte more than the cap, so that a stream that ends exactly there is told from one that goes on.
        if not scratch_grow(out, min(used + 1, cap_bytes + 1), cap_bytes + 1):
            return NO_MEMORY
        room = min(out.capacity, cap_bytes + 1) - used
        z.next_out = out.data + used
        z.avail_out = <unsigned int> min(room, <int64_t> INT32_MAX)
        status = ENGINES.inflate(z, Z_NO_FLUSH)
        used = z.next_out - out.data
        if used > cap_bytes:
            return OVER_CAP
        if status == Z_STREAM_END:
            if not member_starts(z.next_in, data + length):
                return used
            ENGINES.inflate_reset(z)
        elif status != Z_OK and (status != Z_BUF_ERROR or z.avail_out > 0):
            return UNDECODABLE
        elif z.avail_in == 0 and z.avail_out > 0:
            return UNDECODABLE       # the input ended, the stream did not


cdef int64_t gzip_deflate(int level, const uint8_t *data, int64_t length, Scratch *out, int64_t offset) noexcept nogil:
    cdef ZStream z
    cdef int64_t bound
    cdef int64_t made
    cdef int status
    memset(&z, 0, sizeof(ZStream))
    if level == 0:
        level = Z_DEFAULT_LEVEL
    if ENGINES.deflate_init(&z, level, Z_DEFLATED, GZIP_WINDOW, 8, 0, ENGINES.zlib_version(), sizeof(ZStream)) != Z_OK:
        return UNDECODABLE
    bound = ENGINES.deflate_bound(&z, length) + GZIP_TRAILER_BYTES
    if not scratch_reserve(out, offset + bound):
        ENGINES.deflate_end(&z)
        return NO_MEMORY
    z.next_in = data
    z.avail_in = <unsigned int> length
    z.next_out = out.data + offset
    z.avail_out = <unsigned int> bound
    status = ENGINES.deflate(&z, Z_FINISH)
    made = bound - z.avail_out
    ENGINES.deflate_end(&z)
    return made if status == Z_STREAM_END else UNDECODABLE


# zstd ---------------------------------------------------------------------------------------------------------------

cdef inline bint window_is_read(const uint8_t *data, int64_t length) noexcept nogil:
    # A frame whose window no ordinary reader accepts is refused, although decoding into one buffer needs none.
    if length < 6 or data[0] != 0x28 or data[1] != 0xb5 or data[2] != 0x2f or data[3] != 0xfd or data[4] & 0x20:
        return True
    return data[5] <= (ZSTD_WINDOW_LOG_MAX - 10) << 3


cdef int64_t zstd_inflate(const uint8_t *data, int64_t length, Scratch *out, int64_t cap_bytes) noexcept nogil:
    # Into one buffer, so that the library needs no window of its own; too small a buffer doubles and starts again, which
    # costs no more than a second pass. The content size in the frame is not looked at.
    cdef size_t result
    cdef int64_t room
    if length == 0:
        return 0                     # no frame, no bytes: that much any reader agrees on
    if not window_is_read(data, length):
        return UNDECODABLE
    if out.zstd_state == NULL:
        out.zstd_state = ENGINES.zstd_create()
        if out.zstd_state == NULL:
            return NO_MEMORY
    room = out.capacity
    while True:
        if room > cap_bytes:
            room = cap_bytes
        if not scratch_reserve(out, room):
            return NO_MEMORY
        result = ENGINES.zstd_decompress(out.zstd_state, out.data, room, data, length)
        if not ENGINES.zstd_is_error(result):
            return result
        if ENGINES.zstd_error_code(result) != ZSTD_TOO_SMALL:
            return UNDECODABLE
        if room == cap_bytes:
            return OVER_CAP
        room *= 2


cdef int64_t zstd_deflate(int level, const uint8_t *data, int64_t length, Scratch *out, int64_t offset) noexcept nogil:
    cdef int64_t bound = ENGINES.zstd_bound(length)
    cdef size_t result
    if not scratch_reserve(out, offset + bound):
        return NO_MEMORY
    result = ENGINES.zstd_compress(out.data + offset, bound, data, length, level if level != 0 else ZSTD_DEFAULT_LEVEL)
    return UNDECODABLE if ENGINES.zstd_is_error(result) else <int64_t> result


cdef int64_t zstd_store(const uint8_t *data, int64_t length, Scratch *out, int64_t offset) noexcept nogil:
    # A frame of raw blocks: magic, no content size and no checksum, a window of one block; then the blocks.
    cdef int64_t blocks = length // ZSTD_STORED_BLOCK_BYTES + 1
    cdef uint8_t *to
    cdef uint32_t piece
    cdef uint32_t head
    if not scratch_reserve(out, offset + ZSTD_STORED_HEADER_BYTES + length + 3 * blocks):
        return NO_MEMORY
    to = out.data + offset
    memcpy(to, b"\x28\xb5\x2f\xfd\x00\x38", ZSTD_STORED_HEADER_BYTES)
    to += ZSTD_STORED_HEADER_BYTES
    while True:
        piece = <uint32_t> min(length, <int64_t> ZSTD_STORED_BLOCK_BYTES)
        length -= piece
        head = piece << 3 | (1 if length == 0 else 0)
        to[0] = <uint8_t> head
        to[1] = <uint8_t> (head >> 8)
        to[2] = <uint8_t> (head >> 16)
        memcpy(to + 3, data, piece)
        to += 3 + piece
        data += piece
        if length == 0:
            return to - (out.data + offset)


# the table's two verbs ------------------------------------------------------------------------------------------------

cdef int64_t decompress(int codec, const uint8_t *data, int64_t length, Scratch *out, int64_t cap_bytes) noexcept nogil:
    cdef int64_t guess = max(4 * length, <int64_t> SCRATCH_FIRST_BYTES)
    if codec < CODEC_NONE or codec > CODEC_ZSTD or length < 0 or length > INT32_MAX:
        return UNDECODABLE
    if not usable(codec, out):
        return NO_ENGINE
    if not scratch_reserve(out, min(guess, cap_bytes + 1)):
        return NO_MEMORY
    if codec == CODEC_GZIP:
        return gzip_inflate(data, length, out, cap_bytes)
    if codec == CODEC_SNAPPY:
        return snappy_inflate(data, length, out, cap_bytes)
    if codec == CODEC_LZ4:
        return inflate_frame(ENGINES.lz4_decode, data, length, out, cap_bytes)
    if codec == CODEC_ZSTD:
        return zstd_inflate(data, length, out, cap_bytes)
    if length > cap_bytes:
        return OVER_CAP
    if not scratch_reserve(out, length):
        return NO_MEMORY
    memcpy(out.data, data, length)
    return length


cdef int64_t compress(int codec, int level, const uint8_t *data, int64_t length, Scratch *out) noexcept nogil:
    return compress_behind(codec, level, data, length, out, 0)


cdef int64_t compress_behind(int codec, int level, const uint8_t *data, int64_t length, Scratch *out,
                             int64_t offset) noexcept nogil:
    if codec < CODEC_NONE or codec > CODEC_ZSTD or length < 0 or length > INT32_MAX:
        return UNDECODABLE
    if not usable(codec, out):
        if codec == CODEC_LZ4:
            return deflate_frame(NULL, NULL, 0, data, length, out, offset)
        return zstd_store(data, length, out, offset) if codec == CODEC_ZSTD else NO_ENGINE
    if codec == CODEC_GZIP:
        return gzip_deflate(level, data, length, out, offset)
    if codec == CODEC_SNAPPY:
        return snappy_deflate(data, length, out, offset)
    if codec == CODEC_LZ4:
        return deflate_frame(ENGINES.lz4_fast, ENGINES.lz4_high, level, data, length, out, offset)
    if codec == CODEC_ZSTD:
        return zstd_deflate(level, data, length, out, offset)
    if length == 0:
        return 0                 # there may be no buffer yet, and memcpy must not be given NULL
    if not scratch_reserve(out, offset + length):
        return NO_MEMORY
    memcpy(out.data + offset, data, length)
    return length


cdef void scratch_trim(Scratch *s) noexcept nogil:
    if s.capacity > SCRATCH_KEEP_BYTES:
        free(s.data)
        s.data = NULL
        s.capacity = 0


cdef void scratch_free(Scratch *s) noexcept nogil:
    free(s.data)
    s.data = NULL
    s.capacity = 0
    if s.gzip_state != NULL:
        ENGINES.inflate_end(<ZStream *> s.gzip_state)
        free(s.gzip_state)
        s.gzip_state = NULL
    if s.zstd_state != NULL:
        ENGINES.zstd_destroy(s.zstd_state)
        s.zstd_state = NULL


# the Python door ------------------------------------------------------------------------------------------------------

class CodecError(ValueError):
    """Bytes that a codec refuses. `code` is the DecompressError: -1 undecodable, -2 over the cap, -3 no engine here."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code


cdef dict COMPLAINTS = {
    UNDECODABLE: "the data cannot be decoded",
    OVER_CAP: "the data is larger than allowed once decompressed",
    NO_ENGINE: "no native engine for this codec",
}


cdef bytes outcome(int64_t made, Scratch *out):
    if made == NO_MEMORY:
        raise MemoryError
    if made < 0:
        raise CodecError(made, COMPLAINTS[made])
    return <bytes> out.data[:made] if made > 0 else b""


def engines() -> dict[str, str]:
    """The native engine of each codec, "zstd": "libzstd.so.1 1.5.4"; "cramjam" where there is none."""
    cdef Engines *e = &ENGINES
    found = {"gzip": "cramjam", "snappy": "built in", "lz4": "cramjam", "zstd": "cramjam"}
    if e.gzip_library != NULL:
        found["gzip"] = f"{e.gzip_library.decode()} {e.zlib_version().decode()}"
    if e.lz4_library != NULL:
        found["lz4"] = f"{e.lz4_library.decode()} {e.lz4_version().decode()}"
    if e.zstd_library != NULL:
        found["zstd"] = f"{e.zstd_library.decode()} {e.zstd_version().decode()}"
    return found


def native(codec: int) -> bool:
    """Whether this machine inflates `codec` without the GIL."""
    return codec_available(codec)


def compress_bytes(codec: int, data: bytes, level: int = 0, *, disabled_codecs: int = 0) -> bytes:
    """`data` by the native engine, in the shape Kafka's broker writes; raises CodecError."""
    cdef Scratch out
    cdef int64_t made
    cdef int which = codec
    cdef int strength = level
    cdef const uint8_t *at = data
    cdef int64_t length = len(data)
    out = empty_scratch()
    out.disabled_codecs = disabled_codecs
    try:
        with nogil:
            made = compress(which, strength, at, length, &out)
        return outcome(made, &out)
    finally:
        scratch_free(&out)


def decompress_bytes(codec: int, data: bytes, cap: int, *, disabled_codecs: int = 0) -> bytes:
    """What the native engine makes of `data`, at most `cap` bytes; raises CodecError."""
    cdef Scratch out
    cdef int64_t made
    cdef int which = codec
    cdef const uint8_t *at = data
    cdef int64_t length = len(data)
    cdef int64_t most = cap
    out = empty_scratch()
    out.disabled_codecs = disabled_codecs
    try:
        with nogil:
            made = decompress(which, at, length, &out, most)
        return outcome(made, &out)
    finally:
        scratch_free(&out)
