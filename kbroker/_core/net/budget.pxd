# budget: how much of what clients send may be held at once, all connections together.
# Owns        two numbers and a limit.
# Called by   net/connection (a buffer is lent, grows and is given back), net/service (a frame is posted), net/pressure,
#             core (a posted one is answered).
# Threads     any: atomic, without a lock. Touched when a frame must be kept beyond its turn, never for one that is handled at once.
# Invariants  what is held counts, never what a frame claims. A buffer grows only while it fits, so many halves can fill the
#             limit and none of them go on. Therefore each network thread lets some go beyond it to their end, as long as no
#             more is missing of them all than the largest frame has. They are read and hurried (net/pressure), so they end and
#             make room: none waits for ever, also with a limit below the largest frame, and what lies beyond is at most one
#             such frame per thread. What the control loop has is answered in time: only if that alone reaches the limit does
#             nobody go beyond.
from libc.stdint cimport int32_t, int64_t, uint64_t

from kbroker._core.c.prelude cimport add_counter, full_fence, load_counter

cdef struct Budget:
    int64_t limit_bytes
    int64_t used_bytes
    int64_t posted_bytes                           # of these: the control loop has them
    uint64_t starved                               # connections that wait for room
    void *context
    void (*relieved)(void *context) noexcept nogil

cdef inline int64_t budget_used(const Budget *b) noexcept nogil:
    return <int64_t> load_counter(<const uint64_t *> &b.used_bytes)

cdef inline bint budget_short(const Budget *b) noexcept nogil:
    # Nobody should receive more than can be handled at once.
    return budget_used(b) >= b.limit_bytes

cdef inline bint budget_may_exceed(const Budget *b) noexcept nogil:
    return <int64_t> load_counter(<const uint64_t *> &b.posted_bytes) < b.limit_bytes

cdef inline bint budget_starving(const Budget *b) noexcept nogil:
    return load_counter(&b.starved) > 0

cdef inline void budget_take(Budget *b, int64_t bytes) noexcept nogil:
    add_counter(<uint64_t *> &b.used_bytes, <uint64_t> bytes)

cdef inline void budget_give(Budget *b, int64_t bytes) noexcept nogil:
    add_counter(<uint64_t *> &b.used_bytes, <uint64_t> -bytes)
    full_fence()                                   # given first, looked for who waits then; budget_starve does the reverse
    if budget_starving(b) and not budget_short(b):
        b.relieved(b.context)

cdef inline bint budget_reserve(Budget *b, int64_t bytes) noexcept nogil:
    # False: they do not fit, and nothing is taken.
    if budget_used(b) + bytes > b.limit_bytes:
        return False
    if <int64_t> add_counter(<uint64_t *> &b.used_bytes, <uint64_t> bytes) + bytes <= b.limit_bytes:
        return True
    budget_give(b, bytes)                          # another thread was faster
    return False

cdef inline void budget_post(Budget *b, int64_t bytes) noexcept nogil:
    add_counter(<uint64_t *> &b.posted_bytes, <uint64_t> bytes)
    budget_take(b, bytes)

cdef inline void budget_answer(Budget *b, int64_t bytes) noexcept nogil:
    cdef int64_t posted = <int64_t> add_counter(<uint64_t *> &b.posted_bytes, <uint64_t> -bytes)
    budget_give(b, bytes)
    if posted >= b.limit_bytes and budget_starving(b):
        b.relieved(b.context)

cdef inline void budget_starve(Budget *b, int32_t by) noexcept nogil:
    # Said first, looked for room then (net/pressure, in the next turn): whoever gives back in between has seen it.
    add_counter(&b.starved, <uint64_t> <int64_t> by)
    full_fence()
