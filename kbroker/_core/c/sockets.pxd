# sockets: the declarations of c/sockets.h, and nothing else.
from libc.stdint cimport int64_t, uint32_t
from posix.uio cimport iovec

cdef extern from "kbroker/_core/c/sockets.h" nogil:
    enum:
        SEND_QUIETLY "KB_SEND_QUIETLY"
        SEND_MORE "KB_SEND_MORE"
        AF_INET
        AF_INET6
        SHUT_WR

    cdef struct sockaddr:
        pass
    cdef struct sockaddr_storage:
        unsigned short ss_family
    ctypedef unsigned int socklen_t
    cdef struct in_addr:
        uint32_t s_addr
    cdef struct sockaddr_in:
        unsigned short sin_port
        in_addr sin_addr
    cdef struct in6_addr:
        pass
    cdef struct sockaddr_in6:
        unsigned short sin6_port
        in6_addr sin6_addr
    cdef struct msghdr:
        iovec *msg_iov
        int msg_iovlen

    ssize_t recv(int fd, void *into, size_t length, int flags) noexcept
    ssize_t send(int fd, const void *data, size_t length, int flags) noexcept
    ssize_t sendmsg(int fd, const msghdr *message, int flags) noexcept
    int shutdown(int fd, int how) noexcept
    int accept_socket "kb_accept"(int listening_fd, sockaddr *address, socklen_t *length) noexcept
    ssize_t send_file "kb_send_file"(int fd, int file_fd, int64_t position, size_t length) noexcept
    void cork "kb_cork"(int fd, int on) noexcept
    int unsent_bytes "kb_unsent_bytes"(int fd) noexcept
    int unread_bytes "kb_unread_bytes"(int fd) noexcept
