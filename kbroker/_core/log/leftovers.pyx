# Finishes or undoes what was going on in a directory when its broker died.
from libc.errno cimport EIO, EISDIR, ENAMETOOLONG, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport strcmp

from kbroker._core.log.directory cimport (
    DIR, DT_REG, DT_UNKNOWN, Offsets, add_offset, closedir, dirent, ends_with, opendir, readdir,
)
from kbroker._core.log.files cimport (
    LOG_FILE, PATH_BYTES, READ_ONLY, close_file, displace_path, offset_of_name, open_file, path_in, path_of_file, remove_path, rename_file,
    size_of_file,
)
from kbroker._core.log.segment cimport Walk, walk_begin, walk_header, walk_next
from kbroker._core.record.batch cimport batch_base_offset, batch_last_offset

cdef enum:
    SUFFIXES = 4             # all but the snapshot, which is the producers'


cdef inline int file_at(int i) noexcept nogil:
    # The log last: while it has its old name the directory still tells that something is to be done.
    return (i + 1) % SUFFIXES


cdef int end_of_swap(const char *directory, int64_t base_offset, int64_t *end_offset, bint *whole) noexcept nogil:
    # Where the swap's offsets end, and whether it is batches from its first byte to its last.
    cdef char path[PATH_BYTES]
    cdef Walk w
    cdef const uint8_t *header
    cdef int64_t size
    cdef int fd
    cdef int rc = path_of_file(path, directory, base_offset, LOG_FILE, ".swap")
    if rc != 0:
        return rc
    fd = open_file(path, READ_ONLY)
    if fd < 0:
        return fd
    size = size_of_file(fd)
    end_offset[0] = base_offset
    walk_begin(&w, fd, 0, size)
    while True:
        header = walk_header(&w)
        if header == NULL:
            break
        if batch_base_offset(header) < end_offset[0] or batch_last_offset(header) < batch_base_offset(header):
            break
        end_offset[0] = batch_last_offset(header) + 1
        walk_next(&w, header)
    whole[0] = size > 0 and w.position == size
    close_file(fd)
    return w.error if size >= 0 else <int> size


cdef bint is_among(const Offsets *o, int64_t offset) noexcept nogil:
    cdef int32_t i
    for i in range(o.count):
        if o.items[i] == offset:
            return True
    return False


cdef int remove_segment(const char *directory, int64_t base_offset, const char *ending) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef int i
    cdef int rc = 0
    for i in range(SUFFIXES):
        if rc == 0:
            rc = path_of_file(path, directory, base_offset, file_at(i), ending)
        if rc == 0:
            rc = remove_path(path)
    return rc


cdef int rename_swap(const char *directory, int64_t base_offset) noexcept nogil:
    cdef int i, rc
    for i in range(SUFFIXES):
        rc = rename_file(directory, base_offset, file_at(i), ".swap", "")
        if rc != 0 and (file_at(i) == LOG_FILE or rc == -ENAMETOOLONG):
            return rc                        # an index that is missing is made anew
    return 0


cdef int finish_swap(const char *directory, int64_t base_offset, const Offsets *logs) noexcept nogil:
    cdef int64_t end_offset = 0
    cdef bint whole = False
    cdef int32_t i
    cdef int rc = end_of_swap(directory, base_offset, &end_offset, &whole)
    if rc == 0 and not whole and is_among(logs, base_offset):
        # Damaged, and what it should replace is all there: the first original goes first. It is compacted once more.
        return remove_segment(directory, base_offset, ".swap")
    for i in range(logs.count):
        if rc == 0 and base_offset <= logs.items[i] and (logs.items[i] < end_offset or logs.items[i] == base_offset):
            rc = remove_segment(directory, logs.items[i], "")
    return rename_swap(directory, base_offset) if rc == 0 else rc


cdef inline bint is_derived(const char *name, const char *suffix, int64_t offset) noexcept nogil:
    if offset < 0:
        return strcmp(name, "leader-epoch-checkpoint") == 0
    return (strcmp(suffix, ".index") == 0 or strcmp(suffix, ".timeindex") == 0 or strcmp(suffix, ".txnindex") == 0
            or strcmp(suffix, ".snapshot") == 0)


cdef int list_names(const char *directory, Offsets *logs, Offsets *swaps, int64_t *first_cleaned,
                    int32_t *displaced) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef DIR *d = opendir(directory)
    cdef dirent *entry
    cdef const char *suffix = NULL
    cdef int64_t offset
    cdef int rc = 0
    if d == NULL:
        return -errno if errno > 0 else -EIO
    while rc == 0:
        entry = readdir(d)
        if entry == NULL:
            break
        offset = offset_of_name(entry.d_name, &suffix)
        if ends_with(entry.d_name, ".deleted") or ends_with(entry.d_name, ".cleaned") or ends_with(entry.d_name, ".tmp"):
            if offset >= 0 and ends_with(entry.d_name, ".cleaned") and (first_cleaned[0] < 0 or offset < first_cleaned[0]):
                first_cleaned[0] = offset
            rc = path_in(path, directory, entry.d_name)
            if rc == 0:
                rc = remove_path(path)
            if rc == -EISDIR:
                rc = min(displace_path(path), 0)
        elif entry.d_type != DT_REG and entry.d_type != DT_UNKNOWN and is_derived(entry.d_name, suffix, offset):
            rc = path_in(path, directory, entry.d_name)
            if rc == 0:
                rc = displace_path(path)
            if rc > 0:
                displaced[0] += rc
                rc = 0
        elif offset >= 0 and strcmp(suffix, ".log") == 0:
            rc = add_offset(logs, offset)
        elif offset >= 0 and strcmp(suffix, ".log.swap") == 0:
            rc = add_offset(swaps, offset)
    closedir(d)
    return rc


cdef int clear_leftovers(const char *directory, int32_t *displaced) noexcept nogil:
    cdef Offsets logs, swaps
    cdef int64_t first_cleaned = -1
    cdef int32_t i
    cdef int rc
    logs.items = swaps.items = NULL
    logs.count = swaps.count = 0
    logs.capacity = swaps.capacity = 0
    displaced[0] = 0
    rc = list_names(directory, &logs, &swaps, &first_cleaned, displaced)
    for i in range(swaps.count):
        if rc == 0:
            if 0 <= first_cleaned <= swaps.items[i]:
                rc = remove_segment(directory, swaps.items[i], ".swap")
            else:
                rc = finish_swap(directory, swaps.items[i], &logs)
    free(logs.items)
    free(swaps.items)
    return rc
