# Waiting for memory, and making room.
from libc.stdint cimport int32_t

from kbroker._core.limits cimport FRAME_PACE_BYTES, FRAME_PACE_MS, FRAME_PATROL_MS
from kbroker._core.net.budget cimport budget_starving
from kbroker._core.net.connection cimport (
    NO_REQUEST,
    PARKED_REQUEST,
    Connection,
    Link,
    connection_admit,
    connection_pace,
    connection_tighten,
    list_remove,
)
from kbroker._core.net.loop cimport MEMORY_SHORT, NO_ROOM, Loop, reply_bytes_allowed
from kbroker._core.net.mailbox cimport CLOSED, events_note
from kbroker._core.net.service cimport service_close, service_finish, service_has_unread, service_resume


cdef void pressure_turn(Loop *l) noexcept nogil:
    if l.now_ms >= l.patrol_ms and budget_starving(&l.shared.requests):
        l.patrol_ms = l.now_ms + FRAME_PATROL_MS
        make_room(l)
    if l.starved.next != &l.starved:
        let_in(l)
    if l.reply_bytes > reply_bytes_allowed(l):
        close_slow_readers(l)


cdef void let_in(Loop *l) noexcept nogil:
    cdef Connection *c
    cdef int admitted
    while l.starved.next != &l.starved:
        c = l.starved.next.owner
        admitted = connection_admit(c, &l.receiver)
        if admitted == 0:
            return
        list_remove(&c.starving)
        if admitted < 0:
            service_finish(l, c, NO_ROOM, b"out of memory for a request")
        service_resume(l, c)


cdef inline bint is_slow(Loop *l, Connection *c) noexcept nogil:
    cdef bint polls = c.waiting == PARKED_REQUEST and c.long_poll
    if c.fd < 0 or c.charged == 0:
        return False
    # It is not the client's doing that we are not done with its request, have muted it, or do not read what it sends.
    if ((c.waiting != NO_REQUEST and not polls) or c.muted_until_ms != 0 or (c.starved and service_has_unread(c))
            or c.filled - c.start - c.paced_bytes >= FRAME_PACE_BYTES):
        connection_pace(c, &l.receiver)
    return l.now_ms - c.paced_ms > FRAME_PACE_MS


cdef void make_room(Loop *l) noexcept nogil:
    cdef int32_t i
    for i in range(l.slot_count):
        if is_slow(l, l.slots[i]):
            service_finish(l, l.slots[i], MEMORY_SHORT, b"held part of a request for too long while memory was short")
        else:
            connection_tighten(l.slots[i], &l.receiver)


cdef void close_slow_readers(Loop *l) noexcept nogil:
    # The last one stays: a reply larger than the bound is sent too. Whoever waits for the disk is not behind by its own doing.
    cdef Link *at = l.behind.next
    cdef Connection *c
    while l.reply_bytes > reply_bytes_allowed(l) and at != &l.behind and l.behind.next != l.behind.previous:
        c = at.owner
        at = at.next
        if c.warming:
            continue
        events_note(&l.shared.events, CLOSED, b"did not read its replies while memory was short", &c.address)
        l.posted = True
        service_close(l, c, MEMORY_SHORT)
