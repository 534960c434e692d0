# egress: sends the replies of a connection in order: byte runs gathered by sendmsg, file slices by sendfile.
# Owns        an Outflow owns its chains until they are sent or dropped; an Egress owns the pool of chains of its loop.
# Called by   net/loop.
# Threads     one network thread.
# Returns     a Sent. After BLOCKED the caller asks the poller for WRITABLE and comes again: sending resumes where it stood.
# Invariants  chains leave strictly in the order they were queued; unsent_bytes is what they still have to send.
from libc.stdint cimport int32_t, int64_t, uint8_t
from posix.uio cimport iovec

from kbroker._core.wire.chain cimport Chain

# The seam for TLS: how bytes pass between a connection and its socket. NULL: as they are. receive and send follow recv and
# sendmsg: -1 with errno set, EAGAIN when the socket must be waited for. A transformed connection does not use sendfile.
cdef struct Transform:
    void *(*open)(void *context) noexcept nogil          # one connection's state; NULL: refused
    ssize_t (*receive)(void *state, int fd, uint8_t *into, size_t length) noexcept nogil
    ssize_t (*send)(void *state, int fd, const iovec *runs, int count) noexcept nogil
    int64_t (*buffered)(void *state) noexcept nogil      # bytes that `receive` gives without the socket: the poller is silent on them
    void (*release)(void *state) noexcept nogil

cdef struct Outflow:
    Chain *first
    Chain *last
    int64_t unsent_bytes
    int32_t unsent_replies

cdef struct Egress:
    bint portable              # pread + send instead of sendfile
    uint8_t *scratch           # COPY_SLICE_BYTES, made when first needed
    Chain *pool
    int32_t pooled

cdef enum Sent:
    ALL_SENT = 0
    BLOCKED = 1                # the socket is full
    TURN_OVER = 2              # enough for this turn; there is more
    SEND_FAILED = 3            # the socket's doing
    SLICE_COLD = 5             # the next slice is not in memory: let the warmer fetch it first
    SLICE_FAILED = 4           # the file's: unreadable, or shorter than the reply promised

cdef void egress_close(Egress *e) noexcept nogil
cdef Chain *egress_chain(Egress *e) noexcept nogil                          # an empty chain; NULL: no memory
cdef void egress_recycle(Egress *e, Chain *c) noexcept nogil
cdef void outflow_queue(Outflow *o, Chain *c) noexcept nogil                # takes the chain over
cdef void outflow_drop(Outflow *o, Egress *e) noexcept nogil                # gives everything unsent back
# may_wait: a cold slice is read from the disk here, while the thread waits.
cdef Sent outflow_send(Outflow *o, Egress *e, int fd, const Transform *t, void *transform_state, bint may_wait,
                       int64_t *sent) noexcept nogil
