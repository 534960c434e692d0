# budget: how much of what clients send may be held at once, all connections together.
# Owns        one number and its limit.
# Called by   net/connection (a frame begins and ends), net/service (a frame is posted), net/pressure, core (a posted one is answered).
# Threads     any: atomic, without a lock. Touched when a frame must be kept beyond its turn, never for one that is handled at once.
# Invariants  a frame is let in while those that were let in have not reached the limit, and then wholly: so the last one let in by each network thread
#             overshoots, a limit below the largest frame still lets every frame through, and one that was let in is never
#             stopped half way (no two can wait for each other).
from libc.stdint cimport int32_t, int64_t, uint64_t

from kbroker._core.c.prelude cimport add_counter, full_fence, load_counter, load_int32, raise_flag, store_int32

cdef struct Budget:
    int64_t limit_bytes
    int64_t used_bytes
    int64_t starved_bytes                          # of these: held by connections that wait for room themselves
    int32_t waiting                                # someone was not let in, and wants to be told of room
    void *context
    void (*relieved)(void *context) noexcept nogil

cdef inline bint budget_short(const Budget *b) noexcept nogil:
    # Nobody should receive more than can be handled at once.
    return <int64_t> load_counter(<const uint64_t *> &b.used_bytes) >= b.limit_bytes

cdef inline bint budget_full(const Budget *b) noexcept nogil:
    # Nobody is let in. What the waiting hold is left out: they would wait for themselves.
    return <int64_t> (load_counter(<const uint64_t *> &b.used_bytes)
                      - load_counter(<const uint64_t *> &b.starved_bytes)) >= b.limit_bytes

cdef inline void budget_take(Budget *b, int64_t bytes) noexcept nogil:
    add_counter(<uint64_t *> &b.used_bytes, <uint64_t> bytes)

cdef inline void budget_give(Budget *b, int64_t bytes) noexcept nogil:
    add_counter(<uint64_t *> &b.used_bytes, <uint64_t> -bytes)
    full_fence()                                   # given first, looked for who waits then; budget_wait does the reverse
    if load_int32(&b.waiting) and not budget_full(b):
        store_int32(&b.waiting, 0)
        b.relieved(b.context)

cdef inline void budget_starve(Budget *b, int64_t bytes) noexcept nogil:
    add_counter(<uint64_t *> &b.starved_bytes, <uint64_t> bytes)

cdef inline bint budget_wait(Budget *b) noexcept nogil:
    # False: there is room after all, and everyone is told. Said first and looked at then: whoever gives back in between has
    # seen the word.
    raise_flag(&b.waiting)
    full_fence()
    if budget_full(b):
        return True
    store_int32(&b.waiting, 0)
    b.relieved(b.context)
    return False
