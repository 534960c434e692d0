/* File operations that differ between systems. They return -1 and set errno when they fail, as the system calls do. */
#ifndef KB_FILESYSTEM_H
#define KB_FILESYSTEM_H

#include "kbroker/_core/c/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#if KB_LINUX
#include <sys/syscall.h>

/* Calls and flags that glibc 2.17, the oldest C library that wheels are built for, does not declare. */
#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif
#define KB_FALLOC_KEEP_SIZE 1
#define KB_MFD_CLOEXEC 1U
#define KB_RWF_NOWAIT 8

/* A file without a name, in memory. */
static inline int kb_open_nameless(void) { return (int) syscall(SYS_memfd_create, "kbroker-segment", KB_MFD_CLOEXEC); }

/* Reserves blocks and leaves the size of the file alone. */
static inline int kb_reserve(int fd, int64_t start, int64_t length) {
    return (int) syscall(SYS_fallocate, fd, KB_FALLOC_KEEP_SIZE, (off_t) start, (off_t) length);
}

/* How many pages of a range are cached, by cachestat (Linux 6.5); -1 if the kernel or the file system cannot tell. */
static inline int64_t kb_cached_pages(int fd, int64_t position, int64_t length) {
    struct { uint64_t off, len; } range = {(uint64_t) position, (uint64_t) length};
    struct { uint64_t cached, dirty, writeback, evicted, recently_evicted; } found;
    return syscall(SYS_cachestat, fd, &range, &found, 0) == 0 ? (int64_t) found.cached : -1;
}

/* As pread, but fails with EAGAIN instead of waiting for the disk; waits where the file system cannot tell. */
static inline ssize_t kb_pread_resident(int fd, void *into, size_t length, off_t position) {
#if defined(RWF_NOWAIT) || defined(SYS_preadv2)
    struct iovec run = {into, length};
#ifdef RWF_NOWAIT /* glibc has the call: tests put a failing disk in front of it */
    ssize_t n = preadv2(fd, &run, 1, position, RWF_NOWAIT);
#else
    ssize_t n = syscall(SYS_preadv2, fd, &run, 1, (long) position, (long) ((uint64_t) position >> 32), KB_RWF_NOWAIT);
#endif
    if (n >= 0 || errno == EAGAIN)
        return n;
#endif
    return pread(fd, into, length, position);
}

/* Starts to read a range into the page cache. */
static inline void kb_read_ahead(int fd, int64_t position, int64_t length) {
    (void) posix_fadvise(fd, position, length, POSIX_FADV_WILLNEED);
}

static inline int kb_sync(int fd) { return fsync(fd); }

/* The path that an open descriptor leads to. */
static inline int kb_path_of_descriptor(int fd, char *out, size_t capacity) {
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, capacity - 1);
    if (n < 0)
        return -1;
    out[n] = 0;
    return 0;
}

#else /* not Linux */

static inline int kb_open_nameless(void) {
    const char *directory = getenv("TMPDIR");
    char name[PATH_MAX];
    int n = snprintf(name, sizeof(name), "%s/kbroker-segment-XXXXXX", directory != NULL && *directory ? directory : "/tmp");
    if (n < 0 || (size_t) n >= sizeof(name)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = mkstemp(name);
    if (fd >= 0) {
        unlink(name);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    return fd;
}

static inline int kb_reserve(int fd, int64_t start, int64_t length) {
    (void) fd, (void) start, (void) length;
    errno = ENOSYS;
    return -1;
}

/* As if all were cached: no call asks for a page without waiting for it, so there is nothing to find out. */
static inline int64_t kb_cached_pages(int fd, int64_t position, int64_t length) {
    (void) fd, (void) position, (void) length;
    return INT64_MAX;
}

static inline ssize_t kb_pread_resident(int fd, void *into, size_t length, off_t position) {
    return pread(fd, into, length, position);
}

static inline void kb_read_ahead(int fd, int64_t position, int64_t length) {
#ifdef F_RDADVISE
    struct radvisory range = {.ra_offset = position, .ra_count = length > INT_MAX ? INT_MAX : (int) length};
    (void) fcntl(fd, F_RDADVISE, &range);
#else
    (void) fd, (void) position, (void) length;
#endif
}

/* fsync on macOS leaves the data in the drive's cache; F_FULLFSYNC, which Java's FileChannel.force uses too, does not. */
static inline int kb_sync(int fd) {
#ifdef F_FULLFSYNC
    if (fcntl(fd, F_FULLFSYNC) == 0)
        return 0;
    if (errno != ENOTSUP && errno != EINVAL && errno != ENOTTY)
        return -1;
#endif
    return fsync(fd);
}

static inline int kb_path_of_descriptor(int fd, char *out, size_t capacity) {
#ifdef F_GETPATH
    if (capacity >= PATH_MAX)
        return fcntl(fd, F_GETPATH, out);
#endif
    (void) fd, (void) out, (void) capacity;
    errno = ENOSYS;
    return -1;
}

#endif

static inline int64_t kb_page_bytes(void) { return sysconf(_SC_PAGESIZE); }

static inline int64_t kb_modified_ms(const struct stat *s) {
#ifdef __APPLE__
    return (int64_t) s->st_mtimespec.tv_sec * 1000 + s->st_mtimespec.tv_nsec / 1000000;
#else
    return (int64_t) s->st_mtim.tv_sec * 1000 + s->st_mtim.tv_nsec / 1000000;
#endif
}

#endif
