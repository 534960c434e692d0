# cleaner: one compaction of one log: of every key the newest record stays.
# Owns        the map of keys, the buffers and the files it writes until they are swapped in.
# Called by   storage/cleaner through the LogCleaning door, a step at a time, so that whoever calls can throttle and stop it.
# Threads     one at a time. The log's lock is held to pick segments and to rename files, never while bytes are read or written.
# Fails by    -errno and, when the log's content is at fault, a sentence; LOG_CHANGED when it was closed, went offline or was
#             cut in the meantime.
# Invariants  memory: the map, two buffers and the largest batch, whatever the number of keys. At most one old segment and one
#             new one are held open.
#
#   scan   the headers from the log's start: aborted transactions; how many records may need a place in the map
#   map    the keys from the first dirty offset on, until the map is full or the range ends; the rest waits for another
#          compaction
#   copy   the segments in groups that fit one segment: each batch through batch_filter into a new segment, then the swap
from libc.stdint cimport int32_t, int64_t
from kbroker._core.log.batch_filter cimport BatchFilter
from kbroker._core.log.directory cimport Offsets
from kbroker._core.log.offset_map cimport OffsetMap
from kbroker._core.log.segment cimport Segment, Walk
from kbroker._core.log.state cimport Log
from kbroker._core.log.transactions cimport Transactions
from kbroker._core.record.compression cimport Scratch

cdef enum Phase:
    SCANNING = 0
    MAPPING = 1
    COPYING = 2
    FINISHED = 3

cdef struct Cleaning:
    Log *log
    Phase phase
    int64_t cuts                     # the log's, when this began
    int64_t first_dirty_offset
    int64_t first_uncleanable_offset # where a segment begins
    int64_t high_watermark
    int64_t map_slots_most
    double load_factor
    int64_t buffer_bytes
    OffsetMap map
    Transactions txns
    BatchFilter filter
    Segment *source                  # being read; the reference is ours, except of a group
    int64_t source_end
    int64_t position
    int64_t next_source              # the first segment that begins here or later comes next
    int64_t wanted                   # bytes of a batch that the buffer did not hold
    Walk walk
    int64_t dirty_records            # at most so many keys
    Scratch input
    Segment **group                  # the segments that become one
    int32_t group_count
    int32_t group_capacity
    int32_t group_at
    Segment *cleaned                 # what they become; ours until it is swapped in
    int64_t cleaned_end              # its bytes, those in `output` included
    Scratch output
    int64_t output_used
    Offsets replaced                 # base offsets of segments whose files are now .deleted
    int32_t steps_left               # see swap_in
    int64_t bytes_mapped
    int64_t bytes_read
    int64_t bytes_written
    int32_t segments_written
    const char *reason               # static text; NULL: errno says it

cdef class LogCleaning:
    cdef Cleaning c
    cdef object _log                 # keeps the Log alive
    cdef object _failure
