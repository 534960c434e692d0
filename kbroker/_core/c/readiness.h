/* Readiness of descriptors by epoll (Linux) or poll (every system), and the descriptors that wake a poller.
 *
 * Both report the KB_ bits below. The functions return -1 and set errno when they fail, as the system calls do. */
#ifndef KB_READINESS_H
#define KB_READINESS_H

#include "kbroker/_core/c/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#define KB_READABLE 1
#define KB_WRITABLE 2
#define KB_GONE 4 /* both directions are closed, or the socket failed */
#define KB_HALF 8 /* the peer will send nothing more */

#if KB_LINUX
#include <sys/epoll.h>
#include <sys/eventfd.h>

typedef struct epoll_event kb_epoll_event;

static inline uint32_t kb_epoll_interest(int interest) {
    return (interest & KB_READABLE ? EPOLLIN | EPOLLRDHUP : 0u) | (interest & KB_HALF ? EPOLLRDHUP : 0u) |
           (interest & KB_WRITABLE ? EPOLLOUT : 0u);
}

static inline int kb_epoll_open(void) { return epoll_create1(EPOLL_CLOEXEC); }

static inline int kb_epoll_add(int epoll_fd, int fd, uint64_t key, int interest) {
    struct epoll_event event = {.events = kb_epoll_interest(interest), .data = {.u64 = key}};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static inline int kb_epoll_change(int epoll_fd, int fd, uint64_t key, int interest) {
    struct epoll_event event = {.events = kb_epoll_interest(interest), .data = {.u64 = key}};
    return epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event);
}

static inline int kb_epoll_remove(int epoll_fd, int fd) {
    struct epoll_event event = {.events = 0};
    return epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, &event);
}

static inline int kb_epoll_wait(int epoll_fd, kb_epoll_event *ready, int count, int timeout_ms) {
    return epoll_wait(epoll_fd, ready, count, timeout_ms);
}

static inline uint64_t kb_epoll_key(const kb_epoll_event *event) { return event->data.u64; }

static inline int kb_epoll_result(const kb_epoll_event *event) {
    uint32_t events = event->events;
    return (events & (EPOLLIN | EPOLLRDHUP) ? KB_READABLE : 0) | (events & EPOLLOUT ? KB_WRITABLE : 0) |
           (events & (EPOLLERR | EPOLLHUP) ? KB_GONE : 0) | (events & EPOLLRDHUP ? KB_HALF : 0);
}

static inline short kb_poll_interest(int interest) {
    return (short) ((interest & KB_READABLE ? POLLIN | POLLRDHUP : 0) | (interest & KB_HALF ? POLLRDHUP : 0) |
                    (interest & KB_WRITABLE ? POLLOUT : 0));
}

static inline int kb_poll_result(const struct pollfd *p) {
    short events = p->revents;
    return (events & (POLLIN | POLLRDHUP) ? KB_READABLE : 0) | (events & POLLOUT ? KB_WRITABLE : 0) |
           (events & (POLLERR | POLLHUP | POLLNVAL) ? KB_GONE : 0) | (events & POLLRDHUP ? KB_HALF : 0);
}

static inline int kb_pipe(int ends[2]) { return pipe2(ends, O_CLOEXEC | O_NONBLOCK); }

/* ends[0] becomes readable when eight bytes are written to ends[1]. An eventfd is both ends. */
static inline int kb_bell_open(int ends[2], int portable) {
    if (portable)
        return kb_pipe(ends);
    ends[0] = ends[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return ends[0] >= 0 ? 0 : -1;
}

#else /* not Linux */

typedef struct { uint64_t key; } kb_epoll_event;

static inline int kb_no_epoll(void) { errno = ENOSYS; return -1; }
#define kb_epoll_open() kb_no_epoll()
#define kb_epoll_add(epoll_fd, fd, key, interest) kb_no_epoll()
#define kb_epoll_change(epoll_fd, fd, key, interest) kb_no_epoll()
#define kb_epoll_remove(epoll_fd, fd) kb_no_epoll()
#define kb_epoll_wait(epoll_fd, ready, count, timeout_ms) kb_no_epoll()
#define kb_epoll_key(event) ((event)->key)
#define kb_epoll_result(event) 0

/* POSIX poll has no bit for a half-closed connection, so KB_HALF alone asks for nothing. */
static inline short kb_poll_interest(int interest) {
    return (short) ((interest & KB_READABLE ? POLLIN : 0) | (interest & KB_WRITABLE ? POLLOUT : 0));
}

/* POLLHUP differs between systems. Linux sets it when both directions are closed. macOS sets it for a reader when the peer
 * closed its half, and leaves POLLOUT out; for a writer it means that nothing can be sent any more. So POLLHUP without
 * POLLIN in the interest is KB_GONE on both. For a reader, one byte peeked from the socket tells a half-closed connection
 * (no byte) from a reset one (an error). Bytes received before the end hide the end until they are read. Pipes and listening
 * sockets cannot be peeked; the answer of poll is used for them. */
static inline int kb_poll_result(const struct pollfd *p) {
    short events = p->revents;
    int hung_up = (events & POLLHUP) != 0;
    int result = (events & POLLIN ? KB_READABLE : 0) | (events & POLLOUT ? KB_WRITABLE : 0) |
                 (events & (POLLERR | POLLNVAL) ? KB_GONE : 0);
    if (hung_up && !(p->events & POLLIN))
        return result | KB_GONE;
    if ((events & POLLIN) || hung_up) {
        char byte;
        ssize_t n = recv(p->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n == 0)
            result |= KB_READABLE | KB_HALF;
        else if (n > 0)
            result |= KB_READABLE;
        else if (hung_up && errno != EAGAIN && errno != EINTR)
            result |= KB_GONE;
        if (hung_up && (p->events & POLLOUT))
            result |= KB_WRITABLE; /* macOS left it out; the next send reports what is wrong */
    }
    return result;
}

static inline int kb_pipe(int ends[2]) {
    if (pipe(ends) != 0)
        return -1;
    for (int i = 0; i < 2; i++) {
        if (fcntl(ends[i], F_SETFD, FD_CLOEXEC) == -1 || fcntl(ends[i], F_SETFL, O_NONBLOCK) == -1) {
            int failed = errno;
            close(ends[0]);
            close(ends[1]);
            errno = failed;
            return -1;
        }
    }
    return 0;
}

#define kb_bell_open(ends, portable) kb_pipe(ends)

#endif
#endif
