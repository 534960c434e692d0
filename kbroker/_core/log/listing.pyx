# One pass over the names of a directory.
from libc.errno cimport EIO, errno
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, qsort
from libc.string cimport memset, strcmp

from kbroker._core.log.directory cimport DIR, add_offset, closedir, dirent, opendir, readdir
from kbroker._core.log.files cimport offset_of_name


cdef int by_value(const void *a, const void *b) noexcept nogil:
    cdef int64_t x = (<const int64_t *> a)[0]
    cdef int64_t y = (<const int64_t *> b)[0]
    return (x > y) - (x < y)


cdef bint holds(const Offsets *o, int64_t offset) noexcept nogil:
    cdef int32_t i
    for i in range(o.count):
        if o.items[i] == offset:
            return True
    return False


cdef int add_name(Listing *l, const char *suffix, int64_t offset) noexcept nogil:
    if strcmp(suffix, ".log") == 0:
        return add_offset(&l.logs, offset)
    if strcmp(suffix, ".snapshot") == 0:
        return add_offset(&l.snapshots, offset)
    if strcmp(suffix, ".index") == 0 or strcmp(suffix, ".timeindex") == 0:
        return add_offset(&l.indexes, offset)
    return add_offset(&l.txn_indexes, offset) if strcmp(suffix, ".txnindex") == 0 else 0


cdef int listing_read(Listing *l, const char *directory) noexcept nogil:
    cdef DIR *d = opendir(directory)
    cdef dirent *entry
    cdef const char *suffix = NULL
    cdef int64_t offset
    cdef int rc = 0
    memset(l, 0, sizeof(Listing))
    if d == NULL:
        return -errno if errno > 0 else -EIO
    while rc == 0:
        entry = readdir(d)
        if entry == NULL:
            break
        offset = offset_of_name(entry.d_name, &suffix)
        if offset >= 0:
            rc = add_name(l, suffix, offset)
    closedir(d)
    if l.logs.count > 0:
        qsort(l.logs.items, l.logs.count, sizeof(int64_t), by_value)
    if l.snapshots.count > 0:
        qsort(l.snapshots.items, l.snapshots.count, sizeof(int64_t), by_value)
    return rc


cdef void listing_free(Listing *l) noexcept nogil:
    free(l.logs.items)
    free(l.snapshots.items)
    free(l.indexes.items)
    free(l.txn_indexes.items)
