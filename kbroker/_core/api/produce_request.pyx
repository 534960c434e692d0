# Reading a Produce where it lies: topics, partitions and where their records are.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset

from kbroker._core.api.request cimport Request
from kbroker._core.limits cimport PRODUCE_PARTITIONS_MAX
from kbroker._core.purgatory cimport block_reserve
from kbroker._core.wire.cursor cimport (
    Cursor, cursor_over, skip_tags, take_blob, take_bytes, take_count, take_int16, take_int32, take_string,
)

cdef enum:
    REPEATS_SOUGHT = 64


cdef ProduceItem *add_item(ProduceWork *work) noexcept nogil:
    cdef ProduceItem *item
    if work.count >= PRODUCE_PARTITIONS_MAX or \
            not block_reserve(&work.block, (work.count + 1) * <int64_t> sizeof(ProduceItem)):
        return NULL
    work.items = <ProduceItem *> work.block.data
    item = &work.items[work.count]
    memset(item, 0, sizeof(ProduceItem))
    item.base_offset = -1
    item.log_append_time_ms = -1
    item.log_start_offset = -1
    work.count += 1
    return item


cdef void merge_repeated(ProduceWork *work, int32_t first) noexcept nogil:
    # A partition named again within its topic: the last one counts, as in Kafka. Looks back a bounded way.
    cdef ProduceItem *last = &work.items[work.count - 1]
    cdef int32_t i
    for i in range(max(first, work.count - 1 - REPEATS_SOUGHT), work.count - 1):
        if work.items[i].index == last.index:
            work.items[i].records = last.records
            work.items[i].length = last.length
            work.count -= 1
            return


cdef bint read_topic(Cursor *c, ProduceWork *work, bint by_id, bint flexible) noexcept nogil:
    cdef ProduceItem *item
    cdef const uint8_t *name
    cdef int32_t name_length = 16
    cdef int32_t partitions, i
    cdef int32_t first = work.count
    if by_id:
        name = take_bytes(c, 16)
    else:
        name = take_string(c, flexible, &name_length)
    partitions = take_count(c, flexible, 5 if flexible else 8)
    if name == NULL or partitions < 0:
        c.truncated = True
        return True
    for i in range(partitions):
        item = add_item(work)
        if item == NULL:
            return False
        item.name = name
        item.name_length = name_length
        item.index = take_int32(c)
        item.records = <uint8_t *> take_blob(c, flexible, &item.length)
        if flexible:
            skip_tags(c)
        if c.truncated:
            return True
        merge_repeated(work, first)
    if partitions > 0:
        work.items[first].first_of_topic = True
        work.items[first].topic_partitions = work.count - first
        work.topic_count += 1
    if flexible:
        skip_tags(c)
    return True


cdef bint read_produce(Request *r, ProduceWork *work, const char **reason) noexcept nogil:
    cdef Cursor c = cursor_over(r.body, r.body_length)
    cdef bint flexible = r.flexible
    cdef int32_t length, topics, i
    work.version = r.api_version
    work.flexible = flexible
    work.correlation_id = r.correlation_id
    take_string(&c, flexible, &length)
    work.has_transactional_id = length >= 0
    work.acks = take_int16(&c)
    work.timeout_ms = take_int32(&c)
    topics = take_count(&c, flexible, 3 if flexible else 6)
    if topics < 0:
        c.truncated = True
    for i in range(topics):
        if not read_topic(&c, work, r.api_version >= 13, flexible):
            reason[0] = b"Produce names too many partitions"
            return False
        if c.truncated:
            break
    if flexible:
        skip_tags(&c)
    if c.truncated:
        reason[0] = b"Produce is shorter than its version says"
        return False
    return True


def describe(bytes frame not None, int version):
    """What the reader found in a Produce body: (transactional, acks, timeout, [(topic, index, records)]), or None."""
    cdef Request r
    cdef ProduceWork work
    cdef const char *reason = NULL
    memset(&r, 0, sizeof(Request))
    memset(&work, 0, sizeof(ProduceWork))
    r.api_version = version
    r.flexible = version >= 9
    r.body = <const uint8_t *> <const char *> frame
    r.body_length = <int32_t> len(frame)
    try:
        if not read_produce(&r, &work, &reason):
            return None
        return (bool(work.has_transactional_id), work.acks, work.timeout_ms, [
            ((<const char *> work.items[i].name)[:work.items[i].name_length], work.items[i].index,
             None if work.items[i].records == NULL else (<const char *> work.items[i].records)[:work.items[i].length])
            for i in range(work.count)])
    finally:
        free(work.block.data)
