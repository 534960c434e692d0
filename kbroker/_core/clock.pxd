# clock: the broker's time. Every deadline, timestamp check and idle timeout reads it here, so that a test can hold it.
# Owns        the Clock struct, shared by all threads of one broker through a pointer.
# Threads     wall_ms, mono_ms, mono_us: any. The setters: the control thread.
# Invariants  a running clock is the system's plus `skew_ms`; a held one moves only by advance().
from libc.stdint cimport int32_t, int64_t

cdef struct Clock:
    int64_t skew_ms        # added to the system's clocks while running
    int64_t held_wall_ms   # the wall time while held
    int64_t held_mono_ms   # the monotonic time while held
    int32_t held           # 0 runs, 1 held

cdef int64_t wall_ms(const Clock *clock) noexcept nogil
cdef int64_t mono_ms(const Clock *clock) noexcept nogil
cdef int64_t mono_us() noexcept nogil      # for latency figures only: always the system's

cdef class BrokerClock:
    cdef Clock c
