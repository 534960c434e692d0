# time_index: sparse map from timestamp to relative offset, Kafka's .timeindex: int64 timestamp, int32 relative offset.
# Not protected by a checksum: a damaged one is rebuilt from the log.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef struct TimeIndex:
    int fd
    uint8_t *entries       # in memory, twelve bytes each, in the file's byte order
    int32_t count
    int32_t capacity
    int32_t written
    int64_t base_offset
