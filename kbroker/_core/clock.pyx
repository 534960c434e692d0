# The broker's clock: the system's, or one that stands still until it is moved.
from libc.stdint cimport int32_t, int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from kbroker._core.c.prelude cimport load_int32, load_int64, store_int32, store_int64


cdef inline int64_t system_us(int which) noexcept nogil:
    cdef timespec t
    clock_gettime(which, &t)
    return <int64_t> t.tv_sec * 1000000 + t.tv_nsec // 1000


cdef int64_t wall_ms(const Clock *clock) noexcept nogil:
    if load_int32(&clock.held):
        return load_int64(&clock.held_wall_ms)
    return system_us(CLOCK_REALTIME) // 1000 + load_int64(&clock.skew_ms)


cdef int64_t mono_ms(const Clock *clock) noexcept nogil:
    if load_int32(&clock.held):
        return load_int64(&clock.held_mono_ms)
    return system_us(CLOCK_MONOTONIC) // 1000 + load_int64(&clock.skew_ms)


cdef int64_t mono_us() noexcept nogil:
    return system_us(CLOCK_MONOTONIC)


cdef class BrokerClock:
    """One broker's time. It runs with the system's until hold() stops it; then only advance() moves it."""

    def __cinit__(self) -> None:
        self.c.skew_ms = 0
        self.c.held = 0

    @property
    def is_held(self) -> bool:
        return bool(load_int32(&self.c.held))

    def now_ms(self) -> int:
        return wall_ms(&self.c)

    def monotonic_ms(self) -> int:
        return mono_ms(&self.c)

    def hold(self, wall: int | None = None) -> None:
        cdef int64_t at = wall_ms(&self.c) if wall is None else wall
        cdef int64_t mono = mono_ms(&self.c)
        store_int64(&self.c.held_wall_ms, at)
        store_int64(&self.c.held_mono_ms, mono)
        store_int32(&self.c.held, 1)

    def advance(self, milliseconds: int) -> None:
        if milliseconds < 0:
            raise ValueError(f"time does not run backwards: advance({milliseconds})")
        if self.c.held:
            store_int64(&self.c.held_wall_ms, self.c.held_wall_ms + milliseconds)
            store_int64(&self.c.held_mono_ms, self.c.held_mono_ms + milliseconds)
        else:
            store_int64(&self.c.skew_ms, self.c.skew_ms + milliseconds)
