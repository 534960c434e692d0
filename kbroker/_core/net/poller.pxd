# poller: which sockets have something for us. epoll, or poll(2) where a Core is asked to be portable; and the bell that wakes it.
# Owns        the epoll descriptor or the pollfd array; a bell owns its eventfd (or pipe).
# Called by   net/loop, net/mailbox, core.
# Threads     a Poller: its loop. bell_ring: any thread; bell_clear: the one that waits for it.
# Returns     0 or a count, or -errno. Never raises, never takes the GIL.
# Invariants  level-triggered: what is not consumed is reported again, so whoever will not read drops READABLE.
#             GONE (both directions closed, or an error) is reported whatever the interest.
from libc.stdint cimport int32_t, uint32_t, uint64_t

cdef enum:
    READABLE = 1
    WRITABLE = 2
    GONE = 4
    HALF = 8                 # the peer has said its last word; told to those who read or ask for it

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout_ms) noexcept
    short POLLIN, POLLOUT, POLLERR, POLLHUP, POLLNVAL, POLLRDHUP

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
