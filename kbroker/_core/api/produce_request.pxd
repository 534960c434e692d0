# produce_request: what a Produce asks, read by hand in every version from 3 to 13.
# Owns        nothing but the shape of the work; api/produce owns the memory.
# Called by   api/produce.
# Threads     one network thread.
# Fails by    False with a reason: truncated, or more partitions than PRODUCE_PARTITIONS_MAX. Property tests hold it to the plan codec.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from kbroker._core.api.request cimport Request
from kbroker._core.partitions cimport Partition, Table, Topic
from kbroker._core.purgatory cimport Block

cdef struct ProduceItem:
    # what was asked
    Topic *topic                   # NULL: unknown
    const uint8_t *name            # as the request named the topic: name, or 16 bytes of id
    int32_t name_length
    int32_t index
    bint first_of_topic
    int32_t topic_partitions       # with first_of_topic
    uint8_t *records               # NULL: null
    int32_t length
    bint transactional
    # what came of it
    Partition *partition           # NULL: unknown
    bint appended                  # or at least tried
    int16_t error
    bint waits                     # not yet replicated, or not yet synced
    int64_t base_offset
    int64_t log_append_time_ms
    int64_t log_start_offset
    int64_t required_offset
    const char *message            # static text, or NULL
    const char *record_message     # with record_errors
    int32_t *record_errors
    int32_t record_error_count

cdef struct ProduceWork:
    int16_t version
    bint flexible
    int32_t correlation_id
    int16_t acks
    int32_t timeout_ms
    bint has_transactional_id
    bint has_transactional_batch
    Table *table                   # of the turn that began it; a parked work holds a reference
    Block block                    # the items
    ProduceItem *items
    int32_t count
    int32_t topic_count            # with at least one partition
    uint8_t *names                 # copies of the unknown topics' names, when parked

# Reads the body into work.items, resolving nothing. False: truncated or over a bound, with a reason.
cdef bint read_produce(Request *r, ProduceWork *work, const char **reason) noexcept nogil
