# Sending replies: gather, sendfile, resume.
from libc.errno cimport EAGAIN, EINTR, EINVAL, EIO, ENODEV, ENOSYS, ENXIO, ESTALE, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset
from posix.uio cimport iovec
from posix.unistd cimport pread

from kbroker._core.c.filesystem cimport pread_resident
from kbroker._core.c.sockets cimport SEND_MORE, SEND_QUIETLY, cork, msghdr, send_file, sendmsg
from kbroker._core.limits cimport CHAIN_POOL, COPY_SLICE_BYTES, IOV_PIECES, SENDFILE_CHUNK_BYTES, SMALL_SLICE_BYTES
from kbroker._core.net.warmer cimport is_resident
from kbroker._core.wire.chain cimport Chain, Piece, chain_clear, chain_free


cdef void egress_close(Egress *e) noexcept nogil:
    cdef Chain *c = e.pool
    cdef Chain *following
    while c != NULL:
        following = c.next
        chain_free(c)
        free(c)
        c = following
    e.pool = NULL
    e.pooled = 0
    free(e.scratch)
    e.scratch = NULL


cdef Chain *egress_chain(Egress *e) noexcept nogil:
    cdef Chain *c = e.pool
    if c == NULL:
        return <Chain *> calloc(1, sizeof(Chain))
    e.pool = c.next
    e.pooled -= 1
    c.next = NULL
    return c


cdef void egress_recycle(Egress *e, Chain *c) noexcept nogil:
    chain_clear(c)
    if e.pooled >= CHAIN_POOL:
        chain_free(c)
        free(c)
        return
    c.next = e.pool
    e.pool = c
    e.pooled += 1


cdef void outflow_queue(Outflow *o, Chain *c) noexcept nogil:
    c.next = NULL
    if o.last == NULL:
        o.first = c
    else:
        o.last.next = c
    o.last = c
    o.unsent_bytes += c.total_bytes
    o.unsent_replies += 1


cdef void outflow_drop(Outflow *o, Egress *e) noexcept nogil:
    cdef Chain *c
    while o.first != NULL:
        c = o.first
        o.first = c.next
        egress_recycle(e, c)
    o.last = NULL
    o.unsent_bytes = 0
    o.unsent_replies = 0


cdef void advance(Outflow *o, Egress *e, int64_t sent) noexcept nogil:
    # Walks `sent` bytes on; what is wholly sent is given back at once, so that a segment is not held by a slow reader's tail.
    cdef Chain *c
    cdef Piece *piece
    cdef int64_t rest
    o.unsent_bytes -= sent
    while o.first != NULL:
        c = o.first
        while c.next_piece < c.piece_count:
            piece = &c.pieces[c.next_piece]
            rest = piece.length - c.sent_in_piece
            if sent < rest:
                c.sent_in_piece += sent
                return
            sent -= rest
            c.sent_in_piece = 0
            c.next_piece += 1
            if piece.drop != NULL:
                piece.drop(piece.owner)
                piece.drop = NULL
        o.first = c.next
        if o.first == NULL:
            o.last = NULL
        o.unsent_replies -= 1
        egress_recycle(e, c)
        if sent == 0:
            return


cdef bint make_scratch(Egress *e) noexcept nogil:
    if e.scratch == NULL:
        e.scratch = <uint8_t *> malloc(COPY_SLICE_BYTES)
    return e.scratch != NULL


cdef ssize_t send_runs(Outflow *o, Egress *e, int fd, const Transform *t, void *state, int64_t *asked) noexcept nogil:
    # Gathers byte runs over as many replies as lie before the next large file slice. Small slices are copied in between:
    # one pread is cheaper than a sendfile and the further sendmsg for what stands behind it. What the socket does not take
    # is read again next time: a slow reader owns no copy.
    cdef iovec runs[IOV_PIECES]
    cdef msghdr message
    cdef Chain *c = o.first
    cdef Piece *piece
    cdef int32_t i = c.next_piece
    cdef int64_t skip = c.sent_in_piece
    cdef int64_t length
    cdef int64_t copied = 0
    cdef int count = 0
    cdef int flags = SEND_QUIETLY
    asked[0] = 0
    while c != NULL and count < IOV_PIECES:
        if i == c.piece_count:
            c = c.next
            i = 0
            continue
        piece = &c.pieces[i]
        length = piece.length - skip
        if piece.fd < 0:
            runs[count].iov_base = c.arena + piece.start + skip
        else:
            if piece.length > SMALL_SLICE_BYTES or copied + length > COPY_SLICE_BYTES or not make_scratch(e):
                # The slice follows at once: let the header wait for it instead of leaving in a packet of its own.
                flags |= SEND_MORE
                break
            if pread_resident(piece.fd, e.scratch + copied, length, piece.start + skip) != length:
                break                        # cold or broken: it is next, and looked at by itself
            runs[count].iov_base = e.scratch + copied
            copied += length
        runs[count].iov_len = length
        asked[0] += length
        skip = 0
        count += 1
        i += 1
    if count == 0:
        return 0
    if t != NULL:
        return t.send(state, fd, runs, count)
    memset(&message, 0, sizeof(message))
    message.msg_iov = runs
    message.msg_iovlen = count
    return sendmsg(fd, &message, flags)


cdef ssize_t send_copy(Egress *e, int fd, const Transform *t, void *state, int file_fd, int64_t position,
                       int64_t length) noexcept nogil:
    # pread + send. What the socket does not take is read again next time: a slow reader owns no copy.
    cdef iovec run
    cdef msghdr message
    cdef ssize_t n
    if not make_scratch(e):
        return -1
    n = pread(file_fd, e.scratch, COPY_SLICE_BYTES if length > COPY_SLICE_BYTES else length, position)
    if n <= 0:
        return n
    run.iov_base = e.scratch
    run.iov_len = n
    if t != NULL:
        return t.send(state, fd, &run, 1)
    memset(&message, 0, sizeof(message))
    message.msg_iov = &run
    message.msg_iovlen = 1
    return sendmsg(fd, &message, SEND_QUIETLY)


cdef ssize_t send_slice(Outflow *o, Egress *e, int fd, const Transform *t, void *state, int64_t budget) noexcept nogil:
    cdef Piece *piece = &o.first.pieces[o.first.next_piece]
    cdef int64_t position = piece.start + o.first.sent_in_piece
    cdef int64_t length = piece.length - o.first.sent_in_piece
    cdef ssize_t n
    if length > budget:
        length = budget
    if t == NULL and not e.portable:
        n = send_file(fd, piece.fd, position, length)
        # A descriptor that cannot be spliced (some file systems) is copied.
        if n >= 0 or (errno != EINVAL and errno != ENOSYS):
            return n
    return send_copy(e, fd, t, state, piece.fd, position, length)


cdef inline bint is_the_files(int code) noexcept nogil:
    # Of what a call that reads a file and writes a socket may say: what only a file says.
    return code == EIO or code == ENODEV or code == ENXIO or code == ESTALE


cdef inline bint next_is_cold(const Outflow *o, int64_t budget) noexcept nogil:
    cdef const Piece *piece = &o.first.pieces[o.first.next_piece]
    cdef int64_t length = piece.length - o.first.sent_in_piece
    return not is_resident(piece.fd, piece.start + o.first.sent_in_piece, length if length < budget else budget)


cdef inline bint slice_is_followed(const Outflow *o) noexcept nogil:
    # Whether the first reply has a slice for sendfile next, with or without a byte run before it, and something behind it.
    cdef const Chain *c = o.first
    cdef int32_t i = c.next_piece
    if c.pieces[i].fd < 0:
        i += 1
    return i + 1 < c.piece_count and c.pieces[i].fd >= 0 and c.pieces[i].length > SMALL_SLICE_BYTES


cdef Sent outflow_send(Outflow *o, Egress *e, int fd, const Transform *t, void *transform_state, bint may_wait,
                       int64_t *sent) noexcept nogil:
    # The few bytes behind a slice share its last packet: sendfile alone would push the packet out half full, and wake the
    # reader once for each.
    cdef bint corked = False
    cdef Sent outcome
    if t == NULL and not e.portable and o.first != NULL and slice_is_followed(o):
        cork(fd, 1)
        corked = True
    outcome = send_pieces(o, e, fd, t, transform_state, may_wait, sent)
    if corked:
        cork(fd, 0)
    return outcome


cdef Sent send_pieces(Outflow *o, Egress *e, int fd, const Transform *t, void *transform_state, bint may_wait,
                      int64_t *sent) noexcept nogil:
    cdef int64_t budget = SENDFILE_CHUNK_BYTES
    cdef int64_t asked
    cdef ssize_t n
    cdef Piece *piece
    sent[0] = 0
    while o.first != NULL:
        if budget <= 0:
            return TURN_OVER
        piece = &o.first.pieces[o.first.next_piece]
        asked = 0
        n = 0
        if piece.fd < 0 or piece.length <= SMALL_SLICE_BYTES:
            n = send_runs(o, e, fd, t, transform_state, &asked)
        if asked == 0:
            if not may_wait and next_is_cold(o, budget):
                return SLICE_COLD
            n = send_slice(o, e, fd, t, transform_state, budget)
            if n == 0:
                return SLICE_FAILED
        if n < 0:
            if errno == EINTR:
                continue
            if errno == EAGAIN:
                return BLOCKED
            if asked != 0 or not is_the_files(errno):
                return SEND_FAILED
            if piece.blame != NULL:
                piece.blame(piece.owner, -errno)
            return SLICE_FAILED
        sent[0] += n
        budget -= n
        advance(o, e, n)
        if n < asked:
            return BLOCKED               # a short send is a full socket; no need to hear it again as EAGAIN
    return ALL_SENT
