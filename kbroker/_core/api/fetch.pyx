# Fetch: read the request, let its session say which partitions are meant, plan slices, answer or wait for more bytes.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from kbroker._core.api.reply cimport begin_reply, put_endpoints, put_leader_tag, put_uuid
from kbroker._core.api.request cimport CLOSE, PARKED, READY, Outcome, Request, Worker
from kbroker._core.c.prelude cimport add_counter
from kbroker._core.clock cimport mono_ms
from kbroker._core.errors cimport Err
from kbroker._core.fetch_session cimport (
    Session, SessionPartition, SessionTopic, session_close, session_create, session_drop, session_epoch, session_first,
    session_forget, session_id, session_move_last, session_put, session_resume, session_serial, session_size, session_step,
    session_unlock,
)
from kbroker._core.limits cimport FETCH_PARTITIONS_MAX
from kbroker._core.log.segment cimport Segment, segment_release
from kbroker._core.partitions cimport (
    Partition, ReadAsk, find_topic_by_id, find_topic_by_name, partition_read, table_release, table_retain, topic_partition,
)
from kbroker._core.purgatory cimport (
    SPARE_FETCH, Parked, block_reserve, parked_create, parked_free, parked_want, parked_watch, purgatory_park, spare_give,
    spare_take,
)
from kbroker._core.wire.chain cimport (
    Chain, chain_put_slice, chain_seal, put_count, put_int8, put_int16, put_int32, put_int64, put_no_tags, put_string,
    put_uvarint,
)
from kbroker._core.wire.cursor cimport (
    Cursor, cursor_over, fail, remaining, skip_tags, take_bytes, take_count, take_int8, take_int16, take_int32, take_int64,
    take_string, take_uvarint,
)


# ---- reading ----

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


cdef bint read_topic(Cursor *c, FetchWork *work) noexcept nogil:
    cdef SessionTopic topic
    cdef FetchItem *item
    cdef int32_t partitions, i
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


# ---- sessions ----

cdef void remember_ask(SessionPartition *p, const FetchItem *item) noexcept nogil:
    p.offset = item.offset
    p.max_bytes = item.max_bytes
    p.current_leader_epoch = item.current_leader_epoch
    p.last_fetched_epoch = item.last_fetched_epoch


cdef void topic_key(const FetchWork *work, const FetchItem *item, SessionTopic *topic) noexcept nogil:
    topic.id = <const uint8_t *> item.id if work.version >= 13 else NULL
    topic.name = item.name if item.names_at < 0 else work.names.data + item.names_at
    topic.name_length = item.name_length


cdef bint copy_from_session(FetchWork *work, const Session *session) noexcept nogil:
    # The session says what is fetched, in its own order; the request only said what changed. With the cache locked.
    cdef SessionPartition *p = session_first(session)
    cdef FetchItem *item
    work.count = 0
    while p != NULL:
        item = add_item(work)
        if item == NULL or not block_reserve(&work.names, work.names_used + p.name_length):
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
    if work.count == 0:
        return
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
    memset(&item.found, 0, sizeof(item.found))
    item.found.plan.error = error
    item.found.plan.high_watermark = -1
    item.found.plan.last_stable_offset = -1
    item.found.plan.log_start_offset = -1
    item.found.diverging_epoch = -1


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
            plan_nothing(item, item.error)
            urgent = True
            continue
        ask.offset = item.offset
        ask.current_leader_epoch = item.current_leader_epoch
        ask.last_fetched_epoch = item.last_fetched_epoch
        ask.max_bytes = max(0, min(<int64_t> item.max_bytes, left))
        ask.at_least_one = at_least_one
        ask.read_committed = work.isolation_level == 1
        ask.leader_only = work.version < 11
        partition_read(item.partition, &ask, &item.found)
        if item.found.plan.error != Err.NONE or item.found.diverging_epoch >= 0:
            urgent = True
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


# ---- answering ----

cdef void drop_segment(void *owner) noexcept nogil:
    segment_release(<Segment *> owner)


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


cdef void put_item(Chain *reply, const FetchWork *work, FetchItem *item) noexcept nogil:
    cdef int64_t length = item.found.plan.length if item.found.plan.segment != NULL else 0
    put_int32(reply, item.index)
    put_int16(reply, item.found.plan.error)
    put_int64(reply, item.found.plan.high_watermark)
    put_int64(reply, item.found.plan.last_stable_offset)
    if work.version >= 5:
        put_int64(reply, item.found.plan.log_start_offset)
    # Aborted transactions: none are known, so an empty list for read_committed; a failed look-up has an empty one, a failed
    # or diverging read a null one.
    if item.error != Err.NONE or (work.isolation_level == 1 and item.found.plan.error == Err.NONE and
                                  item.found.diverging_epoch < 0):
        put_count(reply, work.flexible, 0)
    else:
        put_count(reply, work.flexible, -1)
    if work.version >= 11:
        put_int32(reply, -1)       # preferred_read_replica
    if work.flexible:
        put_uvarint(reply, <uint32_t> (length + 1))
    else:
        put_int32(reply, <int32_t> length)
    if length > 0:
        chain_put_slice(reply, item.found.plan.segment.fd, item.found.plan.position, length,
                        item.found.plan.segment, drop_segment)
        item.found.plan.segment = NULL         # the chain's now
        add_counter(&item.partition.bytes_out, <uint64_t> length)
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
    if work.version >= 16:
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
        spare_give(w, SPARE_FETCH, work.block)
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


cdef bint park(Worker *w, Request *r, FetchWork *work, int64_t bytes) noexcept nogil:
    # False: no memory for it; the request is answered at once with what there is.
    cdef FetchWork *kept = <FetchWork *> malloc(sizeof(FetchWork))
    cdef Parked *p = parked_create(work.count)
    cdef FetchItem *item
    cdef int32_t i
    if kept == NULL or p == NULL:
        free(kept)
        if p != NULL:
            parked_free(p)
        return False
    for i in range(work.count):
        # Parking happens without errors, so every topic is known and every name lives in the table.
        item = &work.items[i]
        parked_watch(w, p, item.partition, item.found.seen_state, item.found.seen_high_watermark)
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
    release_plan(kept)
    table_retain(kept.table)
    return True


cdef Outcome fetch(Worker *w, Request *r, Chain *reply) noexcept nogil:
    cdef FetchWork work
    cdef int64_t bytes = 0
    cdef bint now
    memset(&work, 0, sizeof(FetchWork))
    work.block = spare_take(w, SPARE_FETCH)
    work.table = w.table
    if not read_fetch(r, &work, &r.reason):
        release_work(w, &work)
        return CLOSE
    choose_session(w, r, &work)
    resolve(&work)
    work.min_bytes = min(work.min_bytes, min(work.max_bytes, w.fetch_max_bytes))
    now = plan(w, &work, &bytes)
    if not now and bytes < work.min_bytes and work.max_wait_ms > 0 and work.count > 0 and park(w, r, &work, bytes):
        return PARKED
    write_reply(w, &work, reply)
    release_work(w, &work)
    return READY


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
        release_work(NULL, &work)


cdef tuple describe_item(FetchWork *work, FetchItem *item):
    topic = (<const char *> item.id)[:16] if work.version >= 13 else (<const char *> item.name)[:item.name_length]
    return topic, item.index, item.current_leader_epoch, item.offset, item.last_fetched_epoch, item.max_bytes
