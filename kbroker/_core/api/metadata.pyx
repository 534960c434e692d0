# Metadata in the common case: all topics, or a few known ones, on brokers that are all alive.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memset

from kbroker._core.api.reply cimport begin_reply, put_uuid
from kbroker._core.api.request cimport CLOSE, POST, READY, Outcome, Request, Worker
from kbroker._core.partitions cimport (
    Endpoint, Partition, Table, Topic, find_endpoint, find_topic_by_id, find_topic_by_name, pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kbroker._core.wire.chain cimport (
    Chain, chain_clear, chain_seal, put_count, put_int8, put_int16, put_int32, put_no_tags, put_string,
)
from kbroker._core.wire.cursor cimport (
    Cursor, cursor_over, skip_tags, take_bytes, take_count, take_int8, take_string,
)

cdef enum:
    TOPICS_BY_HAND = 64                    # longer lists are rare and go to the control side
    NOT_REQUESTED = -2147483648            # AuthorizedOperations when nobody asked for them

cdef struct Ask:
    bint all
    int32_t count
    Topic *topics[64]
    bint authorized_operations


cdef inline bint is_zero(const uint8_t *id) noexcept nogil:
    cdef int i
    for i in range(16):
        if id[i] != 0:
            return False
    return True


cdef Topic *read_topic(Cursor *c, const Request *r, const Table *table) noexcept nogil:
    # NULL: unknown, or asked for in a way that the control side judges.
    cdef const uint8_t *id = NULL
    cdef const uint8_t *name
    cdef int32_t length
    if r.api_version >= 10:
        id = take_bytes(c, 16)
    name = take_string(c, r.flexible, &length)
    if r.flexible:
        skip_tags(c)
    if c.truncated:
        return NULL
    if id != NULL and not is_zero(id):
        return find_topic_by_id(table, id) if r.api_version >= 12 else NULL
    return find_topic_by_name(table, name, length) if name != NULL else NULL


cdef bint read_metadata(Request *r, const Table *table, Ask *ask, bint *known) noexcept nogil:
    # False: truncated. `known`: the table can tell all of it.
    cdef Cursor c = cursor_over(r.body, r.body_length)
    cdef int16_t version = r.api_version
    cdef Topic *topic
    cdef int32_t count = take_count(&c, r.flexible, 2)
    cdef int32_t i, j
    known[0] = True
    memset(ask, 0, sizeof(Ask))
    ask.all = count < 0 or (count == 0 and version == 0)
    if count < 0 and version == 0:
        return False
    for i in range(count):
        topic = read_topic(&c, r, table)
        if c.truncated:
            return False
        if topic == NULL or ask.count == TOPICS_BY_HAND:
            known[0] = False
            continue
        for j in range(ask.count):
            if ask.topics[j] == topic:     # named twice, answered once
                break
        else:
            ask.topics[ask.count] = topic
            ask.count += 1
    if version >= 4:
        take_int8(&c)                      # allow_auto_topic_creation: every topic is known, or it is not ours to answer
    if 8 <= version <= 10 and take_int8(&c) != 0:
        ask.authorized_operations = True
    if version >= 8 and take_int8(&c) != 0:
        ask.authorized_operations = True
    if r.flexible:
        skip_tags(&c)
    return not c.truncated


cdef void put_nodes(Chain *reply, bint flexible, const int32_t *nodes, int32_t count) noexcept nogil:
    cdef int32_t i
    put_count(reply, flexible, count)
    for i in range(count):
        put_int32(reply, nodes[i])


cdef bint put_partition(Chain *reply, const Request *r, const Table *table, Partition *p) noexcept nogil:
    # False: a broker of this partition is not alive, or its placement was not told.
    cdef bint fine
    cdef int32_t i
    pthread_mutex_lock(&p.lock)
    fine = p.placement != NULL and find_endpoint(table, p.leader_id) != NULL
    for i in range(p.replica_count if fine else 0):
        fine = fine and find_endpoint(table, p.placement[i]) != NULL
    if fine:
        put_int16(reply, 0)
        put_int32(reply, p.index)
        put_int32(reply, p.leader_id)
        if r.api_version >= 7:
            put_int32(reply, p.leader_epoch)
        put_nodes(reply, r.flexible, p.placement, p.replica_count)
        put_nodes(reply, r.flexible, p.placement + p.replica_count, p.placed_isr_count)
        if r.api_version >= 5:
            put_count(reply, r.flexible, 0)        # offline_replicas
        put_no_tags(reply, r.flexible)
    pthread_mutex_unlock(&p.lock)
    return fine


cdef bint put_topic(Chain *reply, const Request *r, const Table *table, const Topic *t) noexcept nogil:
    cdef int32_t i
    put_int16(reply, 0)
    put_string(reply, r.flexible, t.name, t.name_length)
    if r.api_version >= 10:
        put_uuid(reply, t.id)
    if r.api_version >= 1:
        put_int8(reply, t.internal)
    put_count(reply, r.flexible, t.partition_count)
    for i in range(t.partition_count):
        if not put_partition(reply, r, table, t.partitions[i]):
            return False
    if r.api_version >= 8:
        put_int32(reply, NOT_REQUESTED)
    put_no_tags(reply, r.flexible)
    return True


cdef void put_brokers(Chain *reply, const Request *r, const Table *table) noexcept nogil:
    cdef const Endpoint *e
    cdef int32_t i
    put_count(reply, r.flexible, table.endpoint_count)
    for i in range(table.endpoint_count):
        e = &table.endpoints[i]
        put_int32(reply, e.node_id)
        put_string(reply, r.flexible, e.host, e.host_length)
        put_int32(reply, e.port)
        if r.api_version >= 1:
            put_string(reply, r.flexible, e.rack, e.rack_length)
        put_no_tags(reply, r.flexible)


cdef bint write_reply(Chain *reply, const Request *r, const Table *table, Ask *ask) noexcept nogil:
    cdef int16_t version = r.api_version
    cdef int32_t count = table.topic_count if ask.all else ask.count
    cdef int32_t i
    begin_reply(reply, r.correlation_id, r.flexible)
    if version >= 3:
        put_int32(reply, 0)                # throttle_time_ms
    put_brokers(reply, r, table)
    if version >= 2:
        put_string(reply, r.flexible, table.cluster_id, table.cluster_id_length)
    if version >= 1:
        put_int32(reply, table.controller_id)
    put_count(reply, r.flexible, count)
    for i in range(count):
        if not put_topic(reply, r, table, table.topics[i] if ask.all else ask.topics[i]):
            return False
    if 8 <= version <= 10:
        put_int32(reply, NOT_REQUESTED)
    if version >= 13:
        put_int16(reply, 0)
    put_no_tags(reply, r.flexible)
    chain_seal(reply)
    return True


cdef Outcome metadata(Worker *w, Request *r, Chain *reply) noexcept nogil:
    cdef Ask ask
    cdef bint known
    if w.table.cluster_id == NULL:
        return POST
    if not read_metadata(r, w.table, &ask, &known):
        r.reason = b"Metadata is shorter than its version says"
        return CLOSE
    if not known or ask.authorized_operations:
        return POST
    if not write_reply(reply, r, w.table, &ask):
        chain_clear(reply)
        return POST
    return READY
