# core: the Python door to one broker's native side: its network threads, listeners, mailbox and published state.
# Owns        everything in Shared, the loops and their threads.
# Called by   gateway and broker (Python). Several Cores live in one process; nothing is shared between them.
# Threads     all methods: any Python thread. take() and events(): one at a time.
# Invariants  close() ends the threads and gives back every descriptor; it may be called twice. drain() first is the polite way.
from kbroker._core.clock cimport BrokerClock
from kbroker._core.net.loop cimport Loop, Shared
from kbroker._core.net.mailbox cimport Message
from kbroker._core.views cimport ViewHandle

cdef class Core:
    cdef Shared s
    cdef BrokerClock _clock          # keeps s.clock alive
    cdef list _threads
    cdef dict _taken                 # posted requests that Python has: token -> what they cost the budget
    cdef list _views                 # keeps s.views alive
    cdef readonly list addresses     # (host, port) that each listener is bound to, in the order of listen()
    cdef int _listeners
    cdef bint _opened
    cdef bint _started
    cdef bint _closed
    cdef void _release(self) noexcept
    cdef int _override(self, bytes host, int own_max) except 1
    cdef void _give_back(self, token)
    cdef void _put(self, int loop_index, Message *m) noexcept
    cdef int _view_index(self, ViewHandle view) except -1
    cdef void _check_open(self) except *
