# chain: one reply on its way out: byte runs and file slices in order.
# Owns        an arena that holds all byte runs, the list of pieces, and one reference to the owner of each file slice.
# Called by   api/* (fill), net/egress (send), net/loop (pool).
# Threads     one network thread.
# Fails by    `broken`: set when memory ran out; the loop closes the connection. put_* on a broken chain do nothing.
# Invariants  the pieces cover the arena in order; a file piece holds its owner's reference until it is sent or dropped.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy
from kbroker._core.wire.cursor cimport store_be16, store_be32, store_be64

cdef struct Piece:
    int fd                 # -1: a run of arena bytes
    void *owner            # whoever keeps the descriptor open (a segment), given back through `drop`
    void (*drop)(void *owner) noexcept nogil
    void (*blame)(void *owner, int rc) noexcept nogil      # its file could not be read: -errno
    int64_t start          # offset in the arena, or position in the file
    int64_t length

cdef struct Chain:
    uint8_t *arena
    int64_t used
    int64_t capacity
    Piece *pieces
    int32_t piece_count
    int32_t piece_capacity
    int64_t total_bytes    # all pieces together: the frame's size, its own four bytes included
    bint broken
    int32_t next_piece     # egress: where sending stands
    int64_t sent_in_piece
    Chain *next            # egress queue and pool

cdef bint chain_grow(Chain *c, int64_t more) noexcept nogil                 # slow path of chain_room
# Takes over the caller's reference to `owner`, even when the chain is broken.
cdef void chain_put_slice(Chain *c, int fd, int64_t position, int64_t length,
                          void *owner, void (*drop)(void *owner) noexcept nogil,
                          void (*blame)(void *owner, int rc) noexcept nogil) noexcept nogil
cdef void chain_clear(Chain *c) noexcept nogil                              # drops references, keeps memory up to a bound
cdef void chain_free(Chain *c) noexcept nogil
cdef void chain_seal(Chain *c) noexcept nogil                               # writes the frame's size over the four bytes reserved first
cdef int64_t chain_note_run(Chain *c, int64_t length) noexcept nogil        # extends the last byte run; returns its arena offset


cdef inline uint8_t *chain_room(Chain *c, int64_t length) noexcept nogil:
    # Room for `length` more bytes, counted as written; NULL when broken.
    cdef uint8_t *p
    if c.capacity - c.used < length and not chain_grow(c, length):
        return NULL
    p = c.arena + c.used
    chain_note_run(c, length)
    return p

cdef inline void put_int8(Chain *c, int8_t v) noexcept nogil:
    cdef uint8_t *p = chain_room(c, 1)
    if p != NULL:
        p[0] = <uint8_t> v

cdef inline void put_int16(Chain *c, int16_t v) noexcept nogil:
    cdef uint8_t *p = chain_room(c, 2)
    if p != NULL:
        store_be16(p, v)

cdef inline void put_int32(Chain *c, int32_t v) noexcept nogil:
    cdef uint8_t *p = chain_room(c, 4)
    if p != NULL:
        store_be32(p, v)

cdef inline void put_int64(Chain *c, int64_t v) noexcept nogil:
    cdef uint8_t *p = chain_room(c, 8)
    if p != NULL:
        store_be64(p, v)

cdef inline void put_uvarint(Chain *c, uint32_t v) noexcept nogil:
    cdef uint8_t buffer[5]
    cdef int n = 0
    while v >= 0x80:
        buffer[n] = <uint8_t> (v | 0x80)
        v >>= 7
        n += 1
    buffer[n] = <uint8_t> v
    put_raw(c, buffer, n + 1)

cdef inline void put_raw(Chain *c, const uint8_t *data, int64_t length) noexcept nogil:
    cdef uint8_t *p = chain_room(c, length)
    if p != NULL:
        memcpy(p, data, length)

cdef inline void put_string(Chain *c, bint flexible, const uint8_t *data, int32_t length) noexcept nogil:
    # length -1: null.
    if flexible:
        put_uvarint(c, <uint32_t> (length + 1))
    else:
        put_int16(c, <int16_t> length)
    if length > 0:
        put_raw(c, data, length)

cdef inline void put_count(Chain *c, bint flexible, int32_t count) noexcept nogil:
    if flexible:
        put_uvarint(c, <uint32_t> (count + 1))
    else:
        put_int32(c, count)

cdef inline void put_no_tags(Chain *c, bint flexible) noexcept nogil:
    if flexible:
        put_int8(c, 0)

cdef inline void patch_int32(Chain *c, int64_t arena_offset, int32_t v) noexcept nogil:
    if not c.broken:
        store_be32(c.arena + arena_offset, v)
