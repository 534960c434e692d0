/* Loaded before libc: fails or delays the file calls of the process as a text file says, which may change at any time.
 *
 * KBROKER_DISK_ORDERS names it. Each line: a call (fsync, write), a part of the path it is about, and what to do:
 * `errno N`, or `wait MS`. The first line that fits counts, and the call is told in a file beside it, .told. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static void tell(const char *name, const char *call, const char *path) {
    char told[4096], line[4200];
    int to, n;
    snprintf(told, sizeof(told), "%s.told", name);
    to = open(told, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (to < 0)
        return;
    n = snprintf(line, sizeof(line), "%s %s\n", call, path);
    if (write(to, line, n) != n)
        abort();
    close(to);
}

static int ordered(const char *call, int fd) {
    const char *name = getenv("KBROKER_DISK_ORDERS");
    char link[64], path[4096], orders[4096], *line, *rest = orders;
    ssize_t n;
    int from;
    if (name == NULL || (from = open(name, O_RDONLY | O_CLOEXEC)) < 0)
        return 0;
    n = read(from, orders, sizeof(orders) - 1);
    close(from);
    if (n <= 0)
        return 0;
    orders[n] = 0;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    if (n < 0)
        return 0;
    path[n] = 0;
    while ((line = strsep(&rest, "\n")) != NULL) {
        char which[32], part[256], what[32];
        int number;
        if (sscanf(line, "%31s %255s %31s %d", which, part, what, &number) != 4)
            continue;
        if (strcmp(which, call) != 0 || strstr(path, part) == NULL)
            continue;
        tell(name, call, path);
        if (strcmp(what, "errno") == 0)
            return number;
        struct timespec pause = { number / 1000, (long) (number % 1000) * 1000000 };
        nanosleep(&pause, NULL);
        return 0;
    }
    return 0;
}

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (real == NULL) real = (result (*)(__VA_ARGS__)) dlsym(RTLD_NEXT, #name)

#define STOP_IF_ORDERED(call, fd) \
    do { int code = ordered(call, fd); if (code != 0) { errno = code; return -1; } } while (0)

int fsync(int fd) {
    REAL(int, fsync, int);
    STOP_IF_ORDERED("fsync", fd);
    return real(fd);
}

int fdatasync(int fd) {
    REAL(int, fdatasync, int);
    STOP_IF_ORDERED("fsync", fd);
    return real(fd);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t position) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    STOP_IF_ORDERED("write", fd);
    return real(fd, data, length, position);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t position) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    STOP_IF_ORDERED("write", fd);
    return real(fd, data, length, position);
}

ssize_t pwritev(int fd, const struct iovec *runs, int count, off_t position) {
    REAL(ssize_t, pwritev, int, const struct iovec *, int, off_t);
    STOP_IF_ORDERED("write", fd);
    return real(fd, runs, count, position);
}

ssize_t pwritev64(int fd, const struct iovec *runs, int count, off64_t position) {
    REAL(ssize_t, pwritev64, int, const struct iovec *, int, off64_t);
    STOP_IF_ORDERED("write", fd);
    return real(fd, runs, count, position);
}
