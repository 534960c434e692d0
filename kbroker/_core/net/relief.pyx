# Measures how full each network thread is, and moves connections to the relief thread and back.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from posix.unistd cimport close

from kbroker._core.c.prelude cimport add_counter, full_fence, load_int32, load_int64, store_int32, store_int64
from kbroker._core.clock cimport mono_us
from kbroker._core.limits cimport (
    RELIEF_FULL_PERCENT,
    RELIEF_IDLE_MS,
    RELIEF_SPARE_PERCENT,
    RELIEF_STALE_US,
    RELIEF_WINDOW_US,
)
from kbroker._core.net.budget cimport budget_give
from kbroker._core.net.connection cimport NO_REQUEST, Connection, Link, linked, list_append, list_remove
from kbroker._core.net.listener cimport admission_leave
from kbroker._core.net.loop cimport NO_ROOM, Loop
from kbroker._core.net.mailbox cimport ARRIVE, Message, inbox_put, inbox_ring, message_new
from kbroker._core.net.poller cimport READABLE, bell_ring, poller_add, poller_remove
from kbroker._core.net.service cimport connection_key, free_slot, next_generation, service_close, service_resume


cdef inline bint is_relief(const Loop *l) noexcept nogil:
    return l.index == l.shared.regular_count


cdef int32_t busy_percent(Loop *l) noexcept nogil:
    # How full the loop's thread was in its last window. A thread without a recent window is asleep.
    if mono_us() - load_int64(&l.measured_us) > RELIEF_STALE_US:
        return 0
    return load_int32(&l.busy_percent)


cdef void relief_turn(Loop *l) noexcept nogil:
    cdef int64_t now_us, elapsed_us
    if l.shared.loop_count == l.shared.regular_count or l.draining:
        return
    now_us = mono_us()
    elapsed_us = now_us - l.window_us
    if elapsed_us >= RELIEF_WINDOW_US:
        store_int32(&l.busy_percent, <int32_t> (100 - l.waited_us * 100 // elapsed_us))
        store_int64(&l.measured_us, now_us)
        forget_leaving(l)
        if is_relief(l):
            choose_to_return(l)
        elif l.busy_percent >= RELIEF_FULL_PERCENT:
            choose_to_lend(l)
        forget_heavy(l)
        l.window_us = now_us
        l.waited_us = 0
    if l.leaving.next != &l.leaving:
        move_leaving(l)


cdef void forget_leaving(Loop *l) noexcept nogil:
    # Connections that could not move within the window stay, until the next window chooses again.
    while l.leaving.next != &l.leaving and not l.shared.move_always:
        list_remove(l.leaving.next)


cdef void forget_heavy(Loop *l) noexcept nogil:
    while l.heavy.next != &l.heavy:
        list_remove(l.heavy.next)


cdef void choose_to_lend(Loop *l) noexcept nogil:
    # Chooses half of the connections with large requests if the relief thread is idle, else one in each window.
    cdef int32_t relief_busy = busy_percent(l.shared.loops[l.shared.regular_count])
    cdef int32_t count = 0
    cdef Link *at = l.heavy.next
    while at != &l.heavy:
        count += 1
        at = at.next
    count //= 2
    if relief_busy >= RELIEF_SPARE_PERCENT:
        return
    if relief_busy > 0 and count > 1 and load_int32(&l.shared.loops[l.shared.regular_count].open_count) > 0:
        count = 1
    at = l.heavy.next
    while count > 0:
        leave(l, at.owner)
        at = at.next
        count -= 1


cdef void choose_to_return(Loop *l) noexcept nogil:
    # Chooses connections without large requests, all connections if their own thread has time for the work of both, and one
    # connection if this thread is full and its own thread is not.
    cdef Connection *c
    cdef int32_t i, own_busy
    cdef bint one_returns = l.busy_percent >= RELIEF_FULL_PERCENT and l.heavy.next != l.heavy.previous
    for i in range(l.slot_count):
        c = l.slots[i]
        if c.fd < 0:
            continue
        own_busy = busy_percent(l.shared.loops[c.own_loop])
        if l.now_ms - c.heavy_ms >= RELIEF_IDLE_MS or own_busy + l.busy_percent < RELIEF_SPARE_PERCENT:
            leave(l, c)
        elif one_returns and own_busy < RELIEF_SPARE_PERCENT and linked(&c.heavy):
            one_returns = False
            leave(l, c)


cdef inline bint may_move(const Connection *c) noexcept nogil:
    return (c.waiting == NO_REQUEST and c.awaited == 0 and c.early == NULL and c.out.first == NULL and c.reply_bytes == 0
            and not c.closing and c.muted_until_ms == 0 and not c.starved and c.beyond == 0 and not c.warming
            and not linked(&c.held) and not linked(&c.starving) and not linked(&c.behind))


cdef void move_leaving(Loop *l) noexcept nogil:
    cdef Link *at = l.leaving.next
    cdef Connection *c
    while at != &l.leaving:
        c = at.owner
        at = at.next
        if may_move(c):
            list_remove(&c.leaving)
            move(l, c, l.shared.loops[c.own_loop if is_relief(l) else l.shared.regular_count])


cdef bint move(Loop *l, Connection *c, Loop *to) noexcept nogil:
    cdef Message *m = message_new(ARRIVE, <const uint8_t *> c, sizeof(Connection))
    if m == NULL:
        return False
    add_counter(&l.shared.in_transit, 1)
    l.counters.moved += 1
    poller_remove(&l.poller, c.fd)
    l.receiver.lent_bytes -= c.capacity
    list_remove(&c.idle)
    list_remove(&c.turn)
    list_remove(&c.heavy)
    c.fd = -1
    c.generation = 0
    c.own = NULL
    c.capacity = 0
    c.start = 0
    c.filled = 0
    c.charged = 0
    c.more = 0
    c.transform = NULL
    list_append(&l.free, &c.turn)
    store_int32(&l.open_count, l.open_count - 1)
    inbox_put(&to.inbox, m)
    return True


cdef void unlink(Link *link, Connection *owner) noexcept nogil:
    link.next = NULL
    link.previous = NULL
    link.owner = owner


cdef void relief_discard(Loop *l, const Connection *moved, int reason) noexcept nogil:
    l.counters.closed[reason] += 1
    free(moved.own)
    if moved.charged > 0:
        budget_give(&l.shared.requests, moved.charged)
    if moved.transform != NULL:
        moved.transform.release(moved.transform_state)
    close(moved.fd)
    if admission_leave(&l.shared.admission, &moved.address):
        inbox_ring(&l.shared.loops[0].inbox)
    add_counter(&l.shared.in_transit, <uint64_t> -1)
    if l.draining:
        bell_ring(&l.shared.emptied)


cdef void insert_idle(Loop *l, Connection *c) noexcept nogil:
    # Sorted by the time of the last byte, so that a move does not prolong connections.max.idle.ms.
    cdef Link *before = &l.idle
    while before.previous != &l.idle and before.previous.owner.active_ms > c.active_ms:
        before = before.previous
    list_append(before, &c.idle)


cdef void relief_arrive(Loop *l, const Connection *moved) noexcept nogil:
    cdef Connection *c = free_slot(l)
    cdef int32_t slot
    if c == NULL:
        relief_discard(l, moved, NO_ROOM)
        return
    slot = c.slot
    c[0] = moved[0]
    c.slot = slot
    unlink(&c.idle, c)
    unlink(&c.turn, c)
    unlink(&c.held, c)
    unlink(&c.starving, c)
    unlink(&c.behind, c)
    unlink(&c.heavy, c)
    unlink(&c.leaving, c)
    c.generation = next_generation(l)
    c.interest = READABLE
    c.heavy_ms = l.now_ms
    insert_idle(l, c)
    l.receiver.lent_bytes += c.capacity
    store_int32(&l.open_count, l.open_count + 1)
    full_fence()                         # Core.drain reads in_transit first
    add_counter(&l.shared.in_transit, <uint64_t> -1)
    if poller_add(&l.poller, c.fd, connection_key(c), READABLE) < 0:
        service_close(l, c, NO_ROOM)
        return
    service_resume(l, c)
