/* Loaded before libc: the process kills itself at the n-th call of a kind on a path, and tells what it did to names.
 *
 * KBROKER_CRASH_DATA    only files below this directory count
 * KBROKER_CRASH_WIRE    a file of one struct Wire, mapped by both sides: whoever sets `kinds` has set the rest before
 * KBROKER_CRASH_TOLD    one line for each file made, renamed, removed or cut, and for the end */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, RENAME = 4, UNLINK = 8, CUT = 16, CREATE = 32 };
enum { BEFORE = 0, AFTER = 1, TORN = 2 };

struct Wire {
    int32_t kinds;      /* which calls count; 0: none */
    int32_t left;       /* how many more of them; the one that makes it 0 is the last */
    int32_t manner;
    int32_t permille;   /* how much of a torn write reaches the file */
    char part[112];     /* of the path; empty: any */
};

static struct Wire nothing, *wire = &nothing;
static char data[2048];
static size_t data_length;
static int told = -1;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("KBROKER_CRASH_WIRE"), *where = getenv("KBROKER_CRASH_DATA"), *to = getenv("KBROKER_CRASH_TOLD");
    int fd;
    if (name == NULL || where == NULL || to == NULL)
        return;
    snprintf(data, sizeof(data), "%s/", where);
    data_length = strlen(data);
    fd = (int) syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC, 0);
    if (fd >= 0) {
        void *found = mmap(NULL, sizeof(struct Wire), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (found != MAP_FAILED)
            wire = found;
    }
    told = (int) syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
}

static int ours(const char *path) {
    return data_length > 0 && strncmp(path, data, data_length) == 0;
}

static void tell(const char *what, const char *path, const char *other) {
    char line[4200];
    int n = snprintf(line, sizeof(line), "%s %s%s%s\n", what, path + data_length, other ? " " : "", other ? other + data_length : "");
    if (told >= 0 && syscall(SYS_write, told, line, n) != n)
        abort();
}

static const char *path_of(int fd, char *path, size_t size) {
    char link[64];
    ssize_t n;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, size - 1);
    path[n > 0 ? n : 0] = 0;
    return path;
}

/* Whether this call is the one; other is the second name of a rename. */
static int is_last(int kind, const char *path, const char *other) {
    if (!(__atomic_load_n(&wire->kinds, __ATOMIC_ACQUIRE) & kind) || !ours(path))
        return 0;
    if (wire->part[0] && strstr(path, wire->part) == NULL && (other == NULL || strstr(other, wire->part) == NULL))
        return 0;
    return __atomic_sub_fetch(&wire->left, 1, __ATOMIC_ACQ_REL) == 0;
}

static int is_last_of(int kind, int fd, char *path, size_t size) {
    if (!(__atomic_load_n(&wire->kinds, __ATOMIC_ACQUIRE) & kind))
        return 0;
    return is_last(kind, path_of(fd, path, size), NULL);
}

static void die(const char *call, const char *path) {
    char what[64];
    static const char *manners[] = { "before", "after", "torn" };
    snprintf(what, sizeof(what), "died %s %s", manners[wire->manner], call);
    tell(what, path, NULL);
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (real == NULL) real = (result (*)(__VA_ARGS__)) dlsym(RTLD_NEXT, #name)

#define WITH_FD(kind, call, fd, result, doing) \
    char path[4096]; \
    int last = is_last_of(kind, fd, path, sizeof(path)); \
    if (last && wire->manner == BEFORE) die(call, path); \
    result done = doing; \
    if (last) die(call, path); \
    return done

int fsync(int fd) {
    REAL(int, fsync, int);
    WITH_FD(SYNC, "fsync", fd, int, real(fd));
}

int fdatasync(int fd) {
    REAL(int, fdatasync, int);
    WITH_FD(SYNC, "fdatasync", fd, int, real(fd));
}

static size_t torn(size_t length) {
    return (size_t) ((uint64_t) length * (uint64_t) wire->permille / 1000);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    REAL(ssize_t, write, int, const void *, size_t);
    char path[4096];
    int last = is_last_of(WRITE, fd, path, sizeof(path));
    if (last && wire->manner == BEFORE) die("write", path);
    ssize_t done = real(fd, bytes, last && wire->manner == TORN ? torn(length) : length);
    if (last) die("write", path);
    return done;
}

#define PWRITE(name, offset) \
    ssize_t name(int fd, const void *bytes, size_t length, offset position) { \
        REAL(ssize_t, name, int, const void *, size_t, offset); \
        char path[4096]; \
        int last = is_last_of(WRITE, fd, path, sizeof(path)); \
        if (last && wire->manner == BEFORE) die("pwrite", path); \
        ssize_t done = real(fd, bytes, last && wire->manner == TORN ? torn(length) : length, position); \
        if (last) die("pwrite", path); \
        return done; \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

/* A torn one writes a part of each run up to where it stops, as the kernel would. */
#define PWRITEV(name, offset) \
    ssize_t name(int fd, const struct iovec *runs, int count, offset position) { \
        REAL(ssize_t, name, int, const struct iovec *, int, offset); \
        char path[4096]; \
        int last = is_last_of(WRITE, fd, path, sizeof(path)); \
        if (last && wire->manner == BEFORE) die("pwritev", path); \
        if (last && wire->manner == TORN) { \
            size_t all = 0, left; \
            for (int i = 0; i < count; i++) all += runs[i].iov_len; \
            left = torn(all); \
            for (int i = 0; i < count && left > 0; i++) { \
                size_t n = runs[i].iov_len < left ? runs[i].iov_len : left; \
                if (syscall(SYS_pwrite64, fd, runs[i].iov_base, n, (off64_t) position) < 0) abort(); \
                position += n; \
                left -= n; \
            } \
            die("pwritev", path); \
        } \
        ssize_t done = real(fd, runs, count, position); \
        if (last) die("pwritev", path); \
        return done; \
    }
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

#define CUTTING(name, offset) \
    int name(int fd, offset length) { \
        REAL(int, name, int, offset); \
        char path[4096]; \
        path_of(fd, path, sizeof(path)); \
        int last = is_last(CUT, path, NULL); \
        if (last && wire->manner == BEFORE) die("ftruncate", path); \
        int done = real(fd, length); \
        if (done == 0 && ours(path)) tell("cut", path, NULL); \
        if (last) die("ftruncate", path); \
        return done; \
    }
CUTTING(ftruncate, off_t)
CUTTING(ftruncate64, off64_t)

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    int last = is_last(RENAME, from, to);
    if (last && wire->manner == BEFORE) die("rename", from);
    int done = real(from, to);
    if (done == 0 && ours(from) && ours(to)) tell("rename", from, to);
    if (last) die("rename", to);
    return done;
}

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    int last = is_last(UNLINK, path, NULL);
    if (last && wire->manner == BEFORE) die("unlink", path);
    int done = real(path);
    if (done == 0 && ours(path)) tell("unlink", path, NULL);
    if (last) die("unlink", path);
    return done;
}

static int making(const char *path, int flags) {
    return (flags & O_CREAT) && ours(path) && access(path, F_OK) != 0;
}

#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); \
        va_list rest; \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
        int makes = making(path, flags), last = makes && is_last(CREATE, path, NULL); \
        if (last && wire->manner == BEFORE) die("create", path); \
        int fd = real(path, flags, mode); \
        if (makes && fd >= 0) tell("create", path, NULL); \
        if (last) die("create", path); \
        return fd; \
    }
OPENING(open)
OPENING(open64)
