/* Socket operations that differ between systems. They return -1 and set errno when they fail, as the system calls do. */
#ifndef KB_SOCKETS_H
#define KB_SOCKETS_H

#include "kbroker/_core/c/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

/* A write to a closed connection fails with EPIPE and raises no signal: by a flag of each send or, on macOS, where only
 * recent releases have that flag, by an option of the socket that kb_accept sets. */
#if defined(MSG_NOSIGNAL) && !defined(__APPLE__)
#define KB_SEND_QUIETLY MSG_NOSIGNAL
#else
#define KB_SEND_QUIETLY 0
#endif

#if KB_LINUX
#include <sys/sendfile.h>

#define KB_SEND_MORE MSG_MORE /* the rest of the reply follows at once: do not send a short packet */

static inline int kb_accept(int listening_fd, struct sockaddr *address, socklen_t *length) {
    return accept4(listening_fd, address, length, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

static inline ssize_t kb_send_file(int fd, int file_fd, int64_t position, size_t length) {
    off_t at = position;
    return sendfile(fd, file_fd, &at, length);
}

static inline void kb_cork(int fd, int on) { (void) setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)); }

#else /* not Linux */

#define KB_SEND_MORE 0

static inline int kb_accept(int listening_fd, struct sockaddr *address, socklen_t *length) {
    int fd = accept(listening_fd, address, length);
    if (fd < 0)
        return -1;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) == -1 || fcntl(fd, F_SETFL, O_NONBLOCK) == -1) {
        int failed = errno;
        close(fd);
        errno = failed;
        return -1;
    }
#ifdef SO_NOSIGPIPE
    int on = 1;
    (void) setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
#endif
    return fd;
}

static inline ssize_t kb_send_file(int fd, int file_fd, int64_t position, size_t length) {
    (void) fd, (void) file_fd, (void) position, (void) length;
    errno = ENOSYS;
    return -1;
}

#define kb_cork(fd, on) ((void) (fd), (void) (on))

#endif

/* Bytes that were sent and not acknowledged: an option of the socket on macOS, a request to the terminal driver on Linux. */
static inline int kb_unsent_bytes(int fd) {
    int count = 0;
#ifdef SO_NWRITE
    socklen_t length = sizeof(count);
    return getsockopt(fd, SOL_SOCKET, SO_NWRITE, &count, &length) == 0 ? count : 0;
#else
    return ioctl(fd, TIOCOUTQ, &count) == 0 ? count : 0;
#endif
}

/* Bytes that were received and not read. */
static inline int kb_unread_bytes(int fd) {
    int count = 0;
    return ioctl(fd, FIONREAD, &count) == 0 ? count : 0;
}

#endif
