# partitions: the live partitions of this node, and the table by which a request finds them.
# Owns        Partition (leadership, log, parked fetches), Topic and Table (immutable once published), View (the current table).
# Called by   api/produce, api/fetch; the control side builds a Table and publishes it whole through the doors below.
# Threads     a network thread takes the view's table once a turn and drops it at the end of the turn.
#             Partition's fields: under its lock. Table and Topic: read only.
# Invariants  a Partition outlives every Table, parked fetch and reply that names it (reference counts).
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from posix.types cimport pid_t
from kbroker._core.log.partition_log cimport AppendResult, Log, ReadPlan
from kbroker._core.record.compression cimport Scratch

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *m, void *attributes) noexcept
    int pthread_mutex_destroy(pthread_mutex_t *m) noexcept
    int pthread_mutex_lock(pthread_mutex_t *m) noexcept
    int pthread_mutex_unlock(pthread_mutex_t *m) noexcept

# One parked request's interest in one partition: a node of the partition's list, owned by the parked request.
# `woken` is called under the partition's lock by whichever thread appended; it must only queue the request on its owner's
# loop (never reply, never take another partition's lock).
cdef struct Waiter:
    Waiter *next
    Waiter *previous
    void *parked                                     # purgatory's request
    void (*woken)(Waiter *w) noexcept nogil

cdef struct Partition:
    int32_t references
    pthread_mutex_t lock
    Log *log                       # NULL: this node holds no replica, or its directory is offline (storage_error)
    bint storage_error
    int32_t index
    int32_t leader_id              # -1: none
    int32_t leader_epoch
    bint is_leader
    int32_t isr_count              # in-sync replicas, this node included
    int32_t min_insync_replicas
    Waiter *waiters
    uint64_t bytes_in, bytes_out, messages_in

cdef struct Topic:
    int32_t references
    uint8_t id[16]
    uint8_t *name
    int32_t name_length
    bint internal
    int32_t partition_count
    Partition **partitions

cdef struct Table:
    int32_t references
    int32_t topic_count
    uint32_t mask
    Topic **by_name                # open addressing, mask + 1 slots
    Topic **by_id

cdef struct View:                  # what one listener's clients see: its own table (a virtual cluster has its own view)
    pthread_mutex_t lock
    Table *current
    int64_t version

cdef Table *view_acquire(View *v) noexcept nogil
cdef void table_release(Table *t) noexcept nogil
cdef Topic *find_topic_by_name(const Table *t, const uint8_t *name, int32_t length) noexcept nogil
cdef Topic *find_topic_by_id(const Table *t, const uint8_t *id) noexcept nogil
cdef Partition *topic_partition(const Topic *t, int32_t index) noexcept nogil   # NULL: out of range

cdef void partition_retain(Partition *p) noexcept nogil
cdef void partition_release(Partition *p) noexcept nogil
# Leadership check, min ISR, append, high watermark, wake-ups. Fills out.error like Kafka does.
cdef void partition_produce(Partition *p, uint8_t *records, int32_t length, int16_t acks,
                            const uint8_t *inflated, int64_t inflated_length,
                            Scratch *scratch, int64_t now_ms, AppendResult *out) noexcept nogil
cdef void partition_add_waiter(Partition *p, Waiter *w) noexcept nogil
cdef void partition_remove_waiter(Partition *p, Waiter *w) noexcept nogil
