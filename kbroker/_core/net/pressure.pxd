# pressure: what a loop does when the memory that clients may use is short.
#   requests   a frame that does not fit waits unread until the budget has room or it may go beyond. Those that began early go
#              first, and those of which little is missing (STARVED_BYTES_PER_MS): they soon make room, and a crowd that claims
#              much and sends little is behind them, yet none is overtaken for ever. Meanwhile whoever holds part of a request
#              must send FRAME_PACE_BYTES of it every FRAME_PACE_MS, or is closed: otherwise a thousand half frames, or one that
#              went beyond, would keep everyone else's out.
#   replies    bytes of unsent replies; file slices cost no memory and are not counted. Above half of the loop's share whoever has
#              unsent replies is not read; above all of it the one that has taken nothing for the longest is closed.
# Owns        nothing; the Loop and the Budget do.
# Called by   net/loop, once a turn.
# Threads     the loop's.
from kbroker._core.net.loop cimport Loop

cdef void pressure_turn(Loop *l) noexcept nogil
