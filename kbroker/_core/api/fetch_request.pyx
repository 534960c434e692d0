# Reading a Fetch where it lies: fixed fields, topics, what a session should forget, the tags.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kbroker._core.api.request cimport Request
from kbroker._core.fetch_session cimport Session, SessionTopic, session_forget
from kbroker._core.limits cimport FETCH_PARTITIONS_MAX
from kbroker._core.purgatory cimport block_reserve
from kbroker._core.wire.cursor cimport (
    Cursor, cursor_over, fail, remaining, skip_tags, take_bytes, take_count, take_int8, take_int32, take_int64, take_string,
    take_uvarint,
)

cdef enum:
    REPEATS_SOUGHT = 64


cdef void topic_key(const FetchWork *work, const FetchItem *item, SessionTopic *topic) noexcept nogil:
    topic.id = <const uint8_t *> item.id if work.version >= 13 else NULL
    topic.name = item.name if item.names_at < 0 else work.names.data + item.names_at
    topic.name_length = item.name_length


cdef FetchItem *add_item(FetchWork *work) noexcept nogil:
    cdef FetchItem *item
    if work.count >= FETCH_PARTITIONS_MAX or \
            not block_reserve(&work.block, (work.count + 1) * <int64_t> sizeof(FetchItem)):
        return NULL
    work.items = <FetchItem *> work.block.data
    item = &work.items[work.count]
    memset(item, 0, sizeof(FetchItem))
    item.names_at = -1
    item.listed = True
    item.current_leader_epoch = -1
    item.last_fetched_epoch = -1
    work.count += 1
    return item


cdef bint read_topic_key(Cursor *c, const FetchWork *work, SessionTopic *topic) noexcept nogil:
    topic.id = NULL
    topic.name = NULL
    topic.name_length = 0
    if work.version >= 13:
        topic.id = take_bytes(c, 16)
        return topic.id != NULL
    topic.name = take_string(c, work.flexible, &topic.name_length)
    if topic.name == NULL:
        fail(c)                    # a null name is no name
    return topic.name != NULL


cdef void merge_repeated(FetchWork *work, int32_t first) noexcept nogil:
    # A partition named again within its topic: the last one counts, as in Kafka. Looks back a bounded way.
    cdef FetchItem *last = &work.items[work.count - 1]
    cdef int32_t i
    for i in range(max(first, work.count - 1 - REPEATS_SOUGHT), work.count - 1):
        if work.items[i].index == last.index:
            work.items[i] = last[0]
            work.count -= 1
            return


cdef bint read_topic(Cursor *c, FetchWork *work) noexcept nogil:
    cdef SessionTopic topic
    cdef FetchItem *item
    cdef int32_t partitions, i
    cdef int32_t first = work.count
    cdef int16_t version = work.version
    cdef int32_t smallest = 16 + (4 if version >= 9 else 0) + (8 if version >= 5 else 0) + (5 if version >= 12 else 0)
    if not read_topic_key(c, work, &topic):
        return True
    partitions = take_count(c, work.flexible, smallest)
    if partitions < 0:
        c.truncated = True
    for i in range(partitions):
        item = add_item(work)
        if item == NULL:
            return False
        if topic.id != NULL:
            memcpy(item.id, topic.id, 16)
        item.name = topic.name
        item.name_length = topic.name_length
        item.index = take_int32(c)
        if version >= 9:
            item.current_leader_epoch = take_int32(c)
        item.offset = take_int64(c)
        if version >= 12:
            item.last_fetched_epoch = take_int32(c)
        if version >= 5:
            take_int64(c)          # a follower's log start offset
        item.max_bytes = take_int32(c)
        if version >= 12:
            skip_tags(c)           # v17 ReplicaDirectoryId and v18 HighWatermark are for followers
        if c.truncated:
            return True
        merge_repeated(work, first)
    if version >= 12:
        skip_tags(c)
    return True


cdef void read_forgotten(Cursor *c, const FetchWork *work, void *sessions, Session *session) noexcept nogil:
    # Walks ForgottenTopicsData; with a session it also does what it says.
    cdef SessionTopic topic
    cdef int32_t topics = take_count(c, work.flexible, 3 if work.flexible else 6)
    cdef int32_t partitions, index, i, j
    if topics < 0:
        c.truncated = True
    for i in range(topics):
        if not read_topic_key(c, work, &topic):
            return
        partitions = take_count(c, work.flexible, 4)
        if partitions < 0:
            c.truncated = True
        for j in range(partitions):
            index = take_int32(c)
            if session != NULL:
                session_forget(sessions, session, &topic, index)
        if work.flexible:
            skip_tags(c)
        if c.truncated:
            return


cdef void read_closing_tags(Cursor *c, FetchWork *work) noexcept nogil:
    # ReplicaState (tag 1, v15+) is the one that matters here; ClusterId (tag 0) is for the controller's listener.
    cdef uint32_t count = take_uvarint(c)
    cdef uint32_t tag
    cdef Cursor inner
    cdef uint32_t size
    cdef const uint8_t *data
    if count > remaining(c):
        fail(c)
    while count > 0 and not c.truncated:
        tag = take_uvarint(c)
        size = take_uvarint(c)
        data = take_bytes(c, size)
        if data != NULL and tag == 1 and work.version >= 15:
            inner = cursor_over(data, size)
            work.replica_id = take_int32(&inner)
            if inner.truncated:
                fail(c)
        count -= 1


cdef bint read_fetch(Request *r, FetchWork *work, const char **reason) noexcept nogil:
    cdef Cursor c = cursor_over(r.body, r.body_length)
    cdef int16_t version = r.api_version
    cdef int32_t topics, length, i
    work.version = version
    work.flexible = r.flexible
    work.correlation_id = r.correlation_id
    work.replica_id = take_int32(&c) if version <= 14 else -1
    work.max_wait_ms = take_int32(&c)
    work.min_bytes = take_int32(&c)
    work.max_bytes = take_int32(&c)
    work.isolation_level = take_int8(&c)
    work.asked_session_id = take_int32(&c) if version >= 7 else 0
    work.asked_session_epoch = take_int32(&c) if version >= 7 else -1
    topics = take_count(&c, work.flexible, 3 if work.flexible else 6)
    if topics < 0:
        c.truncated = True
    for i in range(topics):
        if not read_topic(&c, work):
            reason[0] = b"Fetch names too many partitions"
            return False
        if c.truncated:
            break
    work.forgotten = c.at
    if version >= 7:
        read_forgotten(&c, work, NULL, NULL)
    if version >= 11 and take_string(&c, work.flexible, &length) == NULL:
        c.truncated = True         # the rack may be empty, not null
    if version >= 12:
        read_closing_tags(&c, work)
    if c.truncated:
        reason[0] = b"Fetch is shorter than its version says"
        return False
    return True


def describe(bytes frame not None, int version):
    """What the reader found in a Fetch body, as a dict with the schema's names, or None."""
    cdef Request r
    cdef FetchWork work
    cdef const char *reason = NULL
    memset(&r, 0, sizeof(Request))
    memset(&work, 0, sizeof(FetchWork))
    r.api_version = version
    r.flexible = version >= 12
    r.body = <const uint8_t *> <const char *> frame
    r.body_length = <int32_t> len(frame)
    try:
        if not read_fetch(&r, &work, &reason):
            return None
        return {
            "replica_id": work.replica_id, "max_wait_ms": work.max_wait_ms, "min_bytes": work.min_bytes,
            "max_bytes": work.max_bytes, "isolation_level": work.isolation_level,
            "session_id": work.asked_session_id, "session_epoch": work.asked_session_epoch,
            "partitions": [describe_item(&work, &work.items[i]) for i in range(work.count)],
        }
    finally:
        free(work.block.data)


cdef tuple describe_item(FetchWork *work, FetchItem *item):
    topic = (<const char *> item.id)[:16] if work.version >= 13 else (<const char *> item.name)[:item.name_length]
    return topic, item.index, item.current_leader_epoch, item.offset, item.last_fetched_epoch, item.max_bytes
