# Produce: judge every batch's outside and hold the request; append what a run of requests holds, answer or wait for the replicas.
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset, strlen

from kbroker._core.api.produce_request cimport ProduceItem, ProduceWork, read_produce
from kbroker._core.api.reply cimport begin_reply, put_endpoints, put_leader_tag, put_uuid
from kbroker._core.api.request cimport CLOSE, HELD, PARKED, POST, READY, SILENT, Outcome, Request, Worker
from kbroker._core.clock cimport mono_ms, wall_ms
from kbroker._core.errors cimport Err
from kbroker._core.limits cimport APPEND_ITEMS_AT_ONCE, APPENDS_AT_ONCE, SCRATCH_KEEP_BYTES
from kbroker._core.log.partition_log cimport Append, AppendResult
from kbroker._core.partitions cimport (
    FOR_FOLLOWERS, find_topic_by_id, find_topic_by_name, partition_check_acks, partition_high_watermark,
    partition_knows_transaction, partition_leader, partition_may_wait, partition_produce, table_release, table_retain,
    topic_partition,
)
from kbroker._core.purgatory cimport (
    Block, Parked, block_trim, parked_create, parked_free, parked_watch, purgatory_park,
)
from kbroker._core.record.batch cimport (
    ATTR_CODEC, ATTR_TRANSACTIONAL, BATCH_HEADER_BYTES, batch_attributes, batch_has_producer_id, batch_magic,
    batch_producer_epoch, batch_producer_id, next_batch,
)
from kbroker._core.record.compression cimport CODEC_ZSTD, codec_available, scratch_trim
from kbroker._core.wire.chain cimport (
    Chain, chain_seal, put_count, put_int16, put_int32, put_int64, put_no_tags, put_string, put_uvarint,
)


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
        elif needs_fallback(w, item):
            return True
    return work.has_transactional_batch and asks_coordinator(work)


cdef bint asks_coordinator(ProduceWork *work) noexcept nogil:
    # KIP-890: before a transaction's first batch in a partition its coordinator must know of the partition; from version 12
    # on it is told by this very request. Asking it is the control side's. A transaction that has begun is appended here.
    cdef ProduceItem *first = NULL
    cdef ProduceItem *item
    cdef bint asks = False
    cdef int32_t i
    for i in range(work.count):
        item = &work.items[i]
        if item.error != Err.NONE or not item.transactional or not batch_has_producer_id(item.records):
            continue
        if first == NULL:
            first = item
        elif batch_producer_id(first.records) != batch_producer_id(item.records) or \
                batch_producer_epoch(first.records) != batch_producer_epoch(item.records):
            fail_all(work, Err.INVALID_PRODUCER_ID_MAPPING, b"Transactional records contained more than one producer ID")
            return False
        asks = asks or not partition_knows_transaction(item.partition, batch_producer_id(item.records),
                                                       batch_producer_epoch(item.records), work.version >= 12)
    return asks


# ---- appending ----

cdef struct Gathered:              # whose an Append is
    ProduceWork *work
    ProduceItem *item


cdef void keep_record_errors(ProduceItem *item, const AppendResult *result) noexcept nogil:
    cdef int32_t count = result.verdict.record_error_count
    item.record_errors = <int32_t *> malloc(count * sizeof(int32_t))
    if item.record_errors == NULL:
        return                     # the error itself is told; its details are a courtesy
    memcpy(item.record_errors, result.verdict.record_errors, count * sizeof(int32_t))
    item.record_error_count = count


cdef void look_for_ack(const ProduceWork *work, ProduceItem *item) noexcept nogil:
    item.error = partition_check_acks(item.partition, work.acks, item.required_offset)
    item.waits = item.error == Err.REQUEST_TIMED_OUT
    if item.error == Err.KAFKA_STORAGE_ERROR:      # the disk took it and could not keep it: there is no such offset
        item.base_offset = -1
        item.log_append_time_ms = -1
        item.log_start_offset = -1


cdef void take_result(const ProduceWork *work, ProduceItem *item, const AppendResult *result) noexcept nogil:
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
            keep_record_errors(item, result)
    elif work.acks != 0:
        item.required_offset = result.last_offset + 1
        look_for_ack(work, item)


cdef int32_t gather(Run *run, int32_t first, int32_t first_item, Append *appends, Gathered *from_) noexcept nogil:
    # This item and, in their order, the later ones of the run for its partition. One with other acks ends it: order comes
    # first. A request of very many partitions is not searched: each of its batches is written by itself.
    cdef ProduceItem *wanted = &run.held[first].work.items[first_item]
    cdef ProduceWork *work
    cdef ProduceItem *item
    cdef int32_t count = 0
    cdef int32_t i, j
    for i in range(first, run.count):
        work = &run.held[i].work
        if i > first and work.count > APPEND_ITEMS_AT_ONCE:
            return count
        for j in range(first_item if i == first else 0, work.count):
            item = &work.items[j]
            if item.partition != wanted.partition or item.error != Err.NONE or item.appended:
                continue
            if work.acks != run.held[first].work.acks or count == APPENDS_AT_ONCE:
                return count
            item.appended = True
            appends[count].records = item.records
            appends[count].length = item.length
            appends[count].inflated = NULL
            appends[count].inflated_length = -1
            appends[count].guard = 0
            appends[count].transaction_version = 0
            from_[count].work = work
            from_[count].item = item
            count += 1
            if work.count > APPEND_ITEMS_AT_ONCE:
                return count
    return count


cdef void append_run(Worker *w, Run *run) noexcept nogil:
    cdef Append appends[APPENDS_AT_ONCE]
    cdef Gathered from_[APPENDS_AT_ONCE]
    cdef ProduceWork *work
    cdef int64_t now_ms = wall_ms(w.clock)
    cdef int32_t count, i, j, k
    for i in range(run.count):
        work = &run.held[i].work
        for j in range(work.count):
            if work.items[j].error != Err.NONE or work.items[j].appended:
                continue
            count = gather(run, i, j, appends, from_)
            partition_produce(work.items[j].partition, appends, count, work.acks, &w.scratch, now_ms)
            for k in range(count):
                take_result(from_[k].work, from_[k].item, &appends[k].out)
    scratch_trim(&w.scratch)


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


# ---- waiting for the replicas, or the disk ----

cdef void release_work(ProduceWork *work) noexcept nogil:
    # All but the block, which the next one in its place uses again.
    cdef int32_t i
    for i in range(work.count):
        free(work.items[i].record_errors)
    free(work.names)
    work.names = NULL
    work.count = 0


cdef void drop_parked(Parked *p) noexcept nogil:
    cdef ProduceWork *work = <ProduceWork *> p.work
    table_release(work.table)
    release_work(work)
    free(work.block.data)
    free(work)


cdef bint still_waits(ProduceWork *work) noexcept nogil:
    cdef ProduceItem *item
    cdef bint waits = False
    cdef int32_t i
    for i in range(work.count):
        item = &work.items[i]
        if item.waits:
            look_for_ack(work, item)
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


cdef int64_t patience_ms(const ProduceWork *work) noexcept nogil:
    # The request's time-out is for replicas. A disk that syncs is waited for, as Kafka's own thread would.
    cdef int32_t i
    for i in range(work.count):
        if work.items[i].waits and partition_may_wait(work.items[i].partition, work.acks) & FOR_FOLLOWERS:
            return work.timeout_ms
    return INT32_MAX


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
            parked_watch(w, p, item.partition, state, high_watermark, False)
            if partition_check_acks(item.partition, work.acks, item.required_offset) != Err.REQUEST_TIMED_OUT:
                p.stale = True
    kept[0] = work[0]
    p.work = kept
    p.complete = complete_parked
    p.drop = drop_parked
    if not purgatory_park(w, p, &r.peer, mono_ms(w.clock) + patience_ms(work)):
        free(kept)
        parked_free(p)
        return False
    block_trim(&kept.block, kept.count * <int64_t> sizeof(ProduceItem))
    kept.items = <ProduceItem *> kept.block.data
    table_retain(work.table)
    return True


cdef Outcome answer(Worker *w, Request *r, ProduceWork *work, bint may_park, Chain *reply) noexcept nogil:
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
    if waits and may_park and patience_ms(work) > 0 and park(w, r, work):
        memset(&work.block, 0, sizeof(Block))      # the purgatory's now, with all that hangs on it
        work.names = NULL
        work.count = 0
        return PARKED
    write_reply(reply, work)
    return READY


# ---- the run ----

cdef bint run_create(Worker *w) noexcept nogil:
    w.run = calloc(1, sizeof(Run))
    return w.run != NULL


cdef void run_destroy(Worker *w) noexcept nogil:
    cdef Run *run = <Run *> w.run
    cdef int32_t i
    if run == NULL:
        return
    for i in range(APPENDS_AT_ONCE):
        free(run.held[i].work.block.data)
    free(run)
    w.run = NULL


cdef bint may_wait(const ProduceWork *work) noexcept nogil:
    cdef int32_t i
    if work.acks == 0:
        return False
    for i in range(work.count):
        if work.items[i].error == Err.NONE and partition_may_wait(work.items[i].partition, work.acks):
            return True
    return False


cdef Outcome produce(Worker *w, Request *r, Chain *reply) noexcept nogil:
    cdef Run *run = <Run *> w.run
    cdef Held *held = &run.held[run.count]
    cdef ProduceWork *work = &held.work
    cdef Block block = work.block
    cdef Outcome outcome = HELD
    memset(work, 0, sizeof(ProduceWork))
    work.block = block
    work.table = w.table
    if not read_produce(r, work, &r.reason):
        outcome = CLOSE
    elif judge(w, r, work):
        outcome = POST
    if outcome != HELD:
        release_work(work)
        return outcome
    held.r = r[0]
    held.reply = reply
    run.count += 1
    run.items += work.count
    run.full = run.count == APPENDS_AT_ONCE or run.items >= APPEND_ITEMS_AT_ONCE or may_wait(work)
    return HELD


cdef void run_settle(Worker *w) noexcept nogil:
    cdef Run *run = <Run *> w.run
    cdef Held *held
    cdef int32_t i
    append_run(w, run)
    for i in range(run.count):
        held = &run.held[i]
        # Should replicas have come since it was held, one that others follow is answered as if its time had passed.
        held.outcome = answer(w, &held.r, &held.work, i == run.count - 1, held.reply)
        release_work(&held.work)
        if held.work.block.capacity > SCRATCH_KEEP_BYTES:
            free(held.work.block.data)
            memset(&held.work.block, 0, sizeof(Block))
    run.items = 0
