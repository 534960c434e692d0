# The live partitions of this node and the published tables. partitions.pxd says what holds; here is how.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from collections import namedtuple

from kbroker._core.c.prelude cimport KB_ASSERT, add_counter, load_counter, release_count, retain_count
from kbroker._core.clock cimport BrokerClock, wall_ms
from kbroker._core.errors cimport Err
from kbroker._core.log.partition_log cimport (
    Append, AppendResult, Log, PartitionLog, append_begin, log_append, log_assign_epoch, log_awaits_sync,
    log_end_offset, log_end_offset_for_epoch, log_failed, log_flush_or_fail, log_high_watermark, log_last_stable_offset,
    log_raise_high_watermark, log_read, log_release, log_retain, log_settled_end, log_start_offset, log_syncs,
)
from kbroker._core.record.batch cimport FROM_CLIENT, FROM_COORDINATOR, Origin
from kbroker._core.record.compression cimport Scratch, scratch_free
from kbroker._core.wire.cursor cimport load_be64

Produced = namedtuple("Produced", "error base_offset log_append_time log_start_offset record_errors message record_message")


# ---- reference counts and look-ups ----

cdef void partition_retain(Partition *p) noexcept nogil:
    retain_count(&p.references)


cdef void partition_release(Partition *p) noexcept nogil:
    if not release_count(&p.references):
        return
    KB_ASSERT(p.waiters == NULL)
    if p.log != NULL:
        log_release(p.log)
    if p.sync_door != NULL and release_count(&p.sync_door.references):
        p.sync_door.destroy(p.sync_door)
    free(p.followers)
    pthread_mutex_destroy(&p.lock)
    free(p)


cdef Table *view_acquire(View *v) noexcept nogil:
    cdef Table *t
    pthread_mutex_lock(&v.lock)
    t = v.current
    retain_count(&t.references)
    pthread_mutex_unlock(&v.lock)
    return t


cdef void table_retain(Table *t) noexcept nogil:
    retain_count(&t.references)


cdef void topic_release(Topic *t) noexcept nogil:
    cdef int32_t i
    if not release_count(&t.references):
        return
    for i in range(t.partition_count):
        if t.partitions[i] != NULL:
            partition_release(t.partitions[i])
    free(t.partitions)
    free(t.name)
    free(t)


cdef void table_release(Table *t) noexcept nogil:
    cdef uint32_t slot
    cdef int32_t i
    if not release_count(&t.references):
        return
    for slot in range(t.mask + 1):
        if t.by_name[slot] != NULL:
            topic_release(t.by_name[slot])
    for i in range(t.endpoint_count):
        free(t.endpoints[i].host)
        free(t.endpoints[i].rack)
    free(t.endpoints)
    free(t.by_name)
    free(t.by_id)
    free(t)


cdef inline uint32_t hash_name(const uint8_t *name, int32_t length) noexcept nogil:
    cdef uint32_t h = 2166136261u
    cdef int32_t i
    for i in range(length):
        h = (h ^ name[i]) * 16777619u
    return h ^ (h >> 15)


cdef inline uint32_t hash_id(const uint8_t *id) noexcept nogil:
    # Topic ids are random (type 4): any of their bits will do; made-up ones in tests differ in the low bytes.
    cdef uint64_t h = (load_be64(id) ^ load_be64(id + 8)) * 0x9E3779B97F4A7C15u
    return <uint32_t> (h >> 32)


cdef inline bint same_id(const uint8_t *a, const uint8_t *b) noexcept nogil:
    return memcmp(a, b, 16) == 0


cdef Topic *find_topic_by_name(const Table *t, const uint8_t *name, int32_t length) noexcept nogil:
    cdef uint32_t slot = hash_name(name, length) & t.mask
    cdef Topic *topic
    while True:
        topic = t.by_name[slot]
        if topic == NULL:
            return NULL
        if topic.name_length == length and memcmp(topic.name, name, length) == 0:
            return topic
        slot = (slot + 1) & t.mask


cdef Topic *find_topic_by_id(const Table *t, const uint8_t *id) noexcept nogil:
    cdef uint32_t slot = hash_id(id) & t.mask
    cdef Topic *topic
    while True:
        topic = t.by_id[slot]
        if topic == NULL or same_id(topic.id, id):
            return topic
        slot = (slot + 1) & t.mask


cdef Partition *topic_partition(const Topic *t, int32_t index) noexcept nogil:
    if index < 0 or index >= t.partition_count:
        return NULL
    return t.partitions[index]


cdef const Endpoint *find_endpoint(const Table *t, int32_t node_id) noexcept nogil:
    cdef int32_t i
    for i in range(t.endpoint_count):
        if t.endpoints[i].node_id == node_id:
            return &t.endpoints[i]
    return NULL


# ---- the live partition; all of it under p.lock ----

cdef void wake_waiters(Partition *p, int64_t bytes) noexcept nogil:
    cdef Waiter *w = p.waiters
    while w != NULL:
        w.woken(w, bytes)
        w = w.next


cdef bint maybe_advance_high_watermark(Partition *p) noexcept nogil:
    # The least log end over the in-sync replicas; it stands still while they are fewer than the minimum (KIP-966), and
    # before what this replica has yet to sync.
    cdef int64_t reached
    cdef int32_t i
    if not p.is_leader or p.log == NULL or p.isr_count < p.min_insync_replicas or p.isr_count > p.follower_count + 1:
        return False
    reached = log_settled_end(p.log)
    for i in range(p.follower_count):
        if p.followers[i].log_end_offset < reached:
            reached = p.followers[i].log_end_offset
    return log_raise_high_watermark(p.log, reached)


cdef int16_t writable_error(const Partition *p, int16_t acks) noexcept nogil:
    if p.deleted:
        return Err.UNKNOWN_TOPIC_OR_PARTITION
    if p.storage_error:
        return Err.KAFKA_STORAGE_ERROR
    if not p.is_leader or p.log == NULL:
        return Err.NOT_LEADER_OR_FOLLOWER
    if acks == -1 and p.isr_count < p.min_insync_replicas:
        return Err.NOT_ENOUGH_REPLICAS
    return Err.NONE


cdef bint append_as_leader(Partition *p, Append *appends, int32_t count, int16_t acks, Origin origin, Scratch *scratch,
                           int64_t now_ms) noexcept nogil:
    cdef AppendResult *out
    cdef uint64_t bytes = 0
    cdef bint awaits_sync = False
    cdef int16_t error
    cdef int32_t i
    pthread_mutex_lock(&p.lock)
    error = writable_error(p, acks)
    if error != Err.NONE:
        for i in range(count):
            append_begin(&appends[i].out, error)
    else:
        log_append(p.log, appends, count, origin, p.leader_epoch, scratch, now_ms)
        for i in range(count):
            out = &appends[i].out
            if out.error == Err.NONE and not out.duplicate and not out.needs_fallback:
                bytes += <uint64_t> out.appended_bytes
                add_counter(&p.messages_in, <uint64_t> (out.last_offset - out.base_offset + 1))
        if bytes > 0:
            add_counter(&p.bytes_in, bytes)
            if maybe_advance_high_watermark(p):
                wake_waiters(p, bytes if p.follower_count == 0 else WOKEN_BY_STATE)
        awaits_sync = log_awaits_sync(p.log)
    pthread_mutex_unlock(&p.lock)
    return awaits_sync


cdef void partition_sync(Partition *p) noexcept nogil:
    cdef Log *log
    pthread_mutex_lock(&p.lock)
    log = p.log
    if log != NULL:
        log_retain(log)
    pthread_mutex_unlock(&p.lock)
    if log == NULL:
        return
    log_flush_or_fail(log)
    pthread_mutex_lock(&p.lock)
    if p.log == log:
        maybe_advance_high_watermark(p)
        wake_waiters(p, WOKEN_BY_STATE)
    pthread_mutex_unlock(&p.lock)
    log_release(log)


cdef void partition_produce(Partition *p, Append *appends, int32_t count, int16_t acks, Scratch *scratch,
                            int64_t now_ms) noexcept nogil:
    if append_as_leader(p, appends, count, acks, FROM_CLIENT, scratch, now_ms):
        if p.sync_door == NULL or not p.sync_door.want(p.sync_door, p):
            partition_sync(p)


cdef int partition_may_wait(Partition *p, int16_t acks) noexcept nogil:
    cdef int waits = 0
    pthread_mutex_lock(&p.lock)
    if acks != 0 and p.log != NULL and log_syncs(p.log):
        waits |= FOR_DISK
    if acks == -1 and p.follower_count > 0:
        waits |= FOR_FOLLOWERS
    pthread_mutex_unlock(&p.lock)
    return waits


cdef int16_t partition_check_acks(Partition *p, int16_t acks, int64_t required_offset) noexcept nogil:
    cdef int16_t error = Err.REQUEST_TIMED_OUT
    pthread_mutex_lock(&p.lock)
    if p.deleted:
        error = Err.UNKNOWN_TOPIC_OR_PARTITION
    elif p.storage_error or (p.log != NULL and log_failed(p.log)):
        error = Err.KAFKA_STORAGE_ERROR
    elif acks == 1 and p.log != NULL:
        error = Err.NONE if log_settled_end(p.log) >= required_offset else error
    elif not p.is_leader or p.log == NULL:
        error = Err.NOT_LEADER_OR_FOLLOWER
    elif log_high_watermark(p.log) >= required_offset:
        # Replicated, but the in-sync replicas may have fallen below the minimum since.
        error = Err.NOT_ENOUGH_REPLICAS_AFTER_APPEND if p.isr_count < p.min_insync_replicas else Err.NONE
    pthread_mutex_unlock(&p.lock)
    return error


cdef int16_t readable_error(const Partition *p, const ReadAsk *ask) noexcept nogil:
    if p.deleted:
        return Err.UNKNOWN_TOPIC_OR_PARTITION
    if p.storage_error:
        return Err.KAFKA_STORAGE_ERROR
    if p.log == NULL:
        return Err.NOT_LEADER_OR_FOLLOWER
    if ask.current_leader_epoch >= 0:
        if ask.current_leader_epoch > p.leader_epoch:
            return Err.UNKNOWN_LEADER_EPOCH
        if ask.current_leader_epoch < p.leader_epoch:
            return Err.FENCED_LEADER_EPOCH
    if ask.leader_only and not p.is_leader:
        return Err.NOT_LEADER_OR_FOLLOWER
    return Err.NONE


cdef void find_divergence(Log *log, const ReadAsk *ask, ReadFound *out) noexcept nogil:
    # KIP-595: the reader's last epoch tells whether its log is a prefix of ours.
    cdef int32_t epoch
    cdef int64_t end_offset
    log_end_offset_for_epoch(log, ask.last_fetched_epoch, &epoch, &end_offset)
    if epoch < 0 or end_offset < 0:
        out.plan.error = Err.OFFSET_OUT_OF_RANGE
    elif epoch < ask.last_fetched_epoch or end_offset < ask.offset:
        out.diverging_epoch = epoch
        out.diverging_end_offset = end_offset
        out.plan.high_watermark = log_high_watermark(log)
        out.plan.last_stable_offset = log_last_stable_offset(log)
        out.plan.log_start_offset = log_start_offset(log)
        out.plan.log_end_offset = log_end_offset(log)


cdef void partition_read(Partition *p, const ReadAsk *ask, ReadFound *out) noexcept nogil:
    cdef int64_t bound
    pthread_mutex_lock(&p.lock)
    out.plan.error = readable_error(p, ask)
    out.plan.segment = NULL
    out.plan.length = 0
    out.plan.more_behind = False
    out.plan.high_watermark = -1
    out.plan.last_stable_offset = -1
    out.plan.log_start_offset = -1
    out.plan.log_end_offset = -1
    out.diverging_epoch = -1
    out.diverging_end_offset = -1
    out.leader_id = p.leader_id
    out.leader_epoch = p.leader_epoch
    out.seen_state = p.state_version
    out.seen_high_watermark = -1
    if out.plan.error == Err.NONE:
        out.seen_high_watermark = log_high_watermark(p.log)
        if ask.last_fetched_epoch >= 0:
            find_divergence(p.log, ask, out)
        if out.plan.error == Err.NONE and out.diverging_epoch < 0:
            bound = log_last_stable_offset(p.log) if ask.read_committed else out.seen_high_watermark
            log_read(p.log, ask.offset, bound, ask.max_bytes, ask.at_least_one, &out.plan)
    pthread_mutex_unlock(&p.lock)


cdef inline int64_t current_high_watermark(const Partition *p) noexcept nogil:
    return log_high_watermark(p.log) if p.log != NULL else -1


cdef bint partition_add_waiter(Partition *p, Waiter *w, int64_t seen_state, int64_t seen_high_watermark) noexcept nogil:
    cdef bint unchanged
    pthread_mutex_lock(&p.lock)
    w.previous = NULL
    w.next = p.waiters
    if p.waiters != NULL:
        p.waiters.previous = w
    p.waiters = w
    unchanged = p.state_version == seen_state and current_high_watermark(p) == seen_high_watermark
    pthread_mutex_unlock(&p.lock)
    return unchanged


cdef void partition_remove_waiter(Partition *p, Waiter *w) noexcept nogil:
    pthread_mutex_lock(&p.lock)
    if w.previous != NULL:
        w.previous.next = w.next
    else:
        KB_ASSERT(p.waiters == w)
        p.waiters = w.next
    if w.next != NULL:
        w.next.previous = w.previous
    w.next = NULL
    w.previous = NULL
    pthread_mutex_unlock(&p.lock)


cdef void partition_leader(Partition *p, int32_t *leader_id, int32_t *leader_epoch) noexcept nogil:
    pthread_mutex_lock(&p.lock)
    leader_id[0] = p.leader_id
    leader_epoch[0] = p.leader_epoch
    pthread_mutex_unlock(&p.lock)


cdef int64_t partition_high_watermark(Partition *p, int64_t *state_version) noexcept nogil:
    cdef int64_t offset
    pthread_mutex_lock(&p.lock)
    state_version[0] = p.state_version
    offset = current_high_watermark(p)
    pthread_mutex_unlock(&p.lock)
    return offset


# ---- what the control side decides ----

cdef void note_change(Partition *p) noexcept nogil:
    # With the lock held: parked requests look again, whatever they waited for.
    p.state_version += 1
    wake_waiters(p, WOKEN_BY_STATE)


cdef void become_leader(Partition *p, int32_t leader_id, int32_t leader_epoch, int32_t isr_count, int32_t min_isr,
                        Follower *followers, int32_t follower_count) noexcept nogil:
    cdef bint new_epoch
    cdef int32_t i, j
    cdef Follower *before
    pthread_mutex_lock(&p.lock)
    new_epoch = not p.is_leader or leader_epoch != p.leader_epoch
    before = p.followers
    if not new_epoch:
        # A change of the in-sync replicas keeps what the remaining ones have already told.
        for i in range(follower_count):
            for j in range(p.follower_count):
                if before[j].replica_id == followers[i].replica_id:
                    followers[i].log_end_offset = before[j].log_end_offset
    p.followers = followers
    p.follower_count = follower_count
    p.leader_id = leader_id
    p.leader_epoch = leader_epoch
    p.isr_count = isr_count
    p.min_insync_replicas = min_isr
    p.is_leader = True
    if new_epoch and p.log != NULL:
        log_assign_epoch(p.log, leader_epoch)
    maybe_advance_high_watermark(p)
    note_change(p)
    pthread_mutex_unlock(&p.lock)
    free(before)


cdef void become_follower(Partition *p, int32_t leader_id, int32_t leader_epoch) noexcept nogil:
    pthread_mutex_lock(&p.lock)
    p.leader_id = leader_id
    p.leader_epoch = leader_epoch
    p.is_leader = False
    p.follower_count = 0
    note_change(p)
    pthread_mutex_unlock(&p.lock)


cdef void drop_log(Partition *p, bint storage_error, bint deleted) noexcept nogil:
    cdef Log *log
    pthread_mutex_lock(&p.lock)
    log = p.log
    p.log = NULL
    p.is_leader = False
    p.storage_error = storage_error
    p.deleted = deleted
    note_change(p)
    pthread_mutex_unlock(&p.lock)
    if log != NULL:
        log_release(log)


cdef void note_follower(Partition *p, int32_t replica_id, int64_t offset) noexcept nogil:
    cdef int32_t i
    pthread_mutex_lock(&p.lock)
    for i in range(p.follower_count):
        if p.followers[i].replica_id == replica_id:
            p.followers[i].log_end_offset = offset
    if maybe_advance_high_watermark(p):
        wake_waiters(p, WOKEN_BY_STATE)
    pthread_mutex_unlock(&p.lock)


cdef object produced(AppendResult *r):
    # KIP-467: words come with the records they are about; any other error speaks for itself.
    about = [r.verdict.record_errors[i] for i in range(r.verdict.record_error_count)]
    return Produced(r.error, r.base_offset, r.log_append_time_ms, r.log_start_offset, about,
                    r.verdict.message.decode() if about and r.verdict.message != NULL else None,
                    r.verdict.record_message.decode() if about and r.verdict.record_message != NULL else None)


cdef class PartitionHandle:
    """The control side's hold on one live partition: it sets leadership, the network threads read and append."""

    def __cinit__(self, int32_t index, PartitionLog log=None):
        self.p = <Partition *> calloc(1, sizeof(Partition))
        if self.p == NULL:
            raise MemoryError
        pthread_mutex_init(&self.p.lock, NULL)
        self.p.references = 1
        self.p.index = index
        self.p.leader_id = -1
        self.p.leader_epoch = -1
        self._log = log
        if log is not None:
            log_retain(log.log)
            self.p.log = log.log

    def __dealloc__(self):
        if self.p != NULL:
            partition_release(self.p)

    @property
    def index(self):
        return self.p.index

    @property
    def log(self):
        return self._log

    @property
    def leader_id(self):
        return self.p.leader_id

    @property
    def leader_epoch(self):
        return self.p.leader_epoch

    @property
    def is_leader(self):
        return bool(self.p.is_leader)

    @property
    def high_watermark(self):
        cdef int64_t state
        cdef int64_t offset
        with nogil:
            offset = partition_high_watermark(self.p, &state)
        return offset

    @property
    def counters(self):
        """(bytes in, bytes out, messages in) since the handle was made."""
        return load_counter(&self.p.bytes_in), load_counter(&self.p.bytes_out), load_counter(&self.p.messages_in)

    def lead(self, int32_t leader_id, int32_t leader_epoch, int32_t isr_count, int32_t min_insync_replicas,
             in_sync_followers=()):
        """This node leads. `min_insync_replicas` is the effective one: the setting, capped by the replication factor."""
        cdef int32_t count = len(in_sync_followers)
        cdef int32_t i
        cdef Follower *followers = <Follower *> calloc(count + 1, sizeof(Follower))
        if followers == NULL:
            raise MemoryError
        for i, replica_id in enumerate(in_sync_followers):
            followers[i].replica_id = replica_id
            followers[i].log_end_offset = -1
        with nogil:
            become_leader(self.p, leader_id, leader_epoch, isr_count, min_insync_replicas, followers, count)

    def follow(self, int32_t leader_id, int32_t leader_epoch):
        """Another node leads (-1: none does)."""
        with nogil:
            become_follower(self.p, leader_id, leader_epoch)

    def go_offline(self):
        """The log's directory failed: every request answers KAFKA_STORAGE_ERROR."""
        self._log = None
        with nogil:
            drop_log(self.p, True, False)

    def retire(self):
        """The topic was deleted: whoever still waits is told so."""
        self._log = None
        with nogil:
            drop_log(self.p, False, True)

    def follower_fetched(self, int32_t replica_id, int64_t offset):
        """A follower asked for `offset`: it holds everything before it."""
        with nogil:
            note_follower(self.p, replica_id, offset)

    def produce(self, bytes records not None, int16_t acks=-1, inflated=None):
        """Appends one produced batch as the network threads do; `inflated` when its codec has no engine there: its records,
        or the code of the CodecError that they gave."""
        return self._append(records, acks, inflated, FROM_CLIENT)

    def append(self, bytes records not None):
        """Appends a coordinator's own batch with acks=all; the caller waits for the high watermark."""
        return self._append(records, -1, None, FROM_COORDINATOR)

    cdef object _append(self, bytes records, int16_t acks, object inflated, Origin origin):
        cdef Append append
        cdef Scratch scratch
        cdef bytes clear
        cdef int64_t now = 0
        if self._log is not None:
            now = (<BrokerClock> (<PartitionLog> self._log)._clock).now_ms()
        append.length = len(records)
        append.inflated = NULL
        append.inflated_length = -1
        if isinstance(inflated, int):
            append.inflated = <const uint8_t *> <const char *> records     # not looked at: the length says what went wrong
            append.inflated_length = inflated
        elif inflated is not None:
            clear = inflated
            append.inflated = <const uint8_t *> <const char *> clear
            append.inflated_length = len(clear)
        append.records = <uint8_t *> malloc(append.length if append.length > 0 else 1)    # stamped in place
        if append.records == NULL:
            raise MemoryError
        memcpy(append.records, <const char *> records, append.length)
        memset(&scratch, 0, sizeof(Scratch))
        with nogil:
            if append_as_leader(self.p, &append, 1, acks, origin, &scratch, now):
                partition_sync(self.p)
                if append.out.error == Err.NONE and self.p.log != NULL and log_failed(self.p.log):
                    append_begin(&append.out, Err.KAFKA_STORAGE_ERROR)
            scratch_free(&scratch)
            free(append.records)
        if append.out.needs_fallback:
            raise ValueError("this batch's codec has no native engine: pass its inflated records")
        return produced(&append.out)


# ---- tables ----

cdef uint8_t *copied(bytes value) except NULL:
    cdef uint8_t *p = <uint8_t *> malloc(len(value) + 1)
    if p == NULL:
        raise MemoryError
    memcpy(p, <const char *> value, len(value) + 1)
    return p


cdef Topic *make_topic(str name, bytes id, bint internal, list handles) except NULL:
    cdef bytes encoded = name.encode()
    cdef Topic *t
    cdef int32_t i
    cdef PartitionHandle handle
    if len(id) != 16:
        raise ValueError(f"topic {name!r}: an id has 16 bytes, not {len(id)}")
    for i, handle in enumerate(handles):
        if handle is None or handle.p.index != i:
            raise ValueError(f"topic {name!r}: partitions must be listed from 0 without gaps")
    t = <Topic *> calloc(1, sizeof(Topic))
    if t == NULL:
        raise MemoryError
    t.references = 1
    t.name = copied(encoded)
    t.name_length = <int32_t> len(encoded)
    t.internal = internal
    memcpy(t.id, <const char *> id, 16)
    t.partitions = <Partition **> calloc(len(handles) + 1, sizeof(Partition *))
    if t.partitions == NULL:
        topic_release(t)
        raise MemoryError
    t.partition_count = <int32_t> len(handles)
    for i, handle in enumerate(handles):
        partition_retain(handle.p)
        t.partitions[i] = handle.p
    return t


cdef Table *make_table(int64_t topic_count, int64_t endpoint_count) except NULL:
    cdef Table *t = <Table *> calloc(1, sizeof(Table))
    cdef uint32_t slots = 8
    while slots < 2 * topic_count:      # half empty at least: a probe for an unknown topic ends
        slots *= 2
    if t == NULL:
        raise MemoryError
    t.references = 1
    t.mask = slots - 1
    t.by_name = <Topic **> calloc(slots, sizeof(Topic *))
    t.by_id = <Topic **> calloc(slots, sizeof(Topic *))
    t.endpoints = <Endpoint *> calloc(endpoint_count + 1, sizeof(Endpoint))
    if t.by_name == NULL or t.by_id == NULL or t.endpoints == NULL:
        t.mask = 0
        free(t.by_name)
        free(t.by_id)
        free(t.endpoints)
        free(t)
        raise MemoryError
    return t


cdef void table_add(Table *t, Topic *topic) noexcept nogil:
    cdef uint8_t zero[16]
    cdef uint32_t slot = hash_name(topic.name, topic.name_length) & t.mask
    memset(zero, 0, 16)
    while t.by_name[slot] != NULL:
        slot = (slot + 1) & t.mask
    t.by_name[slot] = topic
    t.topic_count += 1
    if same_id(topic.id, zero):     # the zero id names no topic
        return
    slot = hash_id(topic.id) & t.mask
    while t.by_id[slot] != NULL:
        slot = (slot + 1) & t.mask
    t.by_id[slot] = topic


cdef class ViewHandle:
    """What the clients of one listener (or virtual cluster) see: topics, and where the brokers are reached."""

    def __cinit__(self):
        pthread_mutex_init(&self.v.lock, NULL)
        self.v.current = make_table(0, 0)
        self.v.version = 0

    def __dealloc__(self):
        if self.v.current != NULL:
            table_release(self.v.current)
        pthread_mutex_destroy(&self.v.lock)

    @property
    def version(self):
        return self.v.version

    def publish(self, list topics not None, list endpoints=None):
        """Replaces the table at once. topics: (name, id, internal, handles); endpoints: (node id, host, port, rack or None)."""
        cdef Table *t
        cdef Table *before
        cdef Endpoint *e
        if len({topic[0] for topic in topics}) != len(topics) or len({topic[1] for topic in topics}) != len(topics):
            raise ValueError("a topic's name and id may be published once in a table")
        t = make_table(len(topics), len(endpoints or ()))
        try:
            for name, id, internal, handles in topics:
                table_add(t, make_topic(name, id, internal, list(handles)))
            for node_id, host, port, rack in endpoints or ():
                e = &t.endpoints[t.endpoint_count]
                e.node_id = node_id
                e.port = port
                e.rack_length = -1
                e.host = copied(host.encode())
                t.endpoint_count += 1
                e.host_length = <int32_t> len(host.encode())
                if rack is not None:
                    e.rack = copied(rack.encode())
                    e.rack_length = <int32_t> len(rack.encode())
        except BaseException:
            table_release(t)
            raise
        with nogil:
            pthread_mutex_lock(&self.v.lock)
            before = self.v.current
            self.v.current = t
            self.v.version += 1
            pthread_mutex_unlock(&self.v.lock)
            table_release(before)
