# partitions: the live partitions of this node, and the table by which a request finds them.
# Owns        Partition (leadership, log, parked requests' waiters), Topic and Table (immutable once published), View (the current table).
# Called by   api/produce, api/fetch, purgatory; the control side builds a Table and publishes it whole through the doors below.
# Threads     a network thread takes the view's table once a turn and drops it at the end of the turn.
#             Partition's fields: under its lock. Table and Topic: read only.
#             Lock order: a partition's lock, then its log's; wake-ups run under the partition's lock and take only a purgatory's.
# Invariants  a Partition outlives every Table, parked request and reply that names it (reference counts).
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp
from kbroker._core.c.prelude cimport load_pointer
from kbroker._core.log.partition_log cimport Append, Log, PartitionLog, ReadPlan
from kbroker._core.log.txn_index cimport TxnIndex
from kbroker._core.record.batch cimport Origin
from kbroker._core.record.compression cimport Scratch
from kbroker._core.wire.cursor cimport load_be64

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *m, void *attributes) noexcept
    int pthread_mutex_destroy(pthread_mutex_t *m) noexcept
    int pthread_mutex_lock(pthread_mutex_t *m) noexcept
    int pthread_mutex_unlock(pthread_mutex_t *m) noexcept

# One parked request's interest in one partition: a node of the partition's list, owned by the parked request.
# `woken` is called under the partition's lock by whichever thread moved the high watermark or the leadership; `bytes` is what
# became readable (WOKEN_BY_STATE: something else changed, look again). It must only queue the request on its owner's loop
# (never reply, never take another partition's lock).
cdef struct Waiter:
    Waiter *next
    Waiter *previous
    bint committed                                   # waits for the last stable offset, not for the high watermark
    void *parked                                     # purgatory's request
    void (*woken)(Waiter *w, int64_t bytes) noexcept nogil

cdef enum:
    WOKEN_BY_STATE = 0x7fffffff

# What the leader knows of an in-sync follower.
cdef struct Follower:
    int32_t replica_id
    int64_t log_end_offset         # -1: not heard of in this leader epoch

cdef enum Wait:                    # what an acknowledgement may have to wait for
    FOR_DISK = 1
    FOR_FOLLOWERS = 2

# Whoever syncs in a network thread's stead. Partitions know it by this alone, and each holds a reference.
cdef struct SyncDoor:
    int32_t references
    bint (*want)(SyncDoor *door, Partition *p) noexcept nogil      # False: nobody is there, do it yourself
    void (*destroy)(SyncDoor *door) noexcept nogil

cdef struct Partition:
    int32_t references
    pthread_mutex_t lock
    Log *log                       # NULL: this node holds no replica, or its directory is offline (storage_error)
    bint storage_error
    bint deleted                   # the topic is gone; only parked requests and handles still see this
    int32_t index
    int32_t leader_id              # -1: none
    int32_t leader_epoch
    bint is_leader
    int32_t isr_count              # in-sync replicas, this node included
    int32_t min_insync_replicas    # the effective one: never above the replication factor
    Follower *followers            # of the in-sync replicas, this node not included
    int32_t follower_count
    int64_t state_version          # counts changes of leadership, log and in-sync replicas
    Waiter *waiters
    SyncDoor *sync_door            # NULL: whoever appends syncs
    bint wants_sync                # behind the door, under its lock: in the queue
    Partition *next_to_sync
    uint64_t bytes_in, bytes_out, messages_in

cdef struct Topic:
    int32_t references
    uint8_t id[16]
    uint8_t *name
    int32_t name_length
    bint internal
    int32_t partition_count
    Partition **partitions

# Where a client of this view reaches a broker: for CurrentLeader and NodeEndpoints (KIP-951).
cdef struct Endpoint:
    int32_t node_id
    int32_t port
    uint8_t *host
    int32_t host_length
    uint8_t *rack
    int32_t rack_length            # -1: null

cdef struct Table:
    int32_t references
    int32_t topic_count
    uint32_t mask
    Topic **by_name                # open addressing, mask + 1 slots
    Topic **by_id
    Endpoint *endpoints
    int32_t endpoint_count

cdef struct View:                  # what one listener's clients see: its own table (a virtual cluster has its own view)
    pthread_mutex_t lock
    Table *current
    int64_t version

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

cdef Table *view_acquire(View *v) noexcept nogil
cdef void table_retain(Table *t) noexcept nogil
cdef void table_release(Table *t) noexcept nogil
cdef void topic_release(Topic *t) noexcept nogil
cdef Topic *find_topic_by_name(const Table *t, const uint8_t *name, int32_t length) noexcept nogil
cdef Topic *find_topic_by_id(const Table *t, const uint8_t *id) noexcept nogil
cdef Partition *topic_partition(const Topic *t, int32_t index) noexcept nogil   # NULL: out of range
cdef const Endpoint *find_endpoint(const Table *t, int32_t node_id) noexcept nogil   # NULL: not alive

cdef void partition_retain(Partition *p) noexcept nogil
cdef void partition_release(Partition *p) noexcept nogil
# Leadership check, min ISR, append, high watermark, wake-ups. Each append's out.error is what Kafka answers.
cdef void partition_produce(Partition *p, Append *appends, int32_t count, int16_t acks, Scratch *scratch,
                            int64_t now_ms) noexcept nogil
# What the acknowledgement of an append may wait for, as Wait's bits; 0: it is there as soon as the append is made.
cdef int partition_may_wait(Partition *p, int16_t acks) noexcept nogil
# fsync, in a thread that may wait for it; then the high watermark and the wake-ups. What fails takes the log offline.
cdef void partition_sync(Partition *p) noexcept nogil

# How far an append has come. Err: NONE acknowledged, REQUEST_TIMED_OUT not yet, others as Kafka answers them.
cdef int16_t partition_check_acks(Partition *p, int16_t acks, int64_t required_offset) noexcept nogil

cdef struct ReadAsk:
    int64_t offset
    int32_t current_leader_epoch   # -1: not checked
    int32_t last_fetched_epoch     # -1: not checked for divergence
    int64_t max_bytes
    bint at_least_one
    bint read_committed            # bounded by the last stable offset instead of the high watermark
    bint leader_only               # a replica that is not the leader may not answer

cdef struct ReadFound:
    ReadPlan plan                  # the segment reference is the caller's
    int32_t diverging_epoch        # with diverging_end_offset; -1, -1: the logs agree
    int64_t diverging_end_offset
    int32_t leader_id              # whom the error should point at
    int32_t leader_epoch
    int64_t seen_state             # for partition_add_waiter
    int64_t seen_offset            # the high watermark, or with read_committed the last stable offset

cdef void partition_read(Partition *p, const ReadAsk *ask, ReadFound *out) noexcept nogil
# The aborted transactions that a reader of this slice must know of (read_committed). 0 or -errno.
cdef int partition_collect_aborted(Partition *p, int64_t from_offset, const ReadPlan *plan, TxnIndex *out) noexcept nogil
# Whether a transactional batch may be appended as it comes: its transaction has begun here, or nobody wants it verified
# (`adds`: it must be told to its coordinator in any case). What happens in between, the append will see.
cdef bint partition_knows_transaction(Partition *p, int64_t producer_id, int16_t producer_epoch, bint adds) noexcept nogil
# Links the waiter. False: the offset it waits for or the state has moved since it was seen, so that no wake-up may come: look again.
cdef bint partition_add_waiter(Partition *p, Waiter *w, int64_t seen_state, int64_t seen_offset) noexcept nogil
cdef void partition_remove_waiter(Partition *p, Waiter *w) noexcept nogil
# Both with the lock held: what a change of the log, the leadership or the in-sync replicas brings with it.
cdef bint maybe_advance_high_watermark(Partition *p) noexcept nogil
cdef void note_change(Partition *p) noexcept nogil
cdef void partition_leader(Partition *p, int32_t *leader_id, int32_t *leader_epoch) noexcept nogil
cdef int64_t partition_high_watermark(Partition *p, int64_t *state_version) noexcept nogil

cdef class PartitionHandle:
    cdef Partition *p
    cdef object _log
    cdef object _next                                # a copy that may take _log's place in this moment (moves)
    cdef object _append(self, bytes records, int16_t acks, object inflated, Origin origin, int64_t guard,
                        int16_t transaction_version)

cdef inline object log_of(PartitionHandle handle):
    # Whoever was acknowledged by the new log is not to be answered from the old one.
    if handle._next is not None and load_pointer(<void **> &handle.p.log) == (<PartitionLog> handle._next).log:
        return handle._next
    return handle._log
