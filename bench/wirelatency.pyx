# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# wirelatency: one request at a time on blocking sockets, so that what is timed is the broker, the kernel's loopback and
# two wake-ups. The clock runs from just before `send` to the last byte of the reply. Between two samples the client
# sleeps for `pause_us`, half as much to half as much again, so that it does not fall into step with a timer.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import socket
import struct

from bench.dial import dial

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_send "send"(int fd, const void *data, size_t length, int flags)
    ssize_t c_recv "recv"(int fd, void *data, size_t length, int flags)
    int MSG_NOSIGNAL

cdef extern from "<time.h>" nogil:
    int clock_nanosleep(int clock, int flags, const timespec *request, timespec *remain)

cdef extern from "<errno.h>" nogil:
    int errno
    int EINTR

cdef enum:
    REPLY_BYTES = 65536       # more than any reply that is timed here
    PATIENCE_SECONDS = 30
    CLOSED = -1
    REFUSED = -2              # the reply carried an error, or is larger than any that was expected
    EMPTY_MAX = 1000          # fetch replies without records, of one run


cdef int64_t now_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t> t.tv_sec * 1000000000 + t.tv_nsec


cdef void pause(int64_t pause_us, uint32_t *chance) noexcept nogil:
    cdef timespec t
    cdef int64_t ns
    if pause_us == 0:
        return
    chance[0] = chance[0] * 1664525 + 1013904223
    ns = pause_us * 500 + pause_us * 1000 * (chance[0] >> 16) // 65536
    t.tv_sec = ns // 1000000000
    t.tv_nsec = ns % 1000000000
    clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL)


cdef int send_whole(int fd, const uint8_t *frame, int32_t length) noexcept nogil:
    cdef ssize_t n
    cdef int32_t sent = 0
    while sent < length:
        n = c_send(fd, frame + sent, length - sent, MSG_NOSIGNAL)
        if n < 0:
            if errno == EINTR:
                continue
            return errno
        sent += <int32_t> n
    return 0


cdef int receive_reply(int fd, uint8_t *reply, int32_t error_at, int32_t *size) noexcept nogil:
    # One reply is unanswered at most, so whatever arrives belongs to it.
    cdef ssize_t n
    cdef int32_t seen = 0
    size[0] = -1
    while size[0] < 0 or seen < size[0]:
        n = c_recv(fd, reply + seen, REPLY_BYTES - seen, 0)
        if n == 0:
            return CLOSED
        if n < 0:
            if errno == EINTR:
                continue
            return errno
        seen += <int32_t> n
        if size[0] < 0 and seen >= 4:
            size[0] = 4 + <int32_t> ((<uint32_t> reply[0] << 24) | (reply[1] << 16) | (reply[2] << 8) | reply[3])
            if size[0] < 4 or size[0] > REPLY_BYTES:
                return REFUSED
    if seen < error_at + 2 or reply[error_at] or reply[error_at + 1]:
        return REFUSED
    return 0


cdef int time_acks(int fd, const uint8_t *frame, int32_t length, int32_t error_at, int64_t pause_us, int32_t samples,
                   uint8_t *reply, int64_t *took_ns) noexcept nogil:
    cdef int failure
    cdef int32_t i, size
    cdef int64_t began
    cdef uint32_t chance = 1
    for i in range(samples):
        pause(pause_us, &chance)
        began = now_ns()
        failure = send_whole(fd, frame, length)
        if failure == 0:
            failure = receive_reply(fd, reply, error_at, &size)
        if failure:
            return failure
        took_ns[i] = now_ns() - began
    return 0


cdef void put_offset(uint8_t *at, int64_t offset) noexcept nogil:
    cdef int i
    for i in range(8):
        at[i] = <uint8_t> (offset >> (56 - 8 * i))


cdef int time_relays(int produce_fd, const uint8_t *produce, int32_t produce_length, int32_t produce_error_at,
                     int fetch_fd, uint8_t *fetch, int32_t fetch_length, int32_t fetch_error_at, int32_t offset_at,
                     int64_t first_offset, int32_t records_bytes, int64_t pause_us, int32_t samples, uint8_t *reply,
                     int64_t *took_ns) noexcept nogil:
    cdef int failure
    cdef int32_t i, size, empty = 0
    cdef int64_t began
    cdef uint32_t chance = 1
    for i in range(samples):
        put_offset(fetch + offset_at, first_offset + i)
        failure = send_whole(fetch_fd, fetch, fetch_length)
        if failure:
            return failure
        pause(pause_us, &chance)
        began = now_ns()
        failure = send_whole(produce_fd, produce, produce_length)
        while failure == 0:
            failure = receive_reply(fetch_fd, reply, fetch_error_at, &size)
            if failure or size >= records_bytes:
                break
            empty += 1        # it had waited for as long as it may: the next one finds the record
            failure = send_whole(fetch_fd, fetch, fetch_length) if empty <= EMPTY_MAX else REFUSED
        if failure:
            return failure
        took_ns[i] = now_ns() - began
        failure = receive_reply(produce_fd, reply, produce_error_at, &size)
        if failure:
            return failure
    return 0


def connect(port: int) -> socket.socket:
    connection = dial(port)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", PATIENCE_SECONDS, 0))
    return connection


def judge(failure: int) -> None:
    if failure == REFUSED:
        raise RuntimeError("a reply carried an error")
    if failure:
        raise ConnectionError("closed by the broker" if failure == CLOSED else f"errno {failure}")


def acks(port: int, frame: bytes, *, error_at: int, samples: int, pause_us: int = 0) -> list[float]:
    """Microseconds from each request to its answer, in the order they were sent."""
    cdef int64_t *took_ns = <int64_t *> malloc(max(samples, 1) * sizeof(int64_t))
    cdef uint8_t *reply = <uint8_t *> malloc(REPLY_BYTES)
    cdef const uint8_t *data = frame
    cdef int32_t length = len(frame), c_error_at = error_at, c_samples = samples, i
    cdef int64_t c_pause = pause_us
    cdef int fd, failure = 0
    try:
        with connect(port) as connection:
            fd = connection.fileno()
            with nogil:
                failure = time_acks(fd, data, length, c_error_at, c_pause, c_samples, reply, took_ns)
        judge(failure)
        return [took_ns[i] / 1000 for i in range(c_samples)]
    finally:
        free(took_ns)
        free(reply)


def relays(port: int, produce: bytes, fetch: bytes, *, produce_error_at: int, fetch_error_at: int, fetch_offset_at: int,
           first_offset: int, records_bytes: int, samples: int, pause_us: int = 0) -> list[float]:
    """Microseconds from each Produce of one record to the answer of the Fetch that waits for it on another connection.

    `records_bytes`: a fetch reply smaller than this carries no record.
    """
    cdef int64_t *took_ns = <int64_t *> malloc(max(samples, 1) * sizeof(int64_t))
    cdef uint8_t *reply = <uint8_t *> malloc(REPLY_BYTES)
    cdef uint8_t *waiting = <uint8_t *> malloc(len(fetch))
    cdef const uint8_t *data = produce
    cdef int32_t length = len(produce), waiting_length = len(fetch), c_samples = samples, i
    cdef int32_t c_produce_error_at = produce_error_at, c_fetch_error_at = fetch_error_at
    cdef int32_t c_offset_at = fetch_offset_at, c_records_bytes = records_bytes
    cdef int64_t c_pause = pause_us, c_first = first_offset
    cdef int produce_fd, fetch_fd, failure = 0
    memcpy(waiting, <const uint8_t *> fetch, len(fetch))
    try:
        with connect(port) as producer, connect(port) as consumer:
            produce_fd, fetch_fd = producer.fileno(), consumer.fileno()
            with nogil:
                failure = time_relays(produce_fd, data, length, c_produce_error_at, fetch_fd, waiting, waiting_length,
                                      c_fetch_error_at, c_offset_at, c_first, c_records_bytes, c_pause, c_samples, reply,
                                      took_ns)
        judge(failure)
        return [took_ns[i] / 1000 for i in range(c_samples)]
    finally:
        free(took_ns)
        free(reply)
        free(waiting)
