# Produce: read the request where it lies, judge every batch's outside, append, answer or wait for the replicas.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset, strlen

from kbroker._core.api.reply cimport begin_reply, put_endpoints, put_leader_tag, put_uuid
from kbroker._core.api.request cimport CLOSE, PARKED, POST, READY, SILENT, Outcome, Request, Worker
from kbroker._core.clock cimport mono_ms, wall_ms
from kbroker._core.errors cimport Err
from kbroker._core.limits cimport PRODUCE_PARTITIONS_MAX
from kbroker._core.log.partition_log cimport AppendResult
from kbroker._core.partitions cimport (
    Partition, find_topic_by_id, find_topic_by_name, partition_check_acks, partition_high_watermark, partition_leader,
    partition_produce, table_release, table_retain, topic_partition,
)
from kbroker._core.purgatory cimport (
    SPARE_PRODUCE, Parked, block_reserve, block_trim, parked_create, parked_free, parked_watch, purgatory_park, spare_give,
    spare_take,
)
from kbroker._core.record.batch cimport (
    ATTR_CODEC, ATTR_TRANSACTIONAL, BATCH_HEADER_BYTES, batch_attributes, batch_magic, next_batch,
)
from kbroker._core.record.compression cimport CODEC_ZSTD, codec_available, scratch_trim
from kbroker._core.wire.chain cimport (
    Chain, chain_seal, put_count, put_int16, put_int32, put_int64, put_no_tags, put_string, put_uvarint,
)
from kbroker._core.wire.cursor cimport (
    Cursor, cursor_over, skip_tags, take_blob, take_bytes, take_count, take_int16, take_int32, take_string,
)

cdef enum:
    REPEATS_SOUGHT = 64


# ---- reading ----

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


# ---- judging ----

cdef int64_t first_batch(const uint8_t *records, int64_t length, int16_t *error) noexcept nogil:
    # The first batch's whole size; 0: there is no whole batch.
    cdef const char *message = NULL
    cdef int64_t size = 0
    error[0] = next_batch(records, length, &size, &message)
    return size


cdef int16_t judge_request(ProduceWork *work) noexcept nogil:
    # Kafka looks for transactional batches first; a batch that cannot be one fails the whole request there.
    cdef ProduceItem *item
    cdef int16_t error = Err.NONE
    cdef int32_t i
    for i in range(work.count):
        item = &work.items[i]
        if item.records == NULL:
            continue
        if first_batch(item.records, item.length, &error) > 0 and batch_magic(item.records) == 2 and \
                batch_attributes(item.records) & ATTR_TRANSACTIONAL:
            work.has_transactional_batch = True
            return Err.NONE
        if error != Err.NONE:
            return error
    return Err.NONE


cdef bint has_unknown_codec(const ProduceItem *item) noexcept nogil:
    return item.partition != NULL and item.error == Err.NONE and \
        batch_attributes(item.records) & ATTR_CODEC > CODEC_ZSTD


cdef void fail_all(ProduceWork *work, int16_t error, const char *message) noexcept nogil:
    cdef int32_t i
    for i in range(work.count):
        work.items[i].error = error
        work.items[i].message = message


cdef int16_t judge_outside(ProduceItem *item, int16_t version) noexcept nogil:
    # Before any log is looked at: exactly one batch, magic 2, a codec that this version may carry. Cuts trailing bytes.
    cdef int16_t error = Err.NONE
    cdef int64_t size
    if item.records == NULL:
        return Err.INVALID_RECORD
    size = first_batch(item.records, item.length, &error)
    if error != Err.NONE:
        return error
    if size == 0 or batch_magic(item.records) != 2:
        return Err.INVALID_RECORD
    if size < BATCH_HEADER_BYTES:
        return Err.CORRUPT_MESSAGE
    if batch_attributes(item.records) & ATTR_CODEC == CODEC_ZSTD and version < 7:
        return Err.UNSUPPORTED_COMPRESSION_TYPE
    if first_batch(item.records + size, item.length - size, &error) > 0:
        return Err.INVALID_RECORD
    if error != Err.NONE:
        return error
    item.length = <int32_t> size
    item.transactional = (batch_attributes(item.records) & ATTR_TRANSACTIONAL) != 0
    return Err.NONE


cdef inline bint is_admin(const Request *r) noexcept nogil:
    return r.client_id_length == 14 and memcmp(r.client_id, b"__admin_client", 14) == 0


cdef void resolve(Worker *w, const Request *r, ProduceWork *work, ProduceItem *item) noexcept nogil:
    cdef bint by_id = work.version >= 13
    if item.first_of_topic or item == work.items:
        item.topic = find_topic_by_id(w.table, item.name) if by_id else \
            find_topic_by_name(w.table, item.name, item.name_length)
    else:
        item.topic = (item - 1).topic
    if item.topic == NULL:
        item.error = Err.UNKNOWN_TOPIC_ID if by_id else Err.UNKNOWN_TOPIC_OR_PARTITION
        return
    item.partition = topic_partition(item.topic, item.index)
    if item.partition == NULL:
        item.error = Err.UNKNOWN_TOPIC_OR_PARTITION
        return
    item.error = judge_outside(item, work.version)
    if item.error == Err.NONE and item.topic.internal and not is_admin(r):
        item.error = Err.INVALID_TOPIC_EXCEPTION


cdef bint needs_fallback(const Worker *w, const ProduceItem *item) noexcept nogil:
    cdef int codec
    if item.error != Err.NONE:
        return False
    codec = batch_attributes(item.records) & ATTR_CODEC
    if codec == 0 or codec > CODEC_ZSTD:
        return False               # none, or one that validation refuses anyway
    return (w.force_fallback_codecs >> codec) & 1 or not codec_available(codec)


cdef bint judge(Worker *w, const Request *r, ProduceWork *work) noexcept nogil:
    # Everything that can be said before an append; True: the control side must do this one, of which nothing is done yet.
    cdef ProduceItem *item
    cdef int16_t error = judge_request(work)
    cdef int32_t i
    for i in range(work.count):
        resolve(w, r, work, &work.items[i])
        if work.version < 7 and has_unknown_codec(&work.items[i]):
            error = Err.UNKNOWN_SERVER_ERROR       # Kafka asks for the codec's name, which zstd needs, only there
    if work.has_transactional_batch and not work.has_transactional_id:
        fail_all(work, Err.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NULL)
        return False
    if error == Err.CORRUPT_MESSAGE:
        fail_all(work, error, b"The batch has a size or a magic that none can have")
        return False
    if error != Err.NONE:
        fail_all(work, error, NULL)
        return False
    for i in range(work.count):
        item = &work.items[i]
        if item.error != Err.NONE:
            continue
        elif work.acks < -1 or work.acks > 1:
            item.error = Err.INVALID_REQUIRED_ACKS
        elif item.transactional:
            refuse_transaction(work, item)
        elif needs_fallback(w, item):
            return True
    return False


cdef void refuse_transaction(const ProduceWork *work, ProduceItem *item) noexcept nogil:
    # No coordinator has verified this transaction, because there is none: what Kafka answers for an unverified one.
    if work.version >= 11:         # KIP-890: the client knows how to abort and go on
        item.error = Err.TRANSACTION_ABORTABLE
    else:
        item.error = Err.INVALID_TXN_STATE
        item.message = b"Partition was not added to the transaction"


# ---- appending ----

cdef void keep_record_errors(ProduceItem *item, const AppendResult *result) noexcept nogil:
    cdef int32_t count = result.verdict.record_error_count
    item.record_errors = <int32_t *> malloc(count * sizeof(int32_t))
    if item.record_errors == NULL:
        return                     # the error itself is told; its details are a courtesy
    memcpy(item.record_errors, result.verdict.record_errors, count * sizeof(int32_t))
    item.record_error_count = count


cdef void append_item(Worker *w, ProduceWork *work, ProduceItem *item, int64_t now_ms) noexcept nogil:
    cdef AppendResult result
    partition_produce(item.partition, item.records, item.length, work.acks, NULL, -1, &w.scratch, now_ms, &result)
    if result.needs_fallback:
        # judge() asks the same table of engines, so this is a batch the engine gave up on, not a missing engine.
        item.error = Err.UNKNOWN_SERVER_ERROR
        return
    item.error = result.error
    item.base_offset = result.base_offset
    item.log_append_time_ms = result.log_append_time_ms
    item.log_start_offset = result.log_start_offset
    if result.error != Err.NONE:
        item.base_offset = -1
        if result.verdict.record_error_count > 0:      # KIP-467: words come with the records they are about
            item.message = result.verdict.message
            item.record_message = result.verdict.record_message
            keep_record_errors(item, &result)
    elif work.acks == -1:
        item.required_offset = result.last_offset + 1
        item.error = partition_check_acks(item.partition, item.required_offset)
        item.waits = item.error == Err.REQUEST_TIMED_OUT


# ---- answering ----

cdef void put_record_errors(Chain *reply, const ProduceWork *work, const ProduceItem *item) noexcept nogil:
    cdef bint flexible = work.flexible
    cdef int32_t message_length = <int32_t> strlen(item.message) if item.message != NULL else -1
    cdef int32_t about_length = <int32_t> strlen(item.record_message) if item.record_message != NULL else -1
    cdef int32_t i
    put_count(reply, flexible, item.record_error_count)
    for i in range(item.record_error_count):
        put_int32(reply, item.record_errors[i])
        put_string(reply, flexible, <const uint8_t *> item.record_message, about_length)
        put_no_tags(reply, flexible)
    put_string(reply, flexible, <const uint8_t *> item.message, message_length)


cdef void put_item(Chain *reply, const ProduceWork *work, const ProduceItem *item) noexcept nogil:
    cdef int32_t leader_id, leader_epoch
    put_int32(reply, item.index)
    put_int16(reply, item.error)
    put_int64(reply, item.base_offset)
    put_int64(reply, item.log_append_time_ms)
    if work.version >= 5:
        put_int64(reply, item.log_start_offset)
    if work.version >= 8:
        put_record_errors(reply, work, item)
    if not work.flexible:
        return
    if work.version >= 10 and item.error == Err.NOT_LEADER_OR_FOLLOWER:
        partition_leader(item.partition, &leader_id, &leader_epoch)
        put_uvarint(reply, 1)
        put_leader_tag(reply, 0, leader_id, leader_epoch)
    else:
        put_uvarint(reply, 0)


cdef void write_reply(Chain *reply, ProduceWork *work) noexcept nogil:
    cdef ProduceItem *item
    cdef int32_t i
    begin_reply(reply, work.correlation_id, work.flexible)
    put_count(reply, work.flexible, work.topic_count)
    for i in range(work.count):
        item = &work.items[i]
        if item.first_of_topic:
            if i > 0:
                put_no_tags(reply, work.flexible)
            if work.version >= 13:
                put_uuid(reply, item.name)
            else:
                put_string(reply, work.flexible, item.name, item.name_length)
            put_count(reply, work.flexible, item.topic_partitions)
        put_item(reply, work, item)
    if work.count > 0:
        put_no_tags(reply, work.flexible)
    put_int32(reply, 0)            # throttle_time_ms
    if work.version >= 10:
        put_leaders(reply, work)
    else:
        put_no_tags(reply, work.flexible)
    chain_seal(reply)


cdef void put_leaders(Chain *reply, ProduceWork *work) noexcept nogil:
    # NodeEndpoints: each leader that an error above points at, once.
    cdef int32_t ids[16]
    cdef int32_t count = 0
    cdef int32_t i, j, leader_id, leader_epoch
    for i in range(work.count):
        if work.items[i].error != Err.NOT_LEADER_OR_FOLLOWER or count == 16:
            continue
        partition_leader(work.items[i].partition, &leader_id, &leader_epoch)
        for j in range(count):
            if ids[j] == leader_id:
                break
        else:
            ids[count] = leader_id
            count += 1
    put_endpoints(reply, work.table, ids, count)


# ---- waiting for the replicas ----

cdef void release_work(Worker *w, ProduceWork *work) noexcept nogil:
    cdef int32_t i
    for i in range(work.count):
        free(work.items[i].record_errors)
    free(work.names)
    if w != NULL:
        spare_give(w, SPARE_PRODUCE, work.block)
    else:
        free(work.block.data)


cdef void drop_parked(Parked *p) noexcept nogil:
    cdef ProduceWork *work = <ProduceWork *> p.work
    table_release(work.table)
    release_work(NULL, work)
    free(work)


cdef bint still_waits(ProduceWork *work) noexcept nogil:
    cdef ProduceItem *item
    cdef bint waits = False
    cdef int32_t i
    for i in range(work.count):
        item = &work.items[i]
        if item.waits:
            item.error = partition_check_acks(item.partition, item.required_offset)
            item.waits = item.error == Err.REQUEST_TIMED_OUT
            waits = waits or item.waits
    return waits


cdef bint complete_parked(Worker *w, Parked *p, bint expired, Chain *reply) noexcept nogil:
    cdef ProduceWork *work = <ProduceWork *> p.work
    if still_waits(work) and not expired:
        return False
    write_reply(reply, work)       # an item that still waits carries REQUEST_TIMED_OUT; its records stay appended
    return True


cdef bint keep_names(ProduceWork *work) noexcept nogil:
    # The frame goes when the request parks: names of known topics live in the table, the others are copied.
    cdef ProduceItem *item
    cdef int64_t bytes = 0
    cdef int32_t i
    for i in range(work.count):
        if work.items[i].topic == NULL and work.items[i].first_of_topic:
            bytes += work.items[i].name_length
    work.names = <uint8_t *> malloc(bytes + 1)
    if work.names == NULL:
        return False
    bytes = 0
    for i in range(work.count):
        item = &work.items[i]
        if item.topic != NULL:
            item.name = <const uint8_t *> item.topic.id if work.version >= 13 else item.topic.name
        elif item.first_of_topic:
            memcpy(work.names + bytes, item.name, item.name_length)
            item.name = work.names + bytes
            bytes += item.name_length
        item.records = NULL
    return True


cdef bint park(Worker *w, Request *r, ProduceWork *work) noexcept nogil:
    # False: no memory for it; the request is answered at once as if its time had passed.
    cdef Parked *p
    cdef ProduceWork *kept
    cdef ProduceItem *item
    cdef int64_t state, high_watermark
    cdef int32_t waiting = 0
    cdef int32_t i
    for i in range(work.count):
        waiting += work.items[i].waits
    kept = <ProduceWork *> malloc(sizeof(ProduceWork))
    p = parked_create(waiting)
    if kept == NULL or p == NULL or not keep_names(work):
        free(kept)
        if p != NULL:
            parked_free(p)
        return False
    for i in range(work.count):
        item = &work.items[i]
        if item.waits:
            # Watched from a moment before the last look, so that a watermark raised in between wakes it.
            high_watermark = partition_high_watermark(item.partition, &state)
            parked_watch(w, p, item.partition, state, high_watermark)
            if high_watermark >= item.required_offset or partition_check_acks(
                    item.partition, item.required_offset) != Err.REQUEST_TIMED_OUT:
                p.stale = True
    kept[0] = work[0]
    p.work = kept
    p.complete = complete_parked
    p.drop = drop_parked
    if not purgatory_park(w, p, &r.peer, mono_ms(w.clock) + work.timeout_ms):
        free(kept)
        parked_free(p)
        return False
    block_trim(&kept.block, kept.count * <int64_t> sizeof(ProduceItem))
    kept.items = <ProduceItem *> kept.block.data
    table_retain(work.table)
    return True


cdef Outcome answer(Worker *w, Request *r, ProduceWork *work, Chain *reply) noexcept nogil:
    cdef int32_t i
    cdef bint waits = False
    cdef bint failed = False
    for i in range(work.count):
        waits = waits or work.items[i].waits
        failed = failed or work.items[i].error != Err.NONE
    if work.acks == 0:
        if failed:                 # no reply could tell: closing makes the client look again
            r.reason = b"a Produce with acks=0 failed"
            return CLOSE
        return SILENT
    if waits and work.timeout_ms > 0 and park(w, r, work):
        work.block.data = NULL     # the purgatory's now
        return PARKED
    write_reply(reply, work)
    return READY


cdef Outcome produce(Worker *w, Request *r, Chain *reply) noexcept nogil:
    cdef ProduceWork work
    cdef Outcome outcome
    cdef int64_t now_ms
    cdef int32_t i
    memset(&work, 0, sizeof(ProduceWork))
    work.block = spare_take(w, SPARE_PRODUCE)
    work.table = w.table
    if not read_produce(r, &work, &r.reason):
        outcome = CLOSE
    elif judge(w, r, &work):
        outcome = POST
    else:
        now_ms = wall_ms(w.clock)
        for i in range(work.count):
            if work.items[i].error == Err.NONE:
                append_item(w, &work, &work.items[i], now_ms)
        scratch_trim(&w.scratch)
        outcome = answer(w, r, &work, reply)
    if outcome != PARKED:
        release_work(w, &work)
    return outcome


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
        release_work(NULL, &work)
