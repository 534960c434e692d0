# directory: the offsets that a log's directory tells by its file names.
# Called by   log/recovery and log/leftovers.
# Returns     0 or -errno.
from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport realloc
from libc.string cimport strcmp, strlen

cdef extern from "<dirent.h>" nogil:
    ctypedef struct DIR:
        pass
    struct dirent:
        char d_name[256]
        unsigned char d_type
    DIR *opendir(const char *path)
    dirent *readdir(DIR *d)
    int closedir(DIR *d)
    enum: DT_REG
    enum: DT_UNKNOWN

cdef struct Offsets:
    int64_t *items
    int32_t count
    int32_t capacity


cdef inline int add_offset(Offsets *o, int64_t offset) noexcept nogil:
    cdef void *moved
    cdef int32_t capacity
    if o.count == o.capacity:
        capacity = o.capacity * 2 if o.capacity > 0 else 16
        moved = realloc(o.items, capacity * sizeof(int64_t))
        if moved == NULL:
            return -ENOMEM
        o.items = <int64_t *> moved
        o.capacity = capacity
    o.items[o.count] = offset
    o.count += 1
    return 0


cdef inline bint ends_with(const char *name, const char *ending) noexcept nogil:
    cdef size_t n = strlen(name)
    cdef size_t m = strlen(ending)
    return n >= m and strcmp(name + n - m, ending) == 0
