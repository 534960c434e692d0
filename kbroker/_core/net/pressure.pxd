# pressure: what a loop does when the memory that clients may use is short.
#   requests   a frame that was not let in waits unread, oldest first, until the budget has room. Meanwhile whoever holds part of
#              a request must send it at FRAME_RATE_BYTES_PER_MS at least, FRAME_GRACE_MS for the start aside, or is closed:
#              otherwise a thousand half frames would keep everyone else's out.
#   replies    bytes of unsent replies; file slices cost no memory and are not counted. Above half of the loop's share whoever has
#              unsent replies is not read; above all of it the one that has taken nothing for the longest is closed.
# Owns        nothing; the Loop and the Budget do.
# Called by   net/loop, once a turn.
# Threads     the loop's.
from kbroker._core.net.loop cimport Loop

cdef void pressure_turn(Loop *l, bint woken) noexcept nogil      # woken: someone may have given something back
