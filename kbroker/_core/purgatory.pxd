# purgatory: the parked requests of one network thread: long polls of Fetch, acks=all of Produce.
# Owns        every Parked until it is answered or its connection is gone; the heap of deadlines; the list of those woken.
# Called by   api/produce and api/fetch (park), net/loop (the purgatory_* doors without a Parked).
# Threads     the owning network thread, except wake_parked: any thread, under a partition's lock.
#             Lock order: a partition's lock, then wake_lock. The owner never holds wake_lock when it takes a partition's lock.
# Fails by    False or NULL when memory ran out. Never raises, never takes the GIL.
# Invariants  a connection has at most one parked request; a Parked's waiters are linked in their partitions as long as it lives.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from kbroker._core.api.request cimport Peer, Worker
from kbroker._core.partitions cimport Partition, Waiter
from kbroker._core.wire.chain cimport Chain

# ---- doors for net ----
cdef bint purgatory_create(Worker *w) noexcept nogil                 # sets w.purgatory; False: no memory
cdef void purgatory_destroy(Worker *w) noexcept nogil                # drops everything still parked, unanswered
# `wake(context)` is called by the thread that woke a request of this loop while the woken list was empty. Set it before the
# first dispatch. It must only poke the loop (an eventfd): it runs under a partition's lock.
cdef void purgatory_on_wake(Worker *w, void (*wake)(void *context) noexcept nogil, void *context) noexcept nogil
cdef int64_t purgatory_next_deadline(Worker *w) noexcept nogil       # mono_ms; -1: nothing is parked
# Answers one woken or expired request: True with its connection and sealed reply, False when there is none to answer now.
# w.table is not used. Call it until it says False, at the end of each turn and after each wake.
cdef bint purgatory_collect(Worker *w, Peer *peer_out, Chain *reply) noexcept nogil
cdef void purgatory_forget(Worker *w, const Peer *peer) noexcept nogil   # the connection is gone
cdef void purgatory_hasten(Worker *w, const Peer *peer) noexcept nogil   # its time is up: the next collect answers it
cdef int32_t purgatory_count(Worker *w) noexcept nogil               # any thread; a moment old

# ---- doors for api/produce and api/fetch ----
cdef struct Parked:
    void *home                     # its Purgatory
    Peer peer
    int64_t deadline_ms            # mono_ms
    int32_t heap_index
    int32_t woken                  # 1 while it is in the woken list
    Parked *next_woken
    Parked *previous_woken
    uint64_t arrived_bytes         # readable bytes announced since the last plan
    int64_t wanted_bytes           # wake-ups below this are not worth a new plan; 0 while a plan is being made
    Waiter *waiters
    Partition **partitions         # waiters[i] is linked in partitions[i]; each holds a reference
    int32_t watch_count
    int32_t watch_capacity
    bint stale                     # something moved before its waiter was linked
    void *work                     # the api room's own
    # Seals the reply and returns True; False: it waits on (never when expired).
    bint (*complete)(Worker *w, Parked *p, bint expired, Chain *reply) noexcept nogil
    void (*drop)(Parked *p) noexcept nogil     # gives `work` back

cdef Parked *parked_create(int32_t watch_capacity) noexcept nogil          # NULL: no memory
# The purgatory must know its home before a waiter may be linked.
# `committed`: what it waits for is the last stable offset, and that was seen.
cdef void parked_watch(Worker *w, Parked *p, Partition *partition, int64_t seen_state, int64_t seen_offset,
                       bint committed) noexcept nogil
# Takes over `p`. False: no memory, or too much is parked already; the caller still owns it and answers at once.
cdef bint purgatory_park(Worker *w, Parked *p, const Peer *peer, int64_t deadline_ms) noexcept nogil
cdef void parked_free(Parked *p) noexcept nogil                            # unlinks the waiters; does not call drop
cdef void parked_want(Parked *p, int64_t bytes) noexcept nogil             # after a plan that fell short

# Memory that item lists reuse from request to request. A list that is parked keeps its block; api/fetch leaves its own here.
cdef struct Block:
    uint8_t *data
    int64_t capacity

cdef Block spare_take(Worker *w) noexcept nogil               # empty when there is none
cdef void spare_give(Worker *w, Block block) noexcept nogil   # kept, or freed when large or one is there already
cdef void block_trim(Block *block, int64_t bytes) noexcept nogil           # for a block that is kept: it may move
cdef bint block_reserve(Block *block, int64_t bytes) noexcept nogil        # keeps what is in it; False: no memory
