# files: the few things a log asks of a file system, without the GIL.
# Owns        nothing.
# Called by   the other modules of log/.
# Threads     any.
# Returns     0, a count or a descriptor; -errno when the system refused. EINTR and short transfers are dealt with here.
from libc.stdint cimport int64_t, uint8_t
from posix.uio cimport iovec

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *m, void *attributes) noexcept
    int pthread_mutex_destroy(pthread_mutex_t *m) noexcept
    int pthread_mutex_lock(pthread_mutex_t *m) noexcept
    int pthread_mutex_trylock(pthread_mutex_t *m) noexcept
    int pthread_mutex_unlock(pthread_mutex_t *m) noexcept

cdef enum:
    PATH_BYTES = 4096              # directory, slash, name, suffix and the closing zero

# The files of one segment, by the order in which most who change their names go through them.
cdef enum:
    LOG_FILE = 0                   # .log
    OFFSET_INDEX_FILE = 1          # .index
    TIME_INDEX_FILE = 2            # .timeindex
    TXN_INDEX_FILE = 3             # .txnindex
    SNAPSHOT_FILE = 4              # .snapshot
    SEGMENT_FILES = 5

cdef enum Access:
    READ_ONLY = 0
    READ_WRITE = 1                 # the file is there
    CREATE = 2                     # made when it is missing
    CREATE_EMPTY = 3               # made when it is missing, emptied when it is not

cdef int open_file(const char *path, Access access) noexcept nogil              # every descriptor is close-on-exec
cdef int open_memory() noexcept nogil                                           # a file without a name, in memory on Linux
cdef void close_file(int fd) noexcept nogil
cdef int64_t read_at(int fd, void *data, int64_t length, int64_t position) noexcept nogil   # short only at the end
cdef int write_at(int fd, const void *data, int64_t length, int64_t position) noexcept nogil
cdef int write_runs_at(int fd, iovec *runs, int count, int64_t position) noexcept nogil     # one after the other; uses up `runs`
cdef int cut_file(int fd, int64_t length) noexcept nogil
cdef int reserve_file(int fd, int64_t start, int64_t length) noexcept nogil     # blocks, not size; best effort
cdef int sync_file(int fd) noexcept nogil
cdef int sync_path(const char *path) noexcept nogil                             # a file or a directory by name
cdef int64_t size_of_file(int fd) noexcept nogil
cdef int64_t size_of_path(const char *path) noexcept nogil                       # a directory is -EISDIR
cdef int64_t modified_ms(int fd, const char *path) noexcept nogil                # of the open file, else of the named one
cdef int remove_path(const char *path) noexcept nogil                           # a missing file is no error
# Takes the name from what is no file: a link that leads to none, a directory. One that holds something is renamed .stray
# instead of being removed. 1: it was so; 0: it is a file, or a link to one.
cdef int displace_path(const char *path) noexcept nogil
cdef int rename_path(const char *old, const char *new) noexcept nogil
# The whole file in memory that the caller frees; NULL with *length = -errno. More than `limit` bytes is -EFBIG.
cdef uint8_t *read_whole(const char *path, int64_t limit, int64_t *length) noexcept nogil
# Written beside and renamed into place, so that a reader sees the old content or the new, never a part.
cdef int replace_file(const char *path, const void *data, int64_t length) noexcept nogil
cdef int path_of_descriptor(char *out, int fd) noexcept nogil                                # what it leads to; -ENOSYS where the system cannot tell
cdef int path_in(char *out, const char *directory, const char *name) noexcept nogil          # -ENAMETOOLONG
cdef int path_of_segment(char *out, const char *directory, int64_t base_offset, const char *suffix) noexcept nogil
# With what a name may end in behind its suffix: "", .cleaned, .swap, .deleted.
cdef int path_of_file(char *out, const char *directory, int64_t base_offset, int which, const char *ending) noexcept nogil
cdef int rename_file(const char *directory, int64_t base_offset, int which, const char *before, const char *after) noexcept nogil
# The offset of a name like 00000000000000000042.log, and where its suffix begins; -1 for any other name.
cdef int64_t offset_of_name(const char *name, const char **suffix) noexcept nogil
