# segment: one .log file of a partition with its offset and time index.
# Owns        the descriptors (any kind: a file, a memfd) and the write position.
# Called by   partition_log (append, roll), api/fetch (slice), recovery (scan), net/egress (sendfile).
# Threads     segment_append: under the log's lock. Reads of bytes below size_bytes: any thread that holds a reference.
# Returns     0 or -errno. Never raises, never takes the GIL.
# Invariants  base_offset <= every offset held < next_offset; bytes below size_bytes never change (compaction makes new files).
from libc.stdint cimport int32_t, int64_t, uint8_t
from kbroker._core.log.offset_index cimport OffsetIndex
from kbroker._core.log.time_index cimport TimeIndex

cdef struct Segment:
    int32_t references       # the log holds one; each reply in flight holds one; the last one closes the file
    int fd
    int64_t base_offset      # also the file's name, in 20 digits
    int64_t next_offset      # first offset not held here
    int64_t size_bytes       # published last: a reader may trust every byte below it
    int64_t max_timestamp    # -1: none
    int64_t max_timestamp_offset
    int64_t first_timestamp  # of the first batch, for rolling by time; -1: none
    int64_t created_ms
    int64_t bytes_since_index
    OffsetIndex offset_index
    TimeIndex time_index

cdef void segment_retain(Segment *s) noexcept nogil
cdef void segment_release(Segment *s) noexcept nogil
