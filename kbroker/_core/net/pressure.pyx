# Waiting for memory, and making room.
from libc.stdint cimport int32_t, int64_t

from kbroker._core.c.prelude cimport load_int32
from kbroker._core.limits cimport FRAME_GRACE_MS, FRAME_PATROL_MS, FRAME_RATE_BYTES_PER_MS
from kbroker._core.net.budget cimport budget_full, budget_wait
from kbroker._core.net.connection cimport POSTED_REQUEST, STALLED_REQUEST, Connection, Link, connection_admit, list_remove
from kbroker._core.net.loop cimport MEMORY_SHORT, Loop
from kbroker._core.net.mailbox cimport CLOSED, events_note
from kbroker._core.net.service cimport service_close, service_finish, service_resume


cdef void pressure_turn(Loop *l, bint woken) noexcept nogil:
    if l.starved.next != &l.starved and woken:
        let_in(l)
    if load_int32(&l.shared.requests.waiting) and l.now_ms >= l.patrol_ms and budget_full(&l.shared.requests):
        l.patrol_ms = l.now_ms + FRAME_PATROL_MS
        close_slow_senders(l)
    if l.reply_bytes > l.reply_bytes_max:
        close_slow_readers(l)


cdef void let_in(Loop *l) noexcept nogil:
    cdef Connection *c
    while l.starved.next != &l.starved:
        if budget_full(&l.shared.requests) and budget_wait(&l.shared.requests):
            return
        c = l.starved.next.owner
        list_remove(&c.starving)
        connection_admit(c, &l.receiver)
        service_resume(l, c)


cdef inline bint is_slow(const Loop *l, const Connection *c) noexcept nogil:
    # A request that the control loop has is not its client's fault, nor a frame that is not let in, nor a mute connection.
    cdef int64_t late_ms = l.now_ms - c.begun_ms - FRAME_GRACE_MS
    return (c.fd >= 0 and c.charged > 0 and not c.starved and c.waiting != POSTED_REQUEST and c.waiting != STALLED_REQUEST
            and c.muted_until_ms == 0 and late_ms > 0 and c.filled - c.start < late_ms * FRAME_RATE_BYTES_PER_MS)


cdef void close_slow_senders(Loop *l) noexcept nogil:
    cdef int32_t i
    for i in range(l.slot_count):
        if is_slow(l, l.slots[i]):
            service_finish(l, l.slots[i], MEMORY_SHORT, b"held part of a request for too long while memory was short")


cdef void close_slow_readers(Loop *l) noexcept nogil:
    # The last one stays: a reply larger than the bound is sent too. Whoever waits for the disk is not behind by its own doing.
    cdef Link *at = l.behind.next
    cdef Connection *c
    while l.reply_bytes > l.reply_bytes_max and at != &l.behind and l.behind.next != l.behind.previous:
        c = at.owner
        at = at.next
        if c.warming:
            continue
        events_note(&l.shared.events, CLOSED, b"did not read its replies while memory was short", &c.address)
        l.posted = True
        service_close(l, c, MEMORY_SHORT)
