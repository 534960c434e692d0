# Level-triggered readiness in two dialects with one meaning.
from libc.errno cimport EINTR, ENOMEM, errno
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from posix.unistd cimport close, read, write

from kbroker._core.c.readiness cimport (
    epoll_add,
    epoll_change,
    epoll_event,
    epoll_key,
    epoll_open,
    epoll_remove,
    epoll_result,
    epoll_wait,
    open_bell,
    poll,
    poll_interest,
    poll_result,
    pollfd,
)
from kbroker._core.limits cimport EPOLL_EVENTS


cdef int poller_open(Poller *p, bint portable) noexcept nogil:
    p.portable = portable
    p.found = 0
    p.at = 0
    p.epoll_fd = -1
    p.ready = NULL
    p.fds = NULL
    p.keys = NULL
    p.place = NULL
    p.count = 0
    p.capacity = 0
    p.place_capacity = 0
    if portable:
        return 0
    p.ready = <epoll_event *> calloc(EPOLL_EVENTS, sizeof(epoll_event))
    if p.ready == NULL:
        return -ENOMEM
    p.epoll_fd = epoll_open()
    return 0 if p.epoll_fd >= 0 else -errno


cdef void poller_close(Poller *p) noexcept nogil:
    if p.epoll_fd >= 0:
        close(p.epoll_fd)
    free(p.ready)
    free(p.fds)
    free(p.keys)
    free(p.place)
    p.epoll_fd = -1
    p.ready = NULL
    p.fds = NULL
    p.keys = NULL
    p.place = NULL
    p.count = 0


cdef int make_place(Poller *p, int fd) noexcept nogil:
    cdef int32_t capacity = p.place_capacity if p.place_capacity else 64
    cdef int32_t i
    cdef void *grown
    if fd >= p.place_capacity:
        while capacity <= fd:
            capacity *= 2
        grown = realloc(p.place, capacity * sizeof(int32_t))
        if grown == NULL:
            return -ENOMEM
        p.place = <int32_t *> grown
        for i in range(p.place_capacity, capacity):
            p.place[i] = -1
        p.place_capacity = capacity
    if p.count == p.capacity:
        capacity = p.capacity * 2 if p.capacity else 64
        grown = realloc(p.fds, capacity * sizeof(pollfd))
        if grown == NULL:
            return -ENOMEM
        p.fds = <pollfd *> grown
        grown = realloc(p.keys, capacity * sizeof(uint64_t))
        if grown == NULL:
            return -ENOMEM
        p.keys = <uint64_t *> grown
        p.capacity = capacity
    return 0


cdef int poller_add(Poller *p, int fd, uint64_t key, int interest) noexcept nogil:
    cdef int failed
    if not p.portable:
        return 0 if epoll_add(p.epoll_fd, fd, key, interest) == 0 else -errno
    failed = make_place(p, fd)
    if failed:
        return failed
    p.place[fd] = p.count
    p.fds[p.count].fd = fd
    p.fds[p.count].events = poll_interest(interest)
    p.fds[p.count].revents = 0
    p.keys[p.count] = key
    p.count += 1
    return 0


cdef int poller_change(Poller *p, int fd, uint64_t key, int interest) noexcept nogil:
    if not p.portable:
        return 0 if epoll_change(p.epoll_fd, fd, key, interest) == 0 else -errno
    p.fds[p.place[fd]].events = poll_interest(interest)
    return 0


cdef void poller_remove(Poller *p, int fd) noexcept nogil:
    # Said aloud even to epoll: a forked child may hold the same socket open, and then closing ours would not unregister it.
    cdef int32_t hole, last
    if not p.portable:
        epoll_remove(p.epoll_fd, fd)
        return
    if fd >= p.place_capacity or p.place[fd] < 0:
        return
    hole = p.place[fd]
    last = p.count - 1
    p.place[fd] = -1
    p.count = last
    if hole != last:
        # An entry that moves below `at` has its turn next time: readiness is level-triggered.
        p.fds[hole] = p.fds[last]
        p.keys[hole] = p.keys[last]
        p.place[p.fds[hole].fd] = hole


cdef int poller_wait(Poller *p, int timeout_ms) noexcept nogil:
    cdef int found
    if p.portable:
        found = poll(p.fds, p.count, timeout_ms)
    else:
        found = epoll_wait(p.epoll_fd, p.ready, EPOLL_EVENTS, timeout_ms)
    p.at = 0
    p.found = found if found > 0 else 0
    if found < 0 and errno != EINTR:
        return -errno
    return p.found


cdef bint poller_next(Poller *p, uint64_t *key, int *what) noexcept nogil:
    if not p.portable:
        if p.at >= p.found:
            return False
        key[0] = epoll_key(&p.ready[p.at])
        what[0] = epoll_result(&p.ready[p.at])
        p.at += 1
        return True
    while p.found > 0 and p.at < p.count:
        if p.fds[p.at].revents:
            key[0] = p.keys[p.at]
            what[0] = poll_result(&p.fds[p.at])
            p.fds[p.at].revents = 0
            p.at += 1
            p.found -= 1
            return True
        p.at += 1
    return False


cdef int bell_open(Bell *b, bint portable) noexcept nogil:
    cdef int ends[2]
    cdef int failed = open_bell(ends, portable)
    b.wait_fd = ends[0] if failed == 0 else -1
    b.ring_fd = ends[1] if failed == 0 else -1
    return 0 if failed == 0 else -errno


cdef void bell_close(Bell *b) noexcept nogil:
    if b.wait_fd >= 0:
        close(b.wait_fd)
    if b.ring_fd >= 0 and b.ring_fd != b.wait_fd:
        close(b.ring_fd)
    b.wait_fd = -1
    b.ring_fd = -1


cdef void bell_ring(Bell *b) noexcept nogil:
    # A full counter or pipe is a bell already rung.
    cdef uint64_t one = 1
    write(b.ring_fd, &one, sizeof(one))


cdef void bell_clear(Bell *b) noexcept nogil:
    cdef uint64_t rung[8]
    while read(b.wait_fd, rung, sizeof(rung)) == sizeof(rung):
        pass
