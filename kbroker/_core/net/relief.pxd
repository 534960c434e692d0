# relief: one further network thread that serves connections with large requests while their own thread is full.
# Owns        a connection on its way between two loops. The loops own the lists of connections that it reads and changes.
# Threads     each function runs in the loop's own thread. A moving connection belongs to the inbox message that carries it.
# Invariants  a connection moves only between turns and only if nothing refers to its loop and slot: no request is parked or
#             posted, no reply is unsent, no cold slice is being read, it is not muted, starved or closing. Received bytes and
#             their charge to the budget move with it, so no byte is lost and replies keep their order.
#             Shared.in_transit counts connections that no loop has. After all loops have begun to drain it only falls.
#             A relief thread without connections sleeps until its inbox is rung.
# Fails by    without memory for the message the connection stays in its loop; without memory for a slot it is closed.
#
# Measured on two cores: a second thread handles 512 KiB produce requests 1.4 times as fast and 1 MiB fetches 1.5 times, but
# one-record requests at 0.9 and 64 KiB fetches at 0.7 of the speed of one thread, and waking it adds 50 us to a produce
# request at low load. So only connections with large requests or replies move, and only while their thread is full.
from kbroker._core.net.connection cimport Connection, linked, list_append
from kbroker._core.net.loop cimport Loop

cdef void relief_turn(Loop *l) noexcept nogil                                  # at the end of a turn: measures, chooses, moves
cdef void relief_arrive(Loop *l, const Connection *moved) noexcept nogil       # opens the connection of an ARRIVE message
cdef void relief_discard(Loop *l, const Connection *moved, int reason) noexcept nogil   # closes it instead

cdef inline void leave(Loop *l, Connection *c) noexcept nogil:
    if not linked(&c.leaving):
        list_append(&l.leaving, &c.leaving)

cdef inline void relief_note(Loop *l, Connection *c) noexcept nogil:
    # A large request or reply of the connection.
    if l.shared.loop_count == l.shared.regular_count:
        return
    c.heavy_ms = l.now_ms
    if not linked(&c.heavy):
        list_append(&l.heavy, &c.heavy)
    if l.shared.move_always:
        leave(l, c)
