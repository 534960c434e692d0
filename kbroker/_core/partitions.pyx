# The live partitions of this node and the published tables. partitions.pxd says what holds; here is how.
from libc.errno cimport EIO
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from collections import namedtuple

from kbroker._core.c.prelude cimport KB_ASSERT, add_counter, load_counter, release_count, retain_count, store_pointer
from kbroker._core.clock cimport BrokerClock, wall_ms
from kbroker._core.errors cimport Err
from kbroker._core.log.aborted cimport log_collect_of_slice
from kbroker._core.log.partition_log cimport (
    Append, AppendResult, Log, PartitionLog, append_begin, log_append, log_assign_epoch, log_awaits_sync,
    log_begin_verification, log_end_offset, log_end_offset_for_epoch, log_failed, log_flush_or_fail, log_high_watermark,
    log_in_transaction, log_last_stable_offset, log_raise_high_watermark, log_read, log_release, log_retain,
    log_settled_end, log_start_offset, log_syncs, log_verifies,
)
from kbroker._core.record.batch cimport FROM_CLIENT, FROM_COORDINATOR, Origin
from kbroker._core.record.compression cimport Scratch, scratch_free

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

cdef void wake_waiters(Partition *p, int64_t bytes, int64_t committed_bytes) noexcept nogil:
    # 0: of what these wait for, nothing has come.
    cdef Waiter *w = p.waiters
    cdef int64_t news
    while w != NULL:
        news = committed_bytes if w.committed else bytes
        if news > 0:
            w.woken(w, news)
        w = w.next


cdef inline int64_t stable_offset(const Partition *p) noexcept nogil:
    return log_last_stable_offset(p.log) if p.log != NULL else -1


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


cdef int64_t committed_news(const Partition *p, int64_t stable, bint calm, int64_t news) noexcept nogil:
    # What the last stable offset has passed since it stood at `stable`. `calm`: no transaction was open then; else a marker
    # may have released more than its own bytes.
    cdef int64_t now = stable_offset(p)
    if now == stable:
        return 0
    return news if calm and now == log_high_watermark(p.log) else <int64_t> WOKEN_BY_STATE


cdef bint append_as_leader(Partition *p, Append *appends, int32_t count, int16_t acks, Origin origin, Scratch *scratch,
                           int64_t now_ms) noexcept nogil:
    cdef AppendResult *out
    cdef uint64_t bytes = 0
    cdef int64_t stable, news
    cdef bint awaits_sync = False
    cdef bint calm
    cdef int16_t error
    cdef int32_t i
    pthread_mutex_lock(&p.lock)
    error = writable_error(p, acks)
    if error != Err.NONE:
        for i in range(count):
            append_begin(&appends[i].out, error)
    else:
        stable = log_last_stable_offset(p.log)
        calm = stable == log_high_watermark(p.log)
        log_append(p.log, appends, count, origin, p.leader_epoch, scratch, now_ms)
        for i in range(count):
            out = &appends[i].out
            if out.error == Err.NONE and not out.duplicate and not out.needs_fallback:
                bytes += <uint64_t> out.appended_bytes
                add_counter(&p.messages_in, <uint64_t> (out.last_offset - out.base_offset + 1))
        if bytes > 0:
            add_counter(&p.bytes_in, bytes)
            if maybe_advance_high_watermark(p):
                news = <int64_t> bytes if p.follower_count == 0 else <int64_t> WOKEN_BY_STATE
                wake_waiters(p, news, committed_news(p, stable, calm, news))
        awaits_sync = log_awaits_sync(p.log)
    pthread_mutex_unlock(&p.lock)
    return awaits_sync


cdef void partition_sync(Partition *p) noexcept nogil:
    cdef int64_t stable
    cdef Log *log = borrow_log(p)
    if log == NULL:
        return
    log_flush_or_fail(log)
    pthread_mutex_lock(&p.lock)
    if p.log == log:
        stable = stable_offset(p)
        maybe_advance_high_watermark(p)
        wake_waiters(p, WOKEN_BY_STATE, committed_news(p, stable, False, WOKEN_BY_STATE) if not log_failed(log)
                     else <int64_t> WOKEN_BY_STATE)
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
    out.seen_offset = -1
    if out.plan.error == Err.NONE:
        out.seen_offset = log_last_stable_offset(p.log) if ask.read_committed else log_high_watermark(p.log)
        if ask.last_fetched_epoch >= 0:
            find_divergence(p.log, ask, out)
        if out.plan.error == Err.NONE and out.diverging_epoch < 0:
            log_read(p.log, ask.offset, out.seen_offset, ask.max_bytes, ask.at_least_one, &out.plan)
    pthread_mutex_unlock(&p.lock)


cdef Log *borrow_log(Partition *p) noexcept nogil:
    # NULL, or the log with a reference of the caller's.
    cdef Log *log
    pthread_mutex_lock(&p.lock)
    log = p.log
    if log != NULL:
        log_retain(log)
    pthread_mutex_unlock(&p.lock)
    return log


cdef int partition_collect_aborted(Partition *p, int64_t from_offset, const ReadPlan *plan, TxnIndex *out) noexcept nogil:
    cdef Log *log = borrow_log(p)
    cdef int rc = -EIO
    if log != NULL:
        rc = log_collect_of_slice(log, from_offset, plan, out)
        log_release(log)
    return rc


cdef bint partition_knows_transaction(Partition *p, int64_t producer_id, int16_t producer_epoch, bint adds) noexcept nogil:
    cdef bint known = True                   # a partition that is not led here refuses the append anyway
    pthread_mutex_lock(&p.lock)
    if p.is_leader and p.log != NULL and (adds or log_verifies(p.log)):
        known = log_in_transaction(p.log, producer_id, producer_epoch)
    pthread_mutex_unlock(&p.lock)
    return known


cdef inline int64_t current_high_watermark(const Partition *p) noexcept nogil:
    return log_high_watermark(p.log) if p.log != NULL else -1


cdef bint partition_add_waiter(Partition *p, Waiter *w, int64_t seen_state, int64_t seen_offset) noexcept nogil:
    cdef bint unchanged
    pthread_mutex_lock(&p.lock)
    w.previous = NULL
    w.next = p.waiters
    if p.waiters != NULL:
        p.waiters.previous = w
    p.waiters = w
    unchanged = p.state_version == seen_state and \
        (stable_offset(p) if w.committed else current_high_watermark(p)) == seen_offset
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
    wake_waiters(p, WOKEN_BY_STATE, WOKEN_BY_STATE)


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
    store_pointer(<void **> &p.log, NULL)
    p.is_leader = False
    p.storage_error = storage_error
    p.deleted = deleted
    note_change(p)
    pthread_mutex_unlock(&p.lock)
    if log != NULL:
        log_release(log)


cdef void note_follower(Partition *p, int32_t replica_id, int64_t offset) noexcept nogil:
    cdef int64_t stable
    cdef int32_t i
    pthread_mutex_lock(&p.lock)
    stable = stable_offset(p)
    for i in range(p.follower_count):
        if p.followers[i].replica_id == replica_id:
            p.followers[i].log_end_offset = offset
    if maybe_advance_high_watermark(p):
        wake_waiters(p, WOKEN_BY_STATE, committed_news(p, stable, False, WOKEN_BY_STATE))
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
        return log_of(self)

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

    def produce(self, bytes records not None, int16_t acks=-1, inflated=None, int64_t guard=0):
        """Appends one produced batch as the network threads do; `inflated` when its codec has no engine there: its records,
        or the code of the CodecError that they gave. `guard`: of its verified transaction."""
        return self._append(records, acks, inflated, FROM_CLIENT, guard, 0)

    def append(self, bytes records not None, *, int64_t guard=0, int16_t transaction_version=0):
        """Appends a coordinator's own batch with acks=all; the caller waits for the high watermark. A transactional batch
        may need a `guard`; of a marker its `transaction_version` decides which epochs will do."""
        return self._append(records, -1, None, FROM_COORDINATOR, guard, transaction_version)

    def begin_verification(self, int64_t producer_id, int16_t producer_epoch, int32_t sequence, *, bint adds):
        """Before a transaction's first batch: the guard to append it with once its coordinator knows of this partition; 0
        when there is nothing to ask, because the transaction has begun here or the partition is not led here. `adds`: it
        is asked to add the partition, not merely whether it was added."""
        cdef int64_t guard = 0
        cdef Log *log
        cdef int64_t now
        if self._log is None or not self.is_leader:
            return 0
        now = (<BrokerClock> (<PartitionLog> self._log)._clock).now_ms()
        with nogil:
            log = borrow_log(self.p)
            if log != NULL:
                if adds or log_verifies(log):
                    guard = log_begin_verification(log, producer_id, producer_epoch, sequence, adds, now)
                log_release(log)
        if guard < 0:
            raise MemoryError
        return guard

    def acknowledged(self, int16_t acks, int64_t required_offset):
        """How far an append that ends before `required_offset` has come: an error code, REQUEST_TIMED_OUT while it waits."""
        cdef int16_t error
        with nogil:
            error = partition_check_acks(self.p, acks, required_offset)
        return error

    cdef object _append(self, bytes records, int16_t acks, object inflated, Origin origin, int64_t guard,
                        int16_t transaction_version):
        cdef Append append
        cdef Scratch scratch
        cdef bytes clear
        cdef int64_t now = 0
        if self._log is not None:
            now = (<BrokerClock> (<PartitionLog> self._log)._clock).now_ms()
        append.length = len(records)
        append.inflated = NULL
        append.inflated_length = -1
        append.guard = guard
        append.transaction_version = transaction_version
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
