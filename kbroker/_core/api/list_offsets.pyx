# Spark asks for a partition's bounds with every poll, and a consumer's lag is this question: it is not worth a thread switch.
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kbroker._core.api.reply cimport begin_reply
from kbroker._core.api.request cimport POST, READY, Outcome, Request, Worker
from kbroker._core.errors cimport Err
from kbroker._core.log.leader_epochs cimport epochs_at
from kbroker._core.log.partition_log cimport (
    Log, log_failed, log_high_watermark, log_last_stable_offset, log_start_offset,
)
from kbroker._core.partitions cimport (
    Partition, Topic, find_topic_by_name, pthread_mutex_lock, pthread_mutex_unlock, topic_partition,
)
from kbroker._core.wire.chain cimport (
    Chain, chain_seal, put_count, put_int16, put_int32, put_int64, put_no_tags, put_string,
)
from kbroker._core.wire.cursor cimport (
    Cursor, cursor_over, remaining, skip_tags, take_count, take_int8, take_int32, take_int64, take_string,
)

cdef enum:
    LATEST = -1
    EARLIEST = -2
    CONSUMER = -1
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

cdef struct Ask:
    int8_t isolation_level
    const uint8_t *name
    int32_t name_length
    int32_t index
    int32_t current_leader_epoch   # -1: the client does not know one
    int64_t timestamp


cdef bint read_one(const Request *r, Ask *ask) noexcept nogil:
    # False: it is not one partition of one topic, or no whole request.
    cdef Cursor c = cursor_over(r.body, r.body_length)
    cdef bint flexible = r.flexible
    cdef bint one = take_int32(&c) == CONSUMER
    ask.isolation_level = take_int8(&c) if r.api_version >= 2 else <int8_t> READ_UNCOMMITTED
    one = take_count(&c, flexible, 1) == 1 and one
    ask.name = take_string(&c, flexible, &ask.name_length)
    one = take_count(&c, flexible, 1) == 1 and one and ask.name != NULL
    ask.index = take_int32(&c)
    ask.current_leader_epoch = take_int32(&c) if r.api_version >= 4 else -1
    ask.timestamp = take_int64(&c)
    if flexible:
        skip_tags(&c)
        skip_tags(&c)
    if r.api_version >= 10:
        take_int32(&c)             # for how long remote storage may be asked
    if flexible:
        skip_tags(&c)
    return one and not c.truncated and remaining(&c) == 0


cdef bint look_up(Partition *p, const Ask *ask, int64_t *offset, int32_t *epoch) noexcept nogil:
    # False: there is something to say that is no offset.
    cdef Log *log
    cdef bint known
    pthread_mutex_lock(&p.lock)
    log = p.log
    known = (log != NULL and p.is_leader and not p.deleted and not p.storage_error and not log_failed(log)
             and (ask.current_leader_epoch == -1 or ask.current_leader_epoch == p.leader_epoch))
    if known and ask.timestamp == EARLIEST:
        pthread_mutex_lock(&log.lock)
        offset[0] = log_start_offset(log)
        epoch[0] = epochs_at(&log.epochs, offset[0])
        pthread_mutex_unlock(&log.lock)
    elif known:
        offset[0] = log_last_stable_offset(log) if ask.isolation_level == READ_COMMITTED else log_high_watermark(log)
        epoch[0] = p.leader_epoch
    pthread_mutex_unlock(&p.lock)
    return known


cdef Outcome list_offsets(Worker *w, Request *r, Chain *reply) noexcept nogil:
    cdef Ask ask
    cdef Topic *topic
    cdef Partition *partition
    cdef int64_t offset = -1
    cdef int32_t epoch = -1
    if not read_one(r, &ask) or ask.timestamp not in (LATEST, EARLIEST) or \
            ask.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return POST
    topic = find_topic_by_name(w.table, ask.name, ask.name_length)
    partition = topic_partition(topic, ask.index) if topic != NULL else NULL
    if partition == NULL or not look_up(partition, &ask, &offset, &epoch):
        return POST
    begin_reply(reply, r.correlation_id, r.flexible)
    if r.api_version >= 2:
        put_int32(reply, 0)        # throttle_time_ms
    put_count(reply, r.flexible, 1)
    put_string(reply, r.flexible, ask.name, ask.name_length)
    put_count(reply, r.flexible, 1)
    put_int32(reply, ask.index)
    put_int16(reply, Err.NONE)
    put_int64(reply, -1)           # timestamp: of a place, not of a record
    put_int64(reply, offset)
    if r.api_version >= 4:
        put_int32(reply, epoch)
    put_no_tags(reply, r.flexible)
    put_no_tags(reply, r.flexible)
    put_no_tags(reply, r.flexible)
    chain_seal(reply)
    return READY
