# service: what a loop does for one connection: receive, cut into frames, dispatch, queue the answer, send, close.
# Owns        nothing; the Loop and the Connection do.
# Called by   net/loop.
# Threads     the connection's network thread.
# Invariants  any of these may close the connection: look at c.fd (-1) before going on with it.
from libc.stdint cimport UINT32_MAX, int32_t, int64_t, uint32_t, uint64_t

from kbroker._core.limits cimport REPLIES_IN_FLIGHT_MAX, REPLY_BYTES_IN_FLIGHT_MAX
from kbroker._core.net.connection cimport NO_REQUEST, Connection
from kbroker._core.net.loop cimport Loop, reply_bytes_allowed
from kbroker._core.net.mailbox cimport Address
from kbroker._core.wire.chain cimport Chain

cdef Connection *free_slot(Loop *l) noexcept nogil                              # NULL: no memory
cdef bint service_adopt(Loop *l, int fd, const Address *address, int32_t listener_index) noexcept nogil   # False: it was closed
cdef void service_event(Loop *l, Connection *c, int what) noexcept nogil        # the poller's news
cdef void service_resume(Loop *l, Connection *c) noexcept nogil                 # whatever can go on now does
cdef void service_answer(Loop *l, Connection *c, Chain *reply) noexcept nogil   # of the waiting request; takes the chain over; NULL: no answer
cdef void service_retry_post(Loop *l, Connection *c) noexcept nogil             # of a stalled request
cdef void service_warmed(Loop *l, Connection *c) noexcept nogil                 # its cold slice is in memory
cdef bint service_has_unread(const Connection *c) noexcept nogil                # its client has sent more than was received
cdef void service_mute(Loop *l, Connection *c, int64_t milliseconds) noexcept nogil
cdef void service_finish(Loop *l, Connection *c, int reason, const char *text) noexcept nogil   # close once all is sent; text is logged
cdef void service_close(Loop *l, Connection *c, int reason) noexcept nogil      # at once

cdef inline uint64_t next_generation(Loop *l) noexcept nogil:
    # 32 bits of generation reach the poller; all ones is kept for the bell and the listeners.
    l.last_generation += 1
    if <uint32_t> l.last_generation == UINT32_MAX:
        l.last_generation = 1
    return l.last_generation

cdef inline uint64_t connection_key(const Connection *c) noexcept nogil:
    # What the poller gives back: news for a connection that has gone meanwhile must not reach its slot's next tenant.
    return (c.generation << 32) | <uint64_t> c.slot

cdef inline bint may_go_on(const Loop *l, const Connection *c) noexcept nogil:
    # Back-pressure, throttling and shutdown all say no here.
    return (not c.closing and c.muted_until_ms == 0 and not l.draining
            and c.out.unsent_bytes < REPLY_BYTES_IN_FLIGHT_MAX and c.out.unsent_replies < REPLIES_IN_FLIGHT_MAX
            and not c.starved and (c.reply_bytes == 0 or l.reply_bytes < reply_bytes_allowed(l) // 2))

cdef inline bint may_handle(const Loop *l, const Connection *c) noexcept nogil:
    # Whether the next frame may be looked at: order, and what may_go_on says.
    return c.waiting == NO_REQUEST and may_go_on(l, c)

cdef inline Connection *find_connection(Loop *l, int32_t slot) noexcept nogil:
    if slot < 0 or slot >= l.slot_count or l.slots[slot].fd < 0:
        return NULL
    return l.slots[slot]
