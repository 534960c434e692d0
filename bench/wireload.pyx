# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# wireload: a load generator that speaks frames and nothing else, so that the broker is what saturates.
# Each connection cycles through its own prepared frames and keeps `depth` of them unanswered. Replies are counted by
# their size prefix; a reply's bytes past the first few are dropped inside the kernel (MSG_TRUNC), never copied here.
# With an interval the load is paced instead: one request each `interval_us`, on the connections in turn, whether or not
# earlier ones are answered.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, itimerspec, timespec

from dataclasses import dataclass

from bench.dial import dial

cdef extern from "<sys/epoll.h>" nogil:
    cdef union epoll_data_t:
        uint32_t u32
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event *event)
    int epoll_wait(int epfd, epoll_event *events, int maxevents, int timeout)
    int EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT, EPOLL_CLOEXEC

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_send "send"(int fd, const void *data, size_t length, int flags)
    ssize_t c_recv "recv"(int fd, void *data, size_t length, int flags)
    int MSG_TRUNC, MSG_NOSIGNAL, MSG_DONTWAIT, MSG_MORE

cdef extern from "<sys/timerfd.h>" nogil:
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec *value, itimerspec *old)
    int TFD_NONBLOCK, TFD_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)
    ssize_t c_read "read"(int fd, void *data, size_t length)

cdef extern from "<errno.h>" nogil:
    int errno
    int EAGAIN, EINTR

cdef enum:
    HEAD_BYTES = 256          # the part of a reply that is looked at
    RECEIVE_BYTES = 16384
    DEPTH_MAX = 256
    PACER = 0xFFFFFFFF        # stands in an event where a connection's number would
    FELL_BEHIND = -2          # a connection has DEPTH_MAX requests unanswered

cdef struct Load:
    int fd
    uint8_t **frames
    int32_t *lengths
    int32_t frame_count
    int32_t next_frame        # the one being sent
    int32_t sent              # bytes of it already sent
    int32_t unanswered
    bint wants_write
    uint8_t head[256]         # size prefix and the first bytes of the reply
    int32_t head_filled
    int64_t reply_size        # -1: not known yet
    int64_t reply_seen
    int64_t sent_at_us[256]   # ring of send times, by request number
    int64_t sent_number
    int64_t answered_number


cdef int64_t now_us() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t> t.tv_sec * 1000000 + t.tv_nsec // 1000


cdef struct Tally:
    int64_t replies
    int64_t reply_bytes
    int64_t sent_bytes
    int64_t refused           # replies whose int16 at check_offset was not 0
    int64_t short_replies     # replies smaller than reply_min_bytes
    int32_t failure           # errno of a broken connection, -1: closed by the broker, or FELL_BEHIND
    int64_t *latencies_us
    int64_t latency_count
    int64_t latency_capacity


cdef bint push(Load *l, Tally *t, int32_t depth, bint stopping) noexcept nogil:
    # Sends until the depth is reached or the socket is full.
    # A frame that others follow waits for them, as a client's gathered writes do.
    cdef ssize_t n
    cdef int32_t left
    cdef int follows
    while (not stopping and l.unanswered < depth) or l.sent > 0:
        left = l.lengths[l.next_frame] - l.sent
        follows = MSG_MORE if not stopping and l.unanswered + (l.sent == 0) < depth else 0
        n = c_send(l.fd, l.frames[l.next_frame] + l.sent, left, MSG_NOSIGNAL | MSG_DONTWAIT | follows)
        if n < 0:
            if errno == EAGAIN:
                l.wants_write = True
                return True
            if errno == EINTR:
                continue
            t.failure = errno
            return False
        t.sent_bytes += n
        if l.sent == 0:
            l.sent_at_us[l.sent_number % DEPTH_MAX] = now_us()
            l.sent_number += 1
            l.unanswered += 1
        l.sent += <int32_t> n
        if l.sent == l.lengths[l.next_frame]:
            l.sent = 0
            l.next_frame = (l.next_frame + 1) % l.frame_count
    l.wants_write = False
    return True


cdef void finish_reply(Load *l, Tally *t, int32_t check_offset, int64_t reply_min_bytes) noexcept nogil:
    t.replies += 1
    if check_offset >= 0 and (l.head_filled < check_offset + 2 or l.head[check_offset] or l.head[check_offset + 1]):
        t.refused += 1
    if l.reply_size < reply_min_bytes:
        t.short_replies += 1
    if t.latency_count < t.latency_capacity:
        t.latencies_us[t.latency_count] = now_us() - l.sent_at_us[l.answered_number % DEPTH_MAX]
        t.latency_count += 1
    l.answered_number += 1
    l.unanswered -= 1
    l.head_filled = 0
    l.reply_size = -1
    l.reply_seen = 0


cdef void take_in(Load *l, Tally *t, const uint8_t *data, int64_t length, int32_t check_offset,
                  int64_t reply_min_bytes) noexcept nogil:
    # Bytes of one or more replies; the first of each are kept to be looked at.
    cdef int64_t taken, kept
    while length > 0:
        taken = 4 - l.head_filled if l.reply_size < 0 else l.reply_size - l.reply_seen
        if taken > length:
            taken = length
        kept = min(taken, <int64_t> HEAD_BYTES - l.head_filled)
        memcpy(l.head + l.head_filled, data, kept)
        l.head_filled += <int32_t> kept
        data += taken
        length -= taken
        l.reply_seen += taken
        if l.reply_size < 0 and l.head_filled == 4:
            l.reply_size = 4 + ((<uint32_t> l.head[0] << 24) | (l.head[1] << 16) | (l.head[2] << 8) | l.head[3])
        if l.reply_seen == l.reply_size:
            finish_reply(l, t, check_offset, reply_min_bytes)


cdef bint pull(Load *l, Tally *t, int32_t check_offset, int64_t reply_min_bytes) noexcept nogil:
    # Receives until the socket is empty. What is left of a large reply is dropped inside the kernel.
    cdef uint8_t buffer[RECEIVE_BYTES]
    cdef ssize_t n
    cdef int64_t left
    while l.unanswered > 0:
        left = l.reply_size - l.reply_seen if l.head_filled == HEAD_BYTES else 0
        if left > RECEIVE_BYTES:
            n = c_recv(l.fd, NULL, left, MSG_DONTWAIT | MSG_TRUNC)
        else:
            n = c_recv(l.fd, buffer, RECEIVE_BYTES, MSG_DONTWAIT)
        if n == 0:
            t.failure = -1
            return False
        if n < 0:
            if errno == EAGAIN:
                return True
            if errno == EINTR:
                continue
            t.failure = errno
            return False
        t.reply_bytes += n
        if left > RECEIVE_BYTES:
            l.reply_seen += n
            if l.reply_seen == l.reply_size:
                finish_reply(l, t, check_offset, reply_min_bytes)
        else:
            take_in(l, t, buffer, n, check_offset, reply_min_bytes)
            if n < RECEIVE_BYTES:
                return True
    return True


cdef void watch_writes(int epfd, Load *l, uint32_t number, bint wanted) noexcept nogil:
    cdef epoll_event change
    if wanted != l.wants_write:
        change.events = EPOLLIN | (EPOLLOUT if l.wants_write else 0)
        change.data.u32 = number
        epoll_ctl(epfd, EPOLL_CTL_MOD, l.fd, &change)


cdef bint send_due(Load *loads, int32_t count, int epfd, int pacer, int32_t *turn, Tally *t) noexcept nogil:
    # One request for each interval that has passed.
    cdef int64_t due = 0
    cdef bint wanted
    cdef Load *l
    if c_read(pacer, &due, sizeof(due)) != sizeof(due):
        return True
    while due > 0:
        l = &loads[turn[0]]
        if l.unanswered >= DEPTH_MAX:
            t.failure = FELL_BEHIND
            return False
        wanted = l.wants_write
        if not push(l, t, l.unanswered + 1, False):
            return False
        watch_writes(epfd, l, turn[0], wanted)
        turn[0] = (turn[0] + 1) % count
        due -= 1
    return True


cdef void drive(Load *loads, int32_t count, int epfd, int pacer, int32_t depth, int64_t until_us, int64_t request_limit,
                int32_t check_offset, int64_t reply_min_bytes, Tally *t) noexcept nogil:
    # A paced load (pacer >= 0) sends when an interval has passed, any other when a reply has come.
    cdef epoll_event events[64]
    cdef int32_t i
    cdef int32_t turn = 0
    cdef int n
    cdef int64_t open_requests
    cdef bint stopping = False
    cdef bint wanted
    cdef Load *l
    if pacer < 0:
        for i in range(count):
            if not push(&loads[i], t, depth, False):
                return
    while True:
        if not stopping and (now_us() >= until_us or (request_limit > 0 and t.replies >= request_limit)):
            stopping = True
        if stopping:
            open_requests = 0
            for i in range(count):
                open_requests += loads[i].unanswered
            if open_requests == 0:
                return
        n = epoll_wait(epfd, events, 64, 100)
        for i in range(n):
            if events[i].data.u32 == PACER:
                if not stopping and not send_due(loads, count, epfd, pacer, &turn, t):
                    return
                continue
            l = &loads[events[i].data.u32]
            wanted = l.wants_write
            if not pull(l, t, check_offset, reply_min_bytes) or not push(l, t, depth, stopping or pacer >= 0):
                return
            watch_writes(epfd, l, events[i].data.u32, wanted)


cdef int start_pacer(int epfd, int64_t interval_us) noexcept nogil:
    cdef epoll_event event
    cdef itimerspec every
    cdef int pacer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
    every.it_interval.tv_sec = every.it_value.tv_sec = interval_us // 1000000
    every.it_interval.tv_nsec = every.it_value.tv_nsec = interval_us % 1000000 * 1000
    timerfd_settime(pacer, 0, &every, NULL)
    event.events = EPOLLIN
    event.data.u32 = PACER
    epoll_ctl(epfd, EPOLL_CTL_ADD, pacer, &event)
    return pacer


@dataclass
class Outcome:
    """What one run of the load generator saw."""

    replies: int
    reply_bytes: int
    sent_bytes: int
    seconds: float
    latencies_us: list[int]


def run(port: int, frames: list[list[bytes]], *, depth: int = 1, seconds: float = 2.0, requests: int = 0,
        interval_us: int = 0, check_offset: int = -1, reply_min_bytes: int = 0, latency_samples: int = 0) -> Outcome:
    """Drives one connection per list of frames for `seconds`, or until `requests` replies. Raises on any refusal."""
    if not 1 <= depth <= DEPTH_MAX:
        raise ValueError(f"depth must be 1 to {DEPTH_MAX}, not {depth}")
    cdef int32_t count = len(frames)
    cdef Load *loads = <Load *> calloc(count, sizeof(Load))
    cdef Tally tally
    cdef epoll_event event
    cdef int32_t i, j
    cdef bytes frame
    sockets = [dial(port) for _ in range(count)]
    cdef int epfd = epoll_create1(EPOLL_CLOEXEC)
    cdef int pacer = -1
    cdef int64_t started, until, limit = requests
    cdef int32_t c_depth = depth, c_check = check_offset
    cdef int64_t c_min = reply_min_bytes
    tally.replies = tally.reply_bytes = tally.sent_bytes = tally.refused = tally.short_replies = 0
    tally.failure = 0
    tally.latency_count = 0
    tally.latency_capacity = latency_samples
    tally.latencies_us = <int64_t *> malloc(max(latency_samples, 1) * sizeof(int64_t))
    try:
        for i in range(count):
            sockets[i].setblocking(False)
            loads[i].fd = sockets[i].fileno()
            loads[i].reply_size = -1
            loads[i].frame_count = len(frames[i])
            loads[i].frames = <uint8_t **> calloc(loads[i].frame_count, sizeof(uint8_t *))
            loads[i].lengths = <int32_t *> calloc(loads[i].frame_count, sizeof(int32_t))
            for j in range(loads[i].frame_count):
                frame = frames[i][j]
                loads[i].frames[j] = <uint8_t *> malloc(len(frame))
                memcpy(loads[i].frames[j], <const uint8_t *> frame, len(frame))
                loads[i].lengths[j] = len(frame)
            event.events = EPOLLIN
            event.data.u32 = i
            epoll_ctl(epfd, EPOLL_CTL_ADD, loads[i].fd, &event)
        started = now_us()
        until = started + <int64_t> (seconds * 1e6)
        if interval_us:
            pacer = start_pacer(epfd, interval_us)
        with nogil:
            drive(loads, count, epfd, pacer, c_depth, until, limit, c_check, c_min, &tally)
        elapsed = (now_us() - started) / 1e6
        if tally.failure == FELL_BEHIND:
            raise RuntimeError(f"{DEPTH_MAX} requests unanswered on one connection: the pace is too high")
        if tally.failure:
            raise ConnectionError("closed by the broker" if tally.failure == -1 else f"errno {tally.failure}")
        if tally.refused:
            raise RuntimeError(f"{tally.refused} of {tally.replies} replies carried an error")
        if tally.short_replies:
            raise RuntimeError(f"{tally.short_replies} of {tally.replies} replies under {reply_min_bytes} bytes")
        return Outcome(tally.replies, tally.reply_bytes, tally.sent_bytes, elapsed,
                       [tally.latencies_us[i] for i in range(tally.latency_count)])
    finally:
        c_close(epfd)
        if pacer >= 0:
            c_close(pacer)
        for i in range(count):
            for j in range(loads[i].frame_count):
                free(loads[i].frames[j])
            free(loads[i].frames)
            free(loads[i].lengths)
            sockets[i].close()
        free(loads)
        free(tally.latencies_us)
