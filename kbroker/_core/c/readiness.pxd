# readiness: the declarations of c/readiness.h, and nothing else.
from libc.stdint cimport uint64_t

cdef extern from "kbroker/_core/c/readiness.h" nogil:
    enum:
        READABLE "KB_READABLE"
        WRITABLE "KB_WRITABLE"
        GONE "KB_GONE"
        HALF "KB_HALF"
        POLLIN

    ctypedef struct epoll_event "kb_epoll_event":
        pass
    int epoll_open "kb_epoll_open"() noexcept
    int epoll_add "kb_epoll_add"(int epoll_fd, int fd, uint64_t key, int interest) noexcept
    int epoll_change "kb_epoll_change"(int epoll_fd, int fd, uint64_t key, int interest) noexcept
    int epoll_remove "kb_epoll_remove"(int epoll_fd, int fd) noexcept
    int epoll_wait "kb_epoll_wait"(int epoll_fd, epoll_event *ready, int count, int timeout_ms) noexcept
    uint64_t epoll_key "kb_epoll_key"(const epoll_event *event) noexcept
    int epoll_result "kb_epoll_result"(const epoll_event *event) noexcept

    cdef struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout_ms) noexcept
    short poll_interest "kb_poll_interest"(int interest) noexcept
    int poll_result "kb_poll_result"(const pollfd *p) noexcept

    int open_pipe "kb_pipe"(int *ends) noexcept              # both ends non-blocking and close-on-exec
    int open_bell "kb_bell_open"(int *ends, bint portable) noexcept
