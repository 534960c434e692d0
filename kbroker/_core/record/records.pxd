# records: batches and records, read and built, for whoever wants the contents: internal topics, tools, tests, the cleaner.
# Owns        nothing; walks borrow the caller's bytes, and its Scratch when a batch is compressed.
# Called by   the Python door (records.pyx) and nogil readers that visit single records.
# Threads     any, each with its own walk and Scratch. Only what makes Python objects needs the GIL.
# Fails by    an Err code, a RecordFault or a DecompressError, as each function says; the Python door by BrokenRecords.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from kbroker._core.record.compression cimport Scratch
from kbroker._core.record.record_view cimport RECORD_BROKEN, RECORD_FINE, RecordFault, RecordView, read_record

# The records of one batch, in the clear.
cdef struct RecordWalk:
    const uint8_t *at
    const uint8_t *end
    int32_t left             # records not yet read
    int64_t base_offset
    int64_t base_timestamp
    bint log_append_time     # every record carries max_timestamp
    int64_t max_timestamp

# Opens a batch that check_batch has found whole: 0, or a DecompressError. A compressed batch is inflated into `scratch`,
# which must then live as long as the walk.
cdef int open_records(const uint8_t *batch, Scratch *scratch, int64_t cap_bytes, RecordWalk *walk) noexcept nogil

# The same with its checks, and with Python's codecs where the system has none. The bytes returned, or None, must live
# as long as the walk, and so must `scratch`. Needs the GIL, as the next three do; raises BrokenRecords.
cdef bytes open_batch(const uint8_t *batch, int64_t available, Scratch *scratch, RecordWalk *walk)

# The next record of an opened batch.
cdef int visit(RecordWalk *walk, RecordView *record, int64_t *offset, int64_t *timestamp) except -1

# The size of the batch at `at`, whose length and magic are looked at, or CUT_SHORT.
cdef enum:
    CUT_SHORT = 0
cdef int64_t whole_batch(const uint8_t *data, int64_t at, int64_t length) except -1

# None for a negative length.
cdef object bytes_or_none(const uint8_t *data, int32_t length)

cdef inline RecordFault next_record(RecordWalk *walk, RecordView *record, int64_t *offset,
                                    int64_t *timestamp) noexcept nogil:
    # Call while walk.left > 0. Bytes left behind the last record are a fault of that record.
    cdef RecordFault fault = read_record(&walk.at, walk.end, record)
    if fault != RECORD_FINE:
        return fault
    walk.left -= 1
    if walk.left == 0 and walk.at != walk.end:
        return RECORD_BROKEN
    offset[0] = walk.base_offset + record.offset_delta
    timestamp[0] = walk.max_timestamp if walk.log_append_time else walk.base_timestamp + record.timestamp_delta
    return RECORD_FINE
