# offset_index: the meaning of Kafka's .index: int32 relative offset, int32 position. An entry names the last offset of a
# batch and the position where that batch begins; there is one per index.interval.bytes of log.
from libc.stdint cimport int32_t, int64_t, uint8_t
from kbroker._core.log.sparse_index cimport NO_ENTRY, SparseIndex, index_entry, index_floor, index_grow
from kbroker._core.wire.cursor cimport load_be32, store_be32

cdef enum:
    OFFSET_ENTRY_BYTES = 8


cdef inline bint offset_index_append(SparseIndex *x, int32_t relative_offset, int32_t position) noexcept nogil:
    cdef uint8_t *entry = index_grow(x)
    if entry == NULL:
        return False
    store_be32(entry, relative_offset)
    store_be32(entry + 4, position)
    return True


cdef inline int64_t position_of_entry(const SparseIndex *x, int32_t number, int64_t *relative_offset) noexcept nogil:
    # The position in entry `number`; 0, the segment's beginning, for NO_ENTRY; -errno.
    cdef uint8_t entry[12]
    cdef int rc
    relative_offset[0] = 0
    if number == NO_ENTRY:
        return 0
    if number < 0:
        return number
    rc = index_entry(x, number, entry)
    if rc != 0:
        return rc
    relative_offset[0] = <int32_t> load_be32(entry)
    return <int32_t> load_be32(entry + 4)


cdef inline int64_t position_before_offset(const SparseIndex *x, int64_t relative_offset) noexcept nogil:
    # Where to begin looking for an offset: at or before its batch.
    cdef int64_t found = 0
    return position_of_entry(x, index_floor(x, 0, 4, relative_offset), &found)


cdef inline int64_t position_before_position(const SparseIndex *x, int64_t position) noexcept nogil:
    # The last indexed batch that begins at or before a position.
    cdef int64_t found = 0
    return position_of_entry(x, index_floor(x, 4, 4, position), &found)
