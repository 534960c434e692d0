# The mechanics of Kafka's two index files: a sorted array, partly in memory, partly in a file.
from libc.errno cimport EBADMSG, EINVAL
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from kbroker._core.log.files cimport cut_file, read_at, size_of_file, write_at
from kbroker._core.wire.cursor cimport load_be32, load_be64

cdef enum:
    WINDOW_ENTRIES = 64          # the last steps of a search in the file are one read of this many
    FIRST_CAPACITY = 16


cdef inline int64_t field_of(const uint8_t *entry, int field_at, int field_bytes) noexcept nogil:
    if field_bytes == 8:
        return <int64_t> load_be64(entry + field_at)
    return <int32_t> load_be32(entry + field_at)


cdef void index_init(SparseIndex *x, int32_t width) noexcept nogil:
    x.fd = -1
    x.width = width
    x.stored = 0
    x.written = 0
    x.count = 0
    x.capacity = 0
    x.tail = NULL


cdef void index_free(SparseIndex *x) noexcept nogil:
    free(x.tail)
    x.tail = NULL
    x.capacity = 0


cdef uint8_t *index_grow(SparseIndex *x) noexcept nogil:
    cdef int32_t held = x.count - x.stored
    cdef int32_t capacity
    cdef void *moved
    if held == x.capacity:
        capacity = x.capacity * 2 if x.capacity > 0 else FIRST_CAPACITY
        moved = realloc(x.tail, <size_t> capacity * x.width)
        if moved == NULL:
            return NULL
        x.tail = <uint8_t *> moved
        x.capacity = capacity
    x.count += 1
    return x.tail + <int64_t> held * x.width


cdef int index_entry(const SparseIndex *x, int32_t number, uint8_t *out) noexcept nogil:
    cdef int64_t n
    if number >= x.stored:
        memcpy(out, x.tail + <int64_t> (number - x.stored) * x.width, x.width)
        return 0
    n = read_at(x.fd, out, x.width, <int64_t> number * x.width)
    if n == x.width:
        return 0
    return <int> n if n < 0 else -EBADMSG


cdef int32_t floor_in(const uint8_t *entries, int32_t count, int width, int at, int bytes, int64_t key) noexcept nogil:
    # How many of these entries have a field <= key.
    cdef int32_t low = 0
    cdef int32_t high = count
    cdef int32_t middle
    while low < high:
        middle = low + (high - low) // 2
        if field_of(entries + <int64_t> middle * width, at, bytes) <= key:
            low = middle + 1
        else:
            high = middle
    return low


cdef int32_t index_floor(const SparseIndex *x, int field_at, int field_bytes, int64_t key) noexcept nogil:
    cdef uint8_t window[64 * 12]
    cdef int32_t low = 0
    cdef int32_t high = x.stored
    cdef int32_t middle, found
    cdef int64_t n
    if x.count > x.stored and field_of(x.tail, field_at, field_bytes) <= key:
        return x.stored - 1 + floor_in(x.tail, x.count - x.stored, x.width, field_at, field_bytes, key)
    while high - low > WINDOW_ENTRIES:
        middle = low + (high - low) // 2
        n = index_entry(x, middle, window)
        if n < 0:
            return <int32_t> n
        if field_of(window, field_at, field_bytes) <= key:
            low = middle
        else:
            high = middle
    if high == low:
        return NO_ENTRY
    n = read_at(x.fd, window, <int64_t> (high - low) * x.width, <int64_t> low * x.width)
    if n != <int64_t> (high - low) * x.width:
        return <int32_t> n if n < 0 else -EBADMSG
    found = low - 1 + floor_in(window, high - low, x.width, field_at, field_bytes, key)
    return found if found >= 0 else NO_ENTRY


cdef int index_cut(SparseIndex *x, int32_t count) noexcept nogil:
    if count >= x.count:
        return 0
    x.count = count
    if x.stored > count:
        x.stored = count
    if x.written > count:
        x.written = count
        if x.fd >= 0:
            return cut_file(x.fd, <int64_t> count * x.width)
    return 0


cdef int index_write(SparseIndex *x) noexcept nogil:
    cdef int64_t at = <int64_t> x.written * x.width
    cdef int64_t end = <int64_t> x.count * x.width
    cdef int rc = 0
    if end > at:
        rc = write_at(x.fd, x.tail + at - <int64_t> x.stored * x.width, end - at, at)
    if rc == 0 and size_of_file(x.fd) > end:
        rc = cut_file(x.fd, end)
    if rc == 0:
        x.written = x.count
    return rc


cdef void index_settle(SparseIndex *x) noexcept nogil:
    if x.written == x.count:
        index_free(x)
        x.stored = x.count


cdef int index_adopt(SparseIndex *x, int64_t size, int order_at, int order_bytes) noexcept nogil:
    cdef uint8_t zeros[12]
    cdef uint8_t first[12]
    cdef uint8_t last[12]
    cdef int32_t low, high, middle
    cdef int rc
    cdef int64_t i
    for i in range(12):
        zeros[i] = 0
    if size % x.width != 0 or size // x.width > 0x7fffffff:
        return -EINVAL
    low = 0
    high = <int32_t> (size // x.width)
    x.stored = x.written = x.count = high
    if high == 0:
        return 0
    rc = index_entry(x, high - 1, last)
    if rc != 0:
        return rc
    if memcmp(last, zeros, x.width) == 0:
        while low < high:                    # how many entries come before the zeros
            middle = low + (high - low) // 2
            rc = index_entry(x, middle, last)
            if rc != 0:
                return rc
            if memcmp(last, zeros, x.width) != 0:
                low = middle + 1
            else:
                high = middle
        x.stored = x.count = low             # written stays: the zeros are cut off by the next index_write
        x.written = low
        if low == 0:
            return 0
        rc = index_entry(x, low - 1, last)
        if rc != 0:
            return rc
    rc = index_entry(x, 0, first)
    if rc != 0:
        return rc
    if field_of(first, order_at, order_bytes) > field_of(last, order_at, order_bytes):
        return -EINVAL
    return 0
