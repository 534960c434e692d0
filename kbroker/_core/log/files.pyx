# Files as a log needs them: positioned reads and writes that finish, atomic replacement, names of segments.
from libc.errno cimport EFBIG, EINTR, EIO, EISDIR, ENAMETOOLONG, ENOENT, ENOMEM, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdio cimport rename, snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport strlen
from posix.fcntl cimport O_CREAT, O_RDONLY, O_RDWR, O_TRUNC
from posix.fcntl cimport open as system_open
from posix.stat cimport S_ISDIR, S_ISREG, fstat, stat, struct_stat
from posix.uio cimport iovec, pwritev
from posix.unistd cimport close, ftruncate, pread, pwrite, rmdir, unlink

from kbroker._core.c.filesystem cimport (
    O_CLOEXEC, modified_ms_of, open_nameless, path_of, reserve_blocks, system_sync,
)


cdef inline int failure() noexcept nogil:
    # A call that failed without saying why is still a failure.
    return -errno if errno > 0 else -EIO


cdef int open_file(const char *path, Access access) noexcept nogil:
    cdef int flags = O_CLOEXEC | (O_RDONLY if access == READ_ONLY else O_RDWR)
    cdef int fd
    if access == CREATE or access == CREATE_EMPTY:
        flags |= O_CREAT
    if access == CREATE_EMPTY:
        flags |= O_TRUNC
    while True:
        fd = system_open(path, flags, 0o644)
        if fd >= 0:
            return fd
        if errno != EINTR:
            return failure()


cdef int open_memory() noexcept nogil:
    cdef int fd = open_nameless()
    return fd if fd >= 0 else failure()


cdef void close_file(int fd) noexcept nogil:
    if fd >= 0:
        close(fd)


cdef int64_t read_at(int fd, void *data, int64_t length, int64_t position) noexcept nogil:
    cdef int64_t done = 0
    cdef ssize_t n
    while done < length:
        n = pread(fd, <uint8_t *> data + done, length - done, position + done)
        if n == 0:
            break
        if n < 0:
            if errno == EINTR:
                continue
            return failure()
        done += n
    return done


cdef int write_at(int fd, const void *data, int64_t length, int64_t position) noexcept nogil:
    cdef int64_t done = 0
    cdef ssize_t n
    while done < length:
        n = pwrite(fd, <const uint8_t *> data + done, length - done, position + done)
        if n < 0:
            if errno == EINTR:
                continue
            return failure()
        if n == 0:
            return -EIO
        done += n
    return 0


cdef int write_runs_at(int fd, iovec *runs, int count, int64_t position) noexcept nogil:
    cdef ssize_t n
    cdef int done = 0
    while done < count:
        n = pwritev(fd, runs + done, count - done, position)
        if n < 0:
            if errno == EINTR:
                continue
            return failure()
        if n == 0:
            return -EIO
        position += n
        while done < count and <size_t> n >= runs[done].iov_len:
            n -= runs[done].iov_len
            done += 1
        if n > 0:
            runs[done].iov_base = <uint8_t *> runs[done].iov_base + n
            runs[done].iov_len -= n
    return 0


cdef int cut_file(int fd, int64_t length) noexcept nogil:
    while ftruncate(fd, length) != 0:
        if errno != EINTR:
            return failure()
    return 0


cdef int reserve_file(int fd, int64_t start, int64_t length) noexcept nogil:
    return 0 if reserve_blocks(fd, start, length) == 0 else failure()


cdef int sync_file(int fd) noexcept nogil:
    while system_sync(fd) != 0:
        if errno != EINTR:
            return failure()
    return 0


cdef int sync_path(const char *path) noexcept nogil:
    cdef int fd = open_file(path, READ_ONLY)
    cdef int rc
    if fd < 0:
        return fd
    rc = sync_file(fd)
    close(fd)
    return rc


cdef int64_t size_of_file(int fd) noexcept nogil:
    cdef struct_stat s
    return s.st_size if fstat(fd, &s) == 0 else failure()


cdef int64_t size_of_path(const char *path) noexcept nogil:
    cdef struct_stat s
    if stat(path, &s) != 0:
        return failure()
    return s.st_size if not S_ISDIR(s.st_mode) else -EISDIR


cdef int64_t modified_ms(int fd, const char *path) noexcept nogil:
    cdef struct_stat s
    if (fstat(fd, &s) if fd >= 0 else stat(path, &s)) != 0:
        return failure()
    return modified_ms_of(&s)


cdef int remove_path(const char *path) noexcept nogil:
    if unlink(path) == 0 or errno == ENOENT:
        return 0
    return failure()


cdef int displace_path(const char *path) noexcept nogil:
    cdef char aside[PATH_BYTES]
    cdef struct_stat s
    cdef int n
    if stat(path, &s) == 0 and S_ISREG(s.st_mode):
        return 0
    if unlink(path) == 0 or rmdir(path) == 0:
        return 1
    n = snprintf(aside, PATH_BYTES, "%s.stray", path)
    if n < 0 or n >= PATH_BYTES:
        return -ENAMETOOLONG
    return 1 if rename(path, aside) == 0 else failure()


cdef int rename_path(const char *old, const char *new) noexcept nogil:
    return 0 if rename(old, new) == 0 else failure()


cdef uint8_t *read_whole(const char *path, int64_t limit, int64_t *length) noexcept nogil:
    cdef int fd = open_file(path, READ_ONLY)
    cdef int64_t size
    cdef uint8_t *data
    if fd < 0:
        length[0] = fd
        return NULL
    size = size_of_file(fd)
    if size < 0 or size > limit:
        length[0] = size if size < 0 else -EFBIG
        close(fd)
        return NULL
    data = <uint8_t *> malloc(size + 1)
    if data == NULL:
        length[0] = -ENOMEM
        close(fd)
        return NULL
    length[0] = read_at(fd, data, size, 0)
    close(fd)
    if length[0] < 0:
        free(data)
        return NULL
    data[length[0]] = 0
    return data


cdef int replace_file(const char *path, const void *data, int64_t length) noexcept nogil:
    cdef char beside[PATH_BYTES]
    cdef int fd, rc
    if snprintf(beside, PATH_BYTES, "%s.tmp", path) >= PATH_BYTES:
        return -ENAMETOOLONG
    fd = open_file(beside, CREATE_EMPTY)
    if fd < 0:
        return fd
    rc = write_at(fd, data, length, 0)
    close(fd)
    if rc == 0:
        rc = rename_path(beside, path)
    if rc != 0:
        unlink(beside)
    return rc


cdef int path_of_descriptor(char *out, int fd) noexcept nogil:
    return 0 if path_of(fd, out, PATH_BYTES) == 0 else failure()


cdef int path_in(char *out, const char *directory, const char *name) noexcept nogil:
    return -ENAMETOOLONG if snprintf(out, PATH_BYTES, "%s/%s", directory, name) >= PATH_BYTES else 0


cdef int path_of_segment(char *out, const char *directory, int64_t base_offset, const char *suffix) noexcept nogil:
    if snprintf(out, PATH_BYTES, "%s/%020lld%s", directory, <long long> base_offset, suffix) >= PATH_BYTES:
        return -ENAMETOOLONG
    return 0


cdef const char *suffix_of(int which) noexcept nogil:
    if which == LOG_FILE:
        return ".log"
    if which == OFFSET_INDEX_FILE:
        return ".index"
    if which == TIME_INDEX_FILE:
        return ".timeindex"
    return ".txnindex" if which == TXN_INDEX_FILE else ".snapshot"


cdef int path_of_file(char *out, const char *directory, int64_t base_offset, int which, const char *ending) noexcept nogil:
    cdef char suffix[32]
    snprintf(suffix, sizeof(suffix), "%s%s", suffix_of(which), ending)
    return path_of_segment(out, directory, base_offset, suffix)


cdef int rename_file(const char *directory, int64_t base_offset, int which, const char *before, const char *after) noexcept nogil:
    cdef char old[PATH_BYTES]
    cdef char new[PATH_BYTES]
    cdef int rc = path_of_file(old, directory, base_offset, which, before)
    if rc == 0:
        rc = path_of_file(new, directory, base_offset, which, after)
    return rename_path(old, new) if rc == 0 else rc


cdef int64_t offset_of_name(const char *name, const char **suffix) noexcept nogil:
    cdef int64_t value = 0
    cdef int i, digit
    if strlen(name) < 21:
        return -1
    for i in range(20):
        if name[i] < c'0' or name[i] > c'9':
            return -1
        digit = <int> name[i] - <int> c'0'
        if value > (<int64_t> 0x7fffffffffffffff - digit) // 10:
            return -1
        value = value * 10 + digit
    if name[20] != c'.':
        return -1
    suffix[0] = name + 20
    return <int64_t> value
