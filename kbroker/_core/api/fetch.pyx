# Fetch: read the request, let its session say which partitions are meant, plan slices, answer or wait for more bytes.
from libc.errno cimport ENOMEM
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from kbroker._core.api.fetch_request cimport (
    INCREMENTAL, NEW_SESSION, SESSIONLESS, FetchItem, FetchWork, add_item, read_fetch, read_forgotten, topic_key,
)
from kbroker._core.api.reply cimport begin_reply, put_endpoints, put_leader_tag, put_uuid
from kbroker._core.api.request cimport CLOSE, PARKED, READY, Outcome, Request, Worker
from kbroker._core.c.prelude cimport add_counter
from kbroker._core.clock cimport mono_ms
from kbroker._core.errors cimport Err
from kbroker._core.fetch_session cimport (
    Session, SessionPartition, SessionTopic, session_close, session_create, session_drop, session_epoch, session_first,
    session_id, session_move_last, session_put, session_resume, session_serial, session_size, session_step,
    session_unlock,
)
from kbroker._core.log.segment cimport Segment, segment_blame, segment_release
from kbroker._core.log.txn_index cimport TxnIndex
from kbroker._core.partitions cimport (
    ReadAsk, find_topic_by_id, find_topic_by_name, partition_collect_aborted, partition_read, table_release, table_retain,
    topic_partition,
)
from kbroker._core.purgatory cimport (
    Parked, block_reserve, block_trim, parked_create, parked_free, parked_want, parked_watch, purgatory_park,
    spare_give, spare_take,
)
from kbroker._core.wire.chain cimport (
    Chain, chain_put_slice, chain_seal, put_count, put_int8, put_int16, put_int32, put_int64, put_no_tags, put_string,
    put_uvarint,
)
from kbroker._core.wire.cursor cimport Cursor, cursor_over


# ---- sessions ----

cdef void remember_ask(SessionPartition *p, const FetchItem *item) noexcept nogil:
    p.offset = item.offset
    p.max_bytes = item.max_bytes
    p.current_leader_epoch = item.current_leader_epoch
    p.last_fetched_epoch = item.last_fetched_epoch


cdef bint copy_from_session(FetchWork *work, const Session *session) noexcept nogil:
    # The session says what is fetched, in its own order; the request only said what changed. With the cache locked.
    cdef SessionPartition *p = session_first(session)
    cdef FetchItem *item
    work.count = 0
    while p != NULL:
        item = add_item(work)
        if item == NULL or not block_reserve(&work.names, work.names_used + p.name_length + 1):
            return False
        memcpy(item.id, p.id, 16)
        if p.name != NULL:
            item.names_at = work.names_used
            item.name_length = p.name_length
            memcpy(work.names.data + work.names_used, p.name, p.name_length)
            work.names_used += p.name_length
        item.index = p.index
        item.offset = p.offset
        item.max_bytes = p.max_bytes
        item.current_leader_epoch = p.current_leader_epoch
        item.last_fetched_epoch = p.last_fetched_epoch
        item.remembered = p
        p = p.next
    return True


cdef void step_session(Worker *w, Request *r, FetchWork *work) noexcept nogil:
    cdef Session *session = session_step(w.sessions, work.asked_session_id, work.asked_session_epoch,
                                         work.version >= 13, mono_ms(w.clock), &work.error)
    cdef SessionPartition *p
    cdef SessionTopic topic
    cdef Cursor c
    cdef int32_t i
    if session == NULL:
        work.count = 0
        return
    for i in range(work.count):
        topic_key(work, &work.items[i], &topic)
        p = session_put(w.sessions, session, &topic, work.items[i].index)
        if p == NULL:              # more than may be remembered: the client starts over with a full fetch
            session_drop(w.sessions, session)
            session_unlock(w.sessions)
            work.error = Err.FETCH_SESSION_ID_NOT_FOUND
            work.count = 0
            return
        remember_ask(p, &work.items[i])
    c = cursor_over(work.forgotten, r.body + r.body_length - work.forgotten)
    read_forgotten(&c, work, w.sessions, session)
    if session_size(session) == 0:
        session_drop(w.sessions, session)
        work.count = 0
    elif copy_from_session(work, session):
        work.use = INCREMENTAL
        work.session_id = session_id(session)
        work.session_epoch = session_epoch(session)
        work.session_serial = session_serial(session)
    else:
        work.error = Err.UNKNOWN_SERVER_ERROR
        work.count = 0
    session_unlock(w.sessions)


cdef void choose_session(Worker *w, Request *r, FetchWork *work) noexcept nogil:
    # KIP-227. Epoch -1 ends a session, 0 begins one, anything else is the next step of one.
    work.use = SESSIONLESS
    if work.version < 7:
        return
    if work.asked_session_epoch == -1 or work.asked_session_epoch == 0:
        if work.asked_session_id != 0:
            session_close(w.sessions, work.asked_session_id)
        if work.asked_session_epoch == 0:
            work.use = NEW_SESSION
    else:
        step_session(w, r, work)


cdef inline bint notable(const FetchItem *item, SessionPartition *p) noexcept nogil:
    # Whether an incremental answer must list this partition; remembers what it says.
    cdef bint must = item.found.plan.length > 0 or item.found.diverging_epoch >= 0
    if p.high_watermark != item.found.plan.high_watermark:
        p.high_watermark = item.found.plan.high_watermark
        must = True
    if p.log_start_offset != item.found.plan.log_start_offset:
        p.log_start_offset = item.found.plan.log_start_offset
        must = True
    if item.found.plan.error != Err.NONE:
        p.high_watermark = -1      # matches no log: the recovery will be told too
        must = True
    return must


cdef void answer_incremental(Worker *w, FetchWork *work) noexcept nogil:
    cdef Session *session = session_resume(w.sessions, work.session_id, work.session_serial, work.session_epoch)
    cdef FetchItem *item
    cdef int32_t i
    if session == NULL:
        work.error = Err.INVALID_FETCH_SESSION_EPOCH
        release_plan(work)
        work.count = 0
        return
    for i in range(work.count):
        item = &work.items[i]
        item.listed = notable(item, <SessionPartition *> item.remembered)
        if item.found.plan.length > 0:
            # Whoever got bytes goes to the end, so that a small max_bytes serves all in turn.
            session_move_last(session, <SessionPartition *> item.remembered)
    session_unlock(w.sessions)


cdef void begin_session(Worker *w, FetchWork *work) noexcept nogil:
    cdef Session *session
    cdef SessionPartition *p
    cdef SessionTopic topic
    cdef int32_t i
    session = session_create(w.sessions, work.version >= 13, mono_ms(w.clock))
    if session == NULL:
        return
    for i in range(work.count):
        topic_key(work, &work.items[i], &topic)
        p = session_put(w.sessions, session, &topic, work.items[i].index)
        if p == NULL:
            session_drop(w.sessions, session)
            session_unlock(w.sessions)
            return
        remember_ask(p, &work.items[i])
        notable(&work.items[i], p)
    work.session_id = session_id(session)
    session_unlock(w.sessions)


# ---- planning ----

cdef void resolve(FetchWork *work) noexcept nogil:
    cdef FetchItem *item
    cdef SessionTopic topic
    cdef int32_t i
    for i in range(work.count):
        item = &work.items[i]
        topic_key(work, item, &topic)
        item.topic = find_topic_by_id(work.table, topic.id) if topic.id != NULL else \
            find_topic_by_name(work.table, topic.name, topic.name_length)
        item.error = Err.NONE
        if item.topic == NULL:
            item.error = Err.UNKNOWN_TOPIC_ID if topic.id != NULL else Err.UNKNOWN_TOPIC_OR_PARTITION
            continue
        item.partition = topic_partition(item.topic, item.index)
        if item.partition == NULL:
            item.error = Err.UNKNOWN_TOPIC_OR_PARTITION
        item.name = item.topic.name
        item.names_at = -1


cdef void plan_nothing(FetchItem *item, int16_t error) noexcept nogil:
    item.found.plan.error = error
    item.found.plan.segment = NULL
    item.found.plan.length = 0
    item.found.plan.more_behind = False
    item.found.plan.high_watermark = -1
    item.found.plan.last_stable_offset = -1
    item.found.plan.log_start_offset = -1
    item.found.diverging_epoch = -1


cdef int16_t refuse_replica(FetchItem *item, ReadAsk *ask) noexcept nogil:
    # This node replicates to nobody: what Kafka tells a broker that is not among the partition's replicas.
    ask.max_bytes = 0
    ask.at_least_one = False
    ask.last_fetched_epoch = -1
    ask.leader_only = True
    partition_read(item.partition, ask, &item.found)
    if item.found.plan.segment != NULL:
        segment_release(item.found.plan.segment)
    if item.found.plan.error != Err.NONE and item.found.plan.error != Err.OFFSET_OUT_OF_RANGE:
        return item.found.plan.error
    return Err.UNKNOWN_LEADER_EPOCH if ask.current_leader_epoch >= 0 else Err.NOT_LEADER_OR_FOLLOWER


cdef bint plan(Worker *w, FetchWork *work, int64_t *found_bytes) noexcept nogil:
    # Reads at most batch headers. True: something other than bytes makes it worth answering now.
    cdef int64_t left = min(work.max_bytes, w.fetch_max_bytes)
    cdef bint at_least_one = True
    cdef bint urgent = False
    cdef FetchItem *item
    cdef ReadAsk ask
    cdef int32_t i
    found_bytes[0] = 0
    for i in range(work.count):
        item = &work.items[i]
        if item.error != Err.NONE:
            plan_nothing(item, item.error)     # told with the answer, yet no reason to answer early
            continue
        ask.offset = item.offset
        ask.current_leader_epoch = item.current_leader_epoch
        ask.last_fetched_epoch = item.last_fetched_epoch
        ask.max_bytes = min(<int64_t> item.max_bytes, left)
        ask.at_least_one = at_least_one
        ask.read_committed = work.isolation_level == 1
        ask.leader_only = work.version < 11
        if ask.max_bytes < 0:
            plan_nothing(item, Err.UNKNOWN_SERVER_ERROR)
        elif work.replica_id >= 0:
            plan_nothing(item, refuse_replica(item, &ask))
        else:
            partition_read(item.partition, &ask, &item.found)
        if item.found.plan.error != Err.NONE or item.found.diverging_epoch >= 0 or item.found.plan.more_behind:
            urgent = True          # waiting would not make a slice longer whose segment is full
        if item.found.plan.length > 0:
            at_least_one = False
            found_bytes[0] += item.found.plan.length
            left = max(0, left - item.found.plan.length)
    return urgent


cdef void release_plan(FetchWork *work) noexcept nogil:
    cdef int32_t i
    for i in range(work.count):
        if work.items[i].found.plan.segment != NULL:
            segment_release(work.items[i].found.plan.segment)
            work.items[i].found.plan.segment = NULL
        forget_aborted(&work.items[i])


# ---- answering ----

cdef void drop_segment(void *owner) noexcept nogil:
    segment_release(<Segment *> owner)


cdef void blame_segment(void *owner, int rc) noexcept nogil:
    segment_blame(<Segment *> owner, rc)


cdef inline bint points_at_leader(const FetchWork *work, const FetchItem *item) noexcept nogil:
    return work.version >= 16 and (item.found.plan.error == Err.NOT_LEADER_OR_FOLLOWER or
                                   item.found.plan.error == Err.FENCED_LEADER_EPOCH)


cdef void put_item_tags(Chain *reply, const FetchWork *work, const FetchItem *item) noexcept nogil:
    cdef bint diverging = item.found.diverging_epoch >= 0
    cdef bint leader = points_at_leader(work, item)
    put_uvarint(reply, diverging + leader)
    if diverging:
        put_uvarint(reply, 0)
        put_uvarint(reply, 13)
        put_int32(reply, item.found.diverging_epoch)
        put_int64(reply, item.found.diverging_end_offset)
        put_int8(reply, 0)
    if leader:
        put_leader_tag(reply, 1, item.found.leader_id, item.found.leader_epoch)


cdef void collect_aborted(FetchItem *item) noexcept nogil:
    # Every transaction that was aborted below the last stable offset of the plan stands in an index by now.
    cdef TxnIndex found
    cdef int rc
    memset(&found, 0, sizeof(TxnIndex))
    rc = partition_collect_aborted(item.partition, item.offset, &item.found.plan, &found)
    item.aborted = found.entries
    item.aborted_count = found.count
    if rc != 0:                    # without the list a reader would take aborted records for good ones
        segment_release(item.found.plan.segment)
        plan_nothing(item, Err.KAFKA_STORAGE_ERROR if rc != -ENOMEM else Err.UNKNOWN_SERVER_ERROR)


cdef void put_aborted(Chain *reply, const FetchWork *work, FetchItem *item) noexcept nogil:
    # A look-up that failed has an empty list, a failed or diverging read a null one, as has whoever reads everything.
    cdef int32_t i
    if item.error == Err.NONE and (work.isolation_level != 1 or item.found.plan.error != Err.NONE or
                                   item.found.diverging_epoch >= 0):
        put_count(reply, work.flexible, -1)
        return
    put_count(reply, work.flexible, item.aborted_count)
    for i in range(item.aborted_count):
        put_int64(reply, item.aborted[i].producer_id)
        put_int64(reply, item.aborted[i].first_offset)
        put_no_tags(reply, work.flexible)


cdef void forget_aborted(FetchItem *item) noexcept nogil:
    free(item.aborted)
    item.aborted = NULL
    item.aborted_count = 0


cdef void put_item(Chain *reply, const FetchWork *work, FetchItem *item) noexcept nogil:
    cdef int64_t length = item.found.plan.length if item.found.plan.segment != NULL else 0
    put_int32(reply, item.index)
    put_int16(reply, item.found.plan.error)
    put_int64(reply, item.found.plan.high_watermark)
    put_int64(reply, item.found.plan.last_stable_offset)
    if work.version >= 5:
        put_int64(reply, item.found.plan.log_start_offset)
    put_aborted(reply, work, item)
    if work.version >= 11:
        put_int32(reply, -1)       # preferred_read_replica
    if work.flexible:
        put_uvarint(reply, <uint32_t> (length + 1))
    else:
        put_int32(reply, <int32_t> length)
    if length > 0:
        chain_put_slice(reply, item.found.plan.segment.fd, item.found.plan.position, length,
                        item.found.plan.segment, drop_segment, blame_segment)
        item.found.plan.segment = NULL         # the chain's now
        add_counter(&item.partition.bytes_out, <uint64_t> length)
    forget_aborted(item)
    if work.flexible:
        put_item_tags(reply, work, item)


cdef bint same_topic(const FetchWork *work, const FetchItem *a, const FetchItem *b) noexcept nogil:
    cdef SessionTopic x, y
    if a.topic != NULL or b.topic != NULL:
        return a.topic == b.topic
    if work.version >= 13:
        return memcmp(a.id, b.id, 16) == 0
    topic_key(work, a, &x)
    topic_key(work, b, &y)
    return x.name_length == y.name_length and memcmp(x.name, y.name, x.name_length) == 0


cdef int32_t run_end(const FetchWork *work, int32_t start, int32_t *listed) noexcept nogil:
    # Where the run of one topic's partitions that begins at `start` ends, and how many of them are in the answer.
    cdef int32_t i = start
    listed[0] = 0
    while i < work.count and (not work.items[i].listed or same_topic(work, &work.items[i], &work.items[start])):
        listed[0] += work.items[i].listed
        i += 1
    return i


cdef int32_t next_listed(const FetchWork *work, int32_t i) noexcept nogil:
    while i < work.count and not work.items[i].listed:
        i += 1
    return i


cdef void put_topics(Chain *reply, FetchWork *work) noexcept nogil:
    cdef SessionTopic topic
    cdef int32_t topics = 0
    cdef int32_t listed, i, end
    i = next_listed(work, 0)
    while i < work.count:
        topics += 1
        i = run_end(work, i, &listed)
    put_count(reply, work.flexible, topics)
    i = next_listed(work, 0)
    while i < work.count:
        end = run_end(work, i, &listed)
        topic_key(work, &work.items[i], &topic)
        if work.version >= 13:
            put_uuid(reply, topic.id)
        else:
            put_string(reply, work.flexible, topic.name, topic.name_length)
        put_count(reply, work.flexible, listed)
        while i < end:
            if work.items[i].listed:
                put_item(reply, work, &work.items[i])
            i += 1
        put_no_tags(reply, work.flexible)


cdef void put_leaders(Chain *reply, FetchWork *work) noexcept nogil:
    # NodeEndpoints: each leader that an error above points at, once.
    cdef int32_t ids[16]
    cdef int32_t count = 0
    cdef int32_t i, j
    for i in range(work.count):
        if not points_at_leader(work, &work.items[i]) or count == 16:
            continue
        for j in range(count):
            if ids[j] == work.items[i].found.leader_id:
                break
        else:
            ids[count] = work.items[i].found.leader_id
            count += 1
    put_endpoints(reply, work.table, ids, count)


cdef void write_reply(Worker *w, FetchWork *work, Chain *reply) noexcept nogil:
    cdef int32_t i
    if work.isolation_level == 1:
        for i in range(work.count):
            if work.items[i].found.plan.segment != NULL and work.items[i].found.plan.length > 0:
                collect_aborted(&work.items[i])
    if work.error == Err.NONE and work.use == INCREMENTAL:
        answer_incremental(w, work)
    elif work.error == Err.NONE and work.use == NEW_SESSION:
        begin_session(w, work)
    begin_reply(reply, work.correlation_id, work.flexible)
    put_int32(reply, 0)            # throttle_time_ms
    if work.version >= 7:
        put_int16(reply, work.error)
        put_int32(reply, work.session_id if work.error == Err.NONE else 0)
    put_topics(reply, work)
    if work.version >= 16 and work.replica_id < 0:
        put_leaders(reply, work)
    else:
        put_no_tags(reply, work.flexible)
    release_plan(work)             # what the answer did not list
    chain_seal(reply)


# ---- waiting for bytes ----

cdef void release_work(Worker *w, FetchWork *work) noexcept nogil:
    release_plan(work)
    free(work.names.data)
    if w != NULL:
        spare_give(w, work.block)
    else:
        free(work.block.data)


cdef void drop_parked(Parked *p) noexcept nogil:
    cdef FetchWork *work = <FetchWork *> p.work
    table_release(work.table)
    release_work(NULL, work)
    free(work)


cdef bint complete_parked(Worker *w, Parked *p, bint expired, Chain *reply) noexcept nogil:
    cdef FetchWork *work = <FetchWork *> p.work
    cdef int64_t bytes = 0
    if not plan(w, work, &bytes) and bytes < work.min_bytes and not expired:
        release_plan(work)
        parked_want(p, work.min_bytes - bytes)
        return False
    write_reply(w, work, reply)
    return True


cdef bint keep_names(FetchWork *work) noexcept nogil:
    # The frame goes when the request parks: names of known topics live in the table, the others are copied.
    cdef FetchItem *item
    cdef int32_t i
    for i in range(work.count):
        item = &work.items[i]
        if item.topic != NULL or item.names_at >= 0 or item.name == NULL:
            continue
        if i > 0 and work.items[i - 1].name == item.name and work.items[i - 1].names_at >= 0:
            item.names_at = work.items[i - 1].names_at         # one copy for all partitions of a topic
            continue
        if not block_reserve(&work.names, work.names_used + item.name_length + 1):     # never NULL, even for ""
            return False
        memcpy(work.names.data + work.names_used, item.name, item.name_length)
        item.names_at = work.names_used
        work.names_used += item.name_length
    return True


cdef bint park(Worker *w, Request *r, FetchWork *work, int64_t bytes) noexcept nogil:
    # False: no memory for it; the request is answered at once with what there is.
    cdef FetchWork *kept = <FetchWork *> malloc(sizeof(FetchWork))
    cdef Parked *p = parked_create(work.count)
    cdef FetchItem *item
    cdef int32_t i
    if kept == NULL or p == NULL or not keep_names(work):
        free(kept)
        if p != NULL:
            parked_free(p)
        return False
    for i in range(work.count):
        item = &work.items[i]
        if item.partition != NULL:
            parked_watch(w, p, item.partition, item.found.seen_state, item.found.seen_offset, work.isolation_level == 1)
    parked_want(p, work.min_bytes - bytes)
    kept[0] = work[0]
    kept.forgotten = NULL
    p.work = kept
    p.complete = complete_parked
    p.drop = drop_parked
    if not purgatory_park(w, p, &r.peer, mono_ms(w.clock) + work.max_wait_ms):
        free(kept)
        parked_free(p)
        return False
    block_trim(&kept.block, kept.count * <int64_t> sizeof(FetchItem))
    kept.items = <FetchItem *> kept.block.data
    release_plan(kept)
    table_retain(kept.table)
    return True


cdef bint any_known(const FetchWork *work) noexcept nogil:
    cdef int32_t i
    for i in range(work.count):
        if work.items[i].error == Err.NONE:
            return True
    return False


cdef void refuse_isolation(FetchWork *work) noexcept nogil:
    # Only read_uncommitted and read_committed exist; Kafka's answer to another level names every partition.
    cdef int32_t i
    work.error = Err.UNKNOWN_SERVER_ERROR
    for i in range(work.count):
        work.items[i].error = Err.UNKNOWN_SERVER_ERROR


cdef Outcome fetch(Worker *w, Request *r, Chain *reply) noexcept nogil:
    cdef FetchWork work
    cdef int64_t bytes = 0
    cdef bint now
    memset(&work, 0, sizeof(FetchWork))
    work.block = spare_take(w)
    work.table = w.table
    if not read_fetch(r, &work, &r.reason):
        release_work(w, &work)
        return CLOSE
    if work.isolation_level == 0 or work.isolation_level == 1:
        choose_session(w, r, &work)
        resolve(&work)
    else:
        refuse_isolation(&work)
    work.min_bytes = min(work.min_bytes, min(work.max_bytes, w.fetch_max_bytes))
    now = plan(w, &work, &bytes) or not any_known(&work)
    if not now and bytes < work.min_bytes and work.max_wait_ms > 0 and park(w, r, &work, bytes):
        return PARKED
    write_reply(w, &work, reply)
    release_work(w, &work)
    return READY
