# poller: which sockets are ready, by epoll or, in a portable Core, by poll(2); and the bell that wakes it.
# Owns        the epoll descriptor or the pollfd array; a bell owns its eventfd (or pipe).
# Called by   net/loop, net/mailbox, core.
# Threads     a Poller: its loop. bell_ring: any thread; bell_clear: the one that waits for it.
# Returns     0 or a count, or -errno. Never raises, never takes the GIL.
# Invariants  level-triggered: what is not consumed is reported again, so whoever will not read drops READABLE.
#             GONE (both directions closed, or an error) is reported whatever the interest; on macOS only with READABLE or WRITABLE.
#             HALF (the peer will send nothing more) is reported with interest in READABLE or HALF. The portable build
#             reports it with READABLE only, and only after everything that the peer sent has been read.
from libc.stdint cimport int32_t, uint64_t

from kbroker._core.c.readiness cimport GONE, HALF, POLLIN, READABLE, WRITABLE, epoll_event, poll, pollfd

cdef struct Poller:
    bint portable
    int32_t found            # of the last wait
    int32_t at               # how far poller_next has come
    # epoll
    int epoll_fd
    epoll_event *ready       # EPOLL_EVENTS of them
    # poll
    pollfd *fds
    uint64_t *keys           # beside fds
    int32_t *place           # by descriptor: its index in fds, -1: none
    int32_t count
    int32_t capacity
    int32_t place_capacity

cdef int poller_open(Poller *p, bint portable) noexcept nogil
cdef void poller_close(Poller *p) noexcept nogil
cdef int poller_add(Poller *p, int fd, uint64_t key, int interest) noexcept nogil
cdef int poller_change(Poller *p, int fd, uint64_t key, int interest) noexcept nogil
cdef void poller_remove(Poller *p, int fd) noexcept nogil        # before the descriptor is closed
cdef int poller_wait(Poller *p, int timeout_ms) noexcept nogil   # -1 waits for ever; an interrupted wait finds nothing
cdef bint poller_next(Poller *p, uint64_t *key, int *what) noexcept nogil

cdef struct Bell:
    int wait_fd              # readable once rung
    int ring_fd

cdef int bell_open(Bell *b, bint portable) noexcept nogil
cdef void bell_close(Bell *b) noexcept nogil
cdef void bell_ring(Bell *b) noexcept nogil
cdef void bell_clear(Bell *b) noexcept nogil
