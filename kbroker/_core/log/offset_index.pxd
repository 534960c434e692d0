# offset_index: sparse map from relative offset to file position, Kafka's .index: int32 relative offset, int32 position.
# Not protected by a checksum: a damaged one is rebuilt from the log.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef struct OffsetIndex:
    int fd
    uint8_t *entries       # in memory, eight bytes each, in the file's byte order
    int32_t count
    int32_t capacity
    int32_t written        # entries already in the file
    int64_t base_offset
