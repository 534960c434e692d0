/* Loaded before libc: fails, shortens or delays the file calls of the process as a text file says, which may change at any
 * time.
 *
 * KBROKER_DISK_ORDERS names it. Each line: a call (fsync, write, read, sendfile, open for writing, rename, unlink, mkdir), a part
 * of the path it is about (of a rename: the new one), and what to do: `errno N`, `short N` (of a write: N bytes of it), or `wait MS`.
 * Two more numbers may follow: how many calls that fit are let pass first, and how many are then dealt with (0: all).
 * The first line that fits and is not used up counts, and the call is told in a file beside it, .told. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct order { int errno_wanted; long short_bytes; };   /* 0 and -1: as always */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { char line[400]; int seen; } counted[32];

static int plain_open(const char *path, int flags) {
    return (int) syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0644);
}

static void tell(const char *name, const char *call, const char *path) {
    char told[4096], line[4200];
    int to, n;
    snprintf(told, sizeof(told), "%s.told", name);
    to = plain_open(told, O_WRONLY | O_APPEND | O_CREAT);
    if (to < 0)
        return;
    n = snprintf(line, sizeof(line), "%s %s\n", call, path);
    if (syscall(SYS_write, to, line, n) != n)
        abort();
    close(to);
}

static int seen_before(const char *line) {
    int i, seen = 0;
    pthread_mutex_lock(&lock);
    for (i = 0; i < 32; i++) {
        if (counted[i].line[0] == 0)
            snprintf(counted[i].line, sizeof(counted[i].line), "%s", line);
        if (strcmp(counted[i].line, line) == 0) {
            seen = counted[i].seen++;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return seen;
}

static struct order ordered_at(const char *call, const char *path) {
    struct order none = { 0, -1 }, found = none;
    const char *name = getenv("KBROKER_DISK_ORDERS");
    char orders[4096], *line, *rest = orders;
    int kept = errno, from;
    ssize_t n;
    if (name == NULL || (from = plain_open(name, O_RDONLY)) < 0) {
        errno = kept;
        return none;
    }
    n = syscall(SYS_read, from, orders, sizeof(orders) - 1);
    close(from);
    errno = kept;
    if (n <= 0)
        return none;
    orders[n] = 0;
    while ((line = strsep(&rest, "\n")) != NULL) {
        char which[32], part[256], what[32];
        int number, pass = 0, times = 0, seen;
        if (sscanf(line, "%31s %255s %31s %d %d %d", which, part, what, &number, &pass, &times) < 4)
            continue;
        if (strcmp(which, call) != 0 || strstr(path, part) == NULL)
            continue;
        if (pass > 0 || times > 0) {
            seen = seen_before(line);
            if (seen < pass || (times > 0 && seen >= pass + times))
                continue;
        }
        tell(name, call, path);
        if (strcmp(what, "errno") == 0)
            found.errno_wanted = number;
        else if (strcmp(what, "short") == 0)
            found.short_bytes = number;
        else {
            struct timespec pause = { number / 1000, (long) (number % 1000) * 1000000 };
            nanosleep(&pause, NULL);
        }
        errno = kept;
        return found;
    }
    return none;
}

static struct order ordered(const char *call, int fd) {
    struct order none = { 0, -1 };
    char link[64], path[4096];
    int kept = errno;
    ssize_t n;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    errno = kept;
    if (n < 0)
        return none;
    path[n] = 0;
    return ordered_at(call, path);
}

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (real == NULL) real = (result (*)(__VA_ARGS__)) dlsym(RTLD_NEXT, #name)

#define STOP_IF(order) \
    do { if ((order).errno_wanted != 0) { errno = (order).errno_wanted; return -1; } } while (0)

#define SYNC(name) \
    int name(int fd) { \
        REAL(int, name, int); \
        struct order order = ordered("fsync", fd); \
        STOP_IF(order); \
        return real(fd); \
    }
SYNC(fsync)
SYNC(fdatasync)

ssize_t write(int fd, const void *data, size_t length) {
    REAL(ssize_t, write, int, const void *, size_t);
    struct order order = ordered("write", fd);
    STOP_IF(order);
    return real(fd, data, order.short_bytes >= 0 ? (size_t) order.short_bytes : length);
}

#define PWRITE(name, offset) \
    ssize_t name(int fd, const void *data, size_t length, offset position) { \
        REAL(ssize_t, name, int, const void *, size_t, offset); \
        struct order order = ordered("write", fd); \
        STOP_IF(order); \
        return real(fd, data, order.short_bytes >= 0 ? (size_t) order.short_bytes : length, position); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define PWRITEV(name, offset) \
    ssize_t name(int fd, const struct iovec *runs, int count, offset position) { \
        REAL(ssize_t, name, int, const struct iovec *, int, offset); \
        struct order order = ordered("write", fd); \
        STOP_IF(order); \
        if (order.short_bytes >= 0 && count > 0) { \
            struct iovec part = { runs[0].iov_base, (size_t) order.short_bytes }; \
            return real(fd, &part, 1, position); \
        } \
        return real(fd, runs, count, position); \
    }
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

#define PREAD(name, offset) \
    ssize_t name(int fd, void *data, size_t length, offset position) { \
        REAL(ssize_t, name, int, void *, size_t, offset); \
        struct order order = ordered("read", fd); \
        STOP_IF(order); \
        return real(fd, data, length, position); \
    }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

#define PREADV2(name, offset) \
    ssize_t name(int fd, const struct iovec *runs, int count, offset position, int flags) { \
        REAL(ssize_t, name, int, const struct iovec *, int, offset, int); \
        struct order order = ordered("read", fd); \
        STOP_IF(order); \
        return real(fd, runs, count, position, flags); \
    }
PREADV2(preadv2, off_t)
PREADV2(preadv64v2, off64_t)

#define SENDFILE(name, offset) \
    ssize_t name(int to, int from, offset *position, size_t length) { \
        REAL(ssize_t, name, int, int, offset *, size_t); \
        struct order order = ordered("sendfile", from); \
        STOP_IF(order); \
        return real(to, from, position, length); \
    }
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        if (flags & (O_CREAT | O_WRONLY | O_RDWR)) { \
            struct order order = ordered_at("open", path); \
            STOP_IF(order); \
        } \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

int rename(const char *old, const char *new) {
    REAL(int, rename, const char *, const char *);
    struct order order = ordered_at("rename", new);
    STOP_IF(order);
    return real(old, new);
}

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    struct order order = ordered_at("unlink", path);
    STOP_IF(order);
    return real(path);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    struct order order = ordered_at("mkdir", path);
    STOP_IF(order);
    return real(path, mode);
}
