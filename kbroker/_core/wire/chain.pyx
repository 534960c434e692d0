# The slow half of a reply under construction: memory, file slices, and giving both back. The fast half is in chain.pxd.
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc

from kbroker._core.limits cimport CHAIN_ARENA_FIRST_BYTES, CHAIN_ARENA_KEEP_BYTES, CHAIN_PIECES_FIRST, CHAIN_PIECES_KEEP
from kbroker._core.wire.cursor cimport store_be32


cdef bint chain_grow(Chain *c, int64_t more) noexcept nogil:
    cdef int64_t capacity = c.capacity * 2
    cdef void *arena
    if c.broken:
        return False
    if capacity < CHAIN_ARENA_FIRST_BYTES:
        capacity = CHAIN_ARENA_FIRST_BYTES
    while capacity < c.used + more:
        capacity *= 2
    arena = realloc(c.arena, capacity)
    if arena == NULL:
        c.broken = True
        return False
    c.arena = <uint8_t *> arena
    c.capacity = capacity
    return True


cdef Piece *new_piece(Chain *c) noexcept nogil:
    cdef int32_t capacity
    cdef void *pieces
    if c.piece_count == c.piece_capacity:
        capacity = c.piece_capacity * 2 if c.piece_capacity else CHAIN_PIECES_FIRST
        pieces = realloc(c.pieces, capacity * sizeof(Piece))
        if pieces == NULL:
            c.broken = True
            return NULL
        c.pieces = <Piece *> pieces
        c.piece_capacity = capacity
    c.piece_count += 1
    return &c.pieces[c.piece_count - 1]


cdef int64_t chain_note_run(Chain *c, int64_t length) noexcept nogil:
    # The room is there: chain_room made it. A chain that cannot name the run is broken and will never be sent.
    cdef int64_t start = c.used
    cdef Piece *last = &c.pieces[c.piece_count - 1] if c.piece_count > 0 else NULL
    if last == NULL or last.fd >= 0:
        last = new_piece(c)
        if last == NULL:
            return start
        last.fd = -1
        last.owner = NULL
        last.drop = NULL
        last.blame = NULL
        last.start = start
        last.length = 0
    last.length += length
    c.used += length
    c.total_bytes += length
    return start


cdef void chain_put_slice(Chain *c, int fd, int64_t position, int64_t length,
                          void *owner, void (*drop)(void *owner) noexcept nogil,
                          void (*blame)(void *owner, int rc) noexcept nogil) noexcept nogil:
    cdef Piece *piece = NULL
    if not c.broken and length > 0:
        piece = new_piece(c)
    if piece == NULL:
        if drop != NULL:
            drop(owner)
        return
    piece.fd = fd
    piece.owner = owner
    piece.drop = drop
    piece.blame = blame
    piece.start = position
    piece.length = length
    c.total_bytes += length


cdef void chain_clear(Chain *c) noexcept nogil:
    cdef int32_t i
    for i in range(c.piece_count):
        if c.pieces[i].drop != NULL:
            c.pieces[i].drop(c.pieces[i].owner)
    if c.capacity > CHAIN_ARENA_KEEP_BYTES:
        free(c.arena)
        c.arena = NULL
        c.capacity = 0
    if c.piece_capacity > CHAIN_PIECES_KEEP:
        free(c.pieces)
        c.pieces = NULL
        c.piece_capacity = 0
    c.used = 0
    c.piece_count = 0
    c.total_bytes = 0
    c.broken = False
    c.next_piece = 0
    c.sent_in_piece = 0
    c.next = NULL


cdef void chain_free(Chain *c) noexcept nogil:
    chain_clear(c)
    free(c.arena)
    free(c.pieces)
    c.arena = NULL
    c.pieces = NULL
    c.capacity = 0
    c.piece_capacity = 0


cdef void chain_seal(Chain *c) noexcept nogil:
    if c.total_bytes - 4 > INT32_MAX:
        c.broken = True                      # no frame can say so large a size; the connection is closed
    if not c.broken and c.used >= 4:
        store_be32(c.arena, <int32_t> (c.total_bytes - 4))
