# time_index: the meaning of Kafka's .timeindex: int64 timestamp, int32 relative offset. An entry says that up to this
# offset (the last one of its batch) no timestamp is larger. Timestamps strictly ascend; the last entry of a closed
# segment is its largest timestamp.
from libc.stdint cimport int32_t, int64_t, uint8_t
from kbroker._core.log.sparse_index cimport NO_ENTRY, SparseIndex, index_entry, index_floor, index_grow
from kbroker._core.wire.cursor cimport load_be32, load_be64, store_be32, store_be64

cdef enum:
    TIME_ENTRY_BYTES = 12


cdef inline int time_index_entry(const SparseIndex *x, int32_t number, int64_t *timestamp, int64_t *relative) noexcept nogil:
    # (-1, 0) for no entry.
    cdef uint8_t entry[12]
    cdef int rc
    timestamp[0] = -1
    relative[0] = 0
    if number == NO_ENTRY:
        return 0
    if number < 0:
        return number
    rc = index_entry(x, number, entry)
    if rc != 0:
        return rc
    timestamp[0] = <int64_t> load_be64(entry)
    relative[0] = <int32_t> load_be32(entry + 8)
    return 0


cdef inline int time_index_last(const SparseIndex *x, int64_t *timestamp, int64_t *relative) noexcept nogil:
    return time_index_entry(x, x.count - 1 if x.count > 0 else <int32_t> NO_ENTRY, timestamp, relative)


cdef inline bint time_index_append(SparseIndex *x, int64_t timestamp, int32_t relative_offset) noexcept nogil:
    cdef uint8_t *entry = index_grow(x)
    if entry == NULL:
        return False
    store_be64(entry, timestamp)
    store_be32(entry + 8, relative_offset)
    return True
