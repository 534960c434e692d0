# filesystem: the declarations of c/filesystem.h, and nothing else.
from libc.stdint cimport int64_t
from posix.stat cimport struct_stat
from posix.types cimport off_t

cdef extern from "kbroker/_core/c/filesystem.h" nogil:
    enum:
        O_CLOEXEC
        F_DUPFD_CLOEXEC
    int fcntl(int fd, int command, ...) noexcept
    int64_t page_bytes "kb_page_bytes"() noexcept
    int open_nameless "kb_open_nameless"() noexcept
    int reserve_blocks "kb_reserve"(int fd, int64_t start, int64_t length) noexcept
    int64_t cached_pages "kb_cached_pages"(int fd, int64_t position, int64_t length) noexcept
    ssize_t pread_resident "kb_pread_resident"(int fd, void *into, size_t length, off_t position) noexcept
    void read_ahead "kb_read_ahead"(int fd, int64_t position, int64_t length) noexcept
    int system_sync "kb_sync"(int fd) noexcept
    int path_of "kb_path_of_descriptor"(int fd, char *out, size_t capacity) noexcept
    int64_t modified_ms_of "kb_modified_ms"(const struct_stat *s) noexcept
