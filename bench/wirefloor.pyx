# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# wirefloor: what a broker would answer that does nothing at all. It reads whole frames, sends prepared replies, and sleeps in
# the kernel in between: whatever a broker is slower than this is the broker's own, and the rest is the machine's.
from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout)
    int POLLIN

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_send "send"(int fd, const void *data, size_t length, int flags)
    ssize_t c_recv "recv"(int fd, void *data, size_t length, int flags)
    int MSG_NOSIGNAL

cdef enum:
    CONNECTIONS = 2
    FRAME_BYTES = 65536


cdef int serve(pollfd *ends, const uint8_t *acknowledged, int32_t acknowledged_length, const uint8_t *fetched,
               int32_t fetched_length) noexcept nogil:
    # A Fetch (key 1) waits for the Produce that comes on the other connection. One frame at a time: the client waits for answers.
    cdef uint8_t frame[FRAME_BYTES]
    cdef int waiting = -1
    cdef int32_t filled, i
    cdef ssize_t n
    while True:
        if poll(ends, CONNECTIONS, -1) < 0:
            return -1
        for i in range(CONNECTIONS):
            if not ends[i].revents:
                continue
            filled = 0
            while filled < 6 or filled < 4 + <int32_t> ((<uint32_t> frame[0] << 24) | (frame[1] << 16) | (frame[2] << 8) | frame[3]):
                n = c_recv(ends[i].fd, frame + filled, FRAME_BYTES - filled, 0)
                if n <= 0:
                    return 0
                filled += <int32_t> n
            if frame[5] == 1:
                waiting = ends[i].fd
                continue
            if waiting >= 0 and c_send(waiting, fetched, fetched_length, MSG_NOSIGNAL) < 0:
                return -1
            waiting = -1
            if c_send(ends[i].fd, acknowledged, acknowledged_length, MSG_NOSIGNAL) < 0:
                return -1


def answer(first: int, second: int, acknowledged: bytes, fetched: bytes) -> None:
    """Answers on two connections until the client closes one; a descriptor of -1 is none."""
    cdef pollfd ends[CONNECTIONS]
    cdef const uint8_t *a = acknowledged
    cdef const uint8_t *f = fetched
    cdef int32_t a_length = len(acknowledged), f_length = len(fetched)
    ends[0].fd, ends[1].fd = first, second
    ends[0].events = ends[1].events = POLLIN
    ends[0].revents = ends[1].revents = 0
    with nogil:
        serve(ends, a, a_length, f, f_length)
