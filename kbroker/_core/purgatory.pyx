# Parked requests of one network thread: a heap of deadlines, a list of the woken, a map from connection to request.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from kbroker._core.c.prelude cimport KB_ASSERT, add_counter, load_int32, load_int64, raise_flag, store_int32, store_int64
from kbroker._core.api.request cimport Peer, Worker
from kbroker._core.clock cimport mono_ms
from kbroker._core.limits cimport PARKED_ITEMS_MAX, SCRATCH_KEEP_BYTES
from kbroker._core.partitions cimport (
    Partition, Waiter, partition_add_waiter, partition_release, partition_remove_waiter, partition_retain,
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)
from kbroker._core.wire.chain cimport Chain

cdef struct Purgatory:
    Parked **heap                  # least deadline first
    int32_t count
    int32_t heap_capacity
    Parked **by_slot               # the connection's slot -> its parked request
    int32_t slot_capacity
    int64_t item_count             # partitions named by all that are parked, known or not
    pthread_mutex_t wake_lock      # guards the woken list
    Parked *first_woken
    Parked *last_woken
    void (*wake)(void *context) noexcept nogil
    void *wake_context
    Block spare


cdef bint purgatory_create(Worker *w) noexcept nogil:
    cdef Purgatory *home = <Purgatory *> calloc(1, sizeof(Purgatory))
    if home == NULL:
        return False
    pthread_mutex_init(&home.wake_lock, NULL)
    w.purgatory = home
    return True


cdef void purgatory_destroy(Worker *w) noexcept nogil:
    cdef Purgatory *home = <Purgatory *> w.purgatory
    cdef Parked *p
    if home == NULL:
        return
    while home.count > 0:
        p = home.heap[home.count - 1]
        take_out(home, p)
        p.drop(p)
        parked_free(p)
    pthread_mutex_destroy(&home.wake_lock)
    free(home.spare.data)
    free(home.heap)
    free(home.by_slot)
    free(home)
    w.purgatory = NULL


cdef void purgatory_on_wake(Worker *w, void (*wake)(void *context) noexcept nogil, void *context) noexcept nogil:
    cdef Purgatory *home = <Purgatory *> w.purgatory
    pthread_mutex_lock(&home.wake_lock)
    home.wake = wake
    home.wake_context = context
    pthread_mutex_unlock(&home.wake_lock)


cdef int32_t purgatory_count(Worker *w) noexcept nogil:
    return load_int32(&(<Purgatory *> w.purgatory).count)


# ---- the heap of deadlines ----

cdef inline void heap_set(Purgatory *home, int32_t at, Parked *p) noexcept nogil:
    home.heap[at] = p
    p.heap_index = at


cdef void sift_up(Purgatory *home, int32_t at) noexcept nogil:
    cdef Parked *p = home.heap[at]
    cdef int32_t parent
    while at > 0:
        parent = (at - 1) // 2
        if home.heap[parent].deadline_ms <= p.deadline_ms:
            break
        heap_set(home, at, home.heap[parent])
        at = parent
    heap_set(home, at, p)


cdef void sift_down(Purgatory *home, int32_t at) noexcept nogil:
    cdef Parked *p = home.heap[at]
    cdef int32_t child
    while 2 * at + 1 < home.count:
        child = 2 * at + 1
        if child + 1 < home.count and home.heap[child + 1].deadline_ms < home.heap[child].deadline_ms:
            child += 1
        if p.deadline_ms <= home.heap[child].deadline_ms:
            break
        heap_set(home, at, home.heap[child])
        at = child
    heap_set(home, at, p)


cdef void heap_remove(Purgatory *home, Parked *p) noexcept nogil:
    cdef int32_t at = p.heap_index
    cdef Parked *last
    KB_ASSERT(at >= 0 and at < home.count and home.heap[at] == p)
    home.count -= 1
    last = home.heap[home.count]
    p.heap_index = -1
    if last != p:
        heap_set(home, at, last)
        sift_down(home, at)
        sift_up(home, last.heap_index)


cdef int64_t purgatory_next_deadline(Worker *w) noexcept nogil:
    cdef Purgatory *home = <Purgatory *> w.purgatory
    return home.heap[0].deadline_ms if home.count > 0 else -1


# ---- the woken list: the only part that other threads touch ----

cdef void queue_woken(Parked *p) noexcept nogil:
    cdef Purgatory *home = <Purgatory *> p.home
    cdef bint was_empty
    if not raise_flag(&p.woken):
        return
    pthread_mutex_lock(&home.wake_lock)
    was_empty = home.first_woken == NULL
    p.next_woken = NULL
    p.previous_woken = home.last_woken
    if was_empty:
        home.first_woken = p
    else:
        home.last_woken.next_woken = p
    home.last_woken = p
    if was_empty and home.wake != NULL:
        home.wake(home.wake_context)
    pthread_mutex_unlock(&home.wake_lock)


cdef void wake_parked(Waiter *waiter, int64_t bytes) noexcept nogil:
    cdef Parked *p = <Parked *> waiter.parked
    if <int64_t> (add_counter(&p.arrived_bytes, <uint64_t> bytes) + <uint64_t> bytes) >= load_int64(&p.wanted_bytes):
        queue_woken(p)


cdef void unqueue(Purgatory *home, Parked *p) noexcept nogil:
    # With the lock held; p is in the list.
    if p.previous_woken != NULL:
        p.previous_woken.next_woken = p.next_woken
    else:
        home.first_woken = p.next_woken
    if p.next_woken != NULL:
        p.next_woken.previous_woken = p.previous_woken
    else:
        home.last_woken = p.previous_woken
    p.next_woken = NULL
    p.previous_woken = NULL


cdef Parked *pop_woken(Purgatory *home) noexcept nogil:
    cdef Parked *p
    pthread_mutex_lock(&home.wake_lock)
    p = home.first_woken
    if p != NULL:
        unqueue(home, p)
        # From here on a wake-up queues it again: what happens after this is not lost to the plan about to be made.
        store_int64(&p.wanted_bytes, 0)
        store_int64(<int64_t *> &p.arrived_bytes, 0)
        store_int32(&p.woken, 0)
    pthread_mutex_unlock(&home.wake_lock)
    return p


# ---- parking ----

cdef Parked *parked_create(int32_t watch_capacity) noexcept nogil:
    cdef Parked *p = <Parked *> calloc(1, sizeof(Parked))
    if p == NULL:
        return NULL
    p.waiters = <Waiter *> calloc(watch_capacity + 1, sizeof(Waiter))
    p.partitions = <Partition **> calloc(watch_capacity + 1, sizeof(Partition *))
    p.watch_capacity = watch_capacity
    p.heap_index = -1
    if p.waiters == NULL or p.partitions == NULL:
        parked_free(p)
        return NULL
    return p


cdef void parked_watch(Worker *w, Parked *p, Partition *partition,
                       int64_t seen_state, int64_t seen_offset, bint committed) noexcept nogil:
    cdef Waiter *waiter = &p.waiters[p.watch_count]
    KB_ASSERT(p.watch_count < p.watch_capacity)
    p.home = w.purgatory
    waiter.parked = p
    waiter.committed = committed
    waiter.woken = wake_parked
    partition_retain(partition)
    p.partitions[p.watch_count] = partition
    p.watch_count += 1
    if not partition_add_waiter(partition, waiter, seen_state, seen_offset):
        p.stale = True


cdef void parked_want(Parked *p, int64_t bytes) noexcept nogil:
    store_int64(&p.wanted_bytes, bytes)


cdef bint ensure_room(Purgatory *home, int32_t slot) noexcept nogil:
    cdef int32_t capacity
    cdef void *grown
    if home.count == home.heap_capacity:
        capacity = max(64, home.heap_capacity * 2)
        grown = realloc(home.heap, capacity * sizeof(Parked *))
        if grown == NULL:
            return False
        home.heap = <Parked **> grown
        home.heap_capacity = capacity
    if slot >= home.slot_capacity:
        capacity = max(64, home.slot_capacity)
        while capacity <= slot:
            capacity *= 2
        grown = realloc(home.by_slot, capacity * sizeof(Parked *))
        if grown == NULL:
            return False
        home.by_slot = <Parked **> grown
        memset(home.by_slot + home.slot_capacity, 0, (capacity - home.slot_capacity) * sizeof(Parked *))
        home.slot_capacity = capacity
    return True


cdef bint purgatory_park(Worker *w, Parked *p, const Peer *peer, int64_t deadline_ms) noexcept nogil:
    cdef Purgatory *home = <Purgatory *> w.purgatory
    KB_ASSERT(peer.slot >= 0)
    if home.item_count + p.watch_capacity > PARKED_ITEMS_MAX or not ensure_room(home, peer.slot):
        return False
    home.item_count += p.watch_capacity
    KB_ASSERT(home.by_slot[peer.slot] == NULL)    # one request of a connection at a time
    if p.watch_count == 0:
        p.home = home                             # else parked_watch has said so, and a waking thread may be reading it
    p.peer = peer[0]
    p.deadline_ms = deadline_ms
    home.by_slot[peer.slot] = p
    heap_set(home, home.count, p)
    home.count += 1
    sift_up(home, p.heap_index)
    if p.stale:
        queue_woken(p)
    return True


cdef void parked_free(Parked *p) noexcept nogil:
    # Once every waiter is unlinked no other thread can reach p, so it may leave the woken list for good.
    cdef Purgatory *home = <Purgatory *> p.home
    cdef int32_t i
    for i in range(p.watch_count):
        partition_remove_waiter(p.partitions[i], &p.waiters[i])
        partition_release(p.partitions[i])
    if home != NULL:
        pthread_mutex_lock(&home.wake_lock)
        if p.woken:
            unqueue(home, p)
        pthread_mutex_unlock(&home.wake_lock)
    free(p.waiters)
    free(p.partitions)
    free(p)


cdef void take_out(Purgatory *home, Parked *p) noexcept nogil:
    heap_remove(home, p)
    home.item_count -= p.watch_capacity
    home.by_slot[p.peer.slot] = NULL


cdef bint answer(Worker *w, Purgatory *home, Parked *p, bint expired, Peer *peer_out, Chain *reply) noexcept nogil:
    if not p.complete(w, p, expired, reply):
        return False
    peer_out[0] = p.peer
    take_out(home, p)
    p.drop(p)
    parked_free(p)
    return True


cdef bint purgatory_collect(Worker *w, Peer *peer_out, Chain *reply) noexcept nogil:
    cdef Purgatory *home = <Purgatory *> w.purgatory
    cdef Parked *p
    while True:
        p = pop_woken(home)
        if p == NULL:
            break
        if answer(w, home, p, mono_ms(w.clock) >= p.deadline_ms, peer_out, reply):
            return True
    while home.count > 0 and home.heap[0].deadline_ms <= mono_ms(w.clock):
        p = home.heap[0]
        if answer(w, home, p, True, peer_out, reply):
            return True
        KB_ASSERT(False)                          # an expired request is always answered
    return False


cdef Parked *find_parked(Purgatory *home, const Peer *peer) noexcept nogil:
    cdef Parked *p
    if peer.slot < 0 or peer.slot >= home.slot_capacity:
        return NULL
    p = home.by_slot[peer.slot]
    return p if p != NULL and p.peer.generation == peer.generation else NULL


cdef void purgatory_hasten(Worker *w, const Peer *peer) noexcept nogil:
    cdef Purgatory *home = <Purgatory *> w.purgatory
    cdef Parked *p = find_parked(home, peer)
    if p != NULL and p.deadline_ms > mono_ms(w.clock):
        p.deadline_ms = mono_ms(w.clock)
        sift_up(home, p.heap_index)


cdef void purgatory_forget(Worker *w, const Peer *peer) noexcept nogil:
    cdef Purgatory *home = <Purgatory *> w.purgatory
    cdef Parked *p = find_parked(home, peer)
    if p == NULL:
        return
    take_out(home, p)
    p.drop(p)
    parked_free(p)


# ---- spare blocks ----

cdef Block spare_take(Worker *w) noexcept nogil:
    cdef Purgatory *home = <Purgatory *> w.purgatory
    cdef Block block = home.spare
    home.spare.data = NULL
    home.spare.capacity = 0
    return block


cdef void spare_give(Worker *w, Block block) noexcept nogil:
    cdef Purgatory *home = <Purgatory *> w.purgatory
    if block.capacity > SCRATCH_KEEP_BYTES or home.spare.data != NULL:
        free(block.data)
    else:
        home.spare = block


cdef void block_trim(Block *block, int64_t bytes) noexcept nogil:
    # A spare may come from a far larger request: whoever waits for long keeps only what it uses.
    cdef int64_t capacity = max(4096, bytes)
    cdef void *shrunk
    if block.capacity // 4 < capacity:
        return
    shrunk = realloc(block.data, capacity)
    if shrunk != NULL:
        block.data = <uint8_t *> shrunk
        block.capacity = capacity


cdef bint block_reserve(Block *block, int64_t bytes) noexcept nogil:
    cdef int64_t capacity = max(4096, block.capacity)
    cdef void *grown
    if block.capacity >= bytes:
        return True
    while capacity < bytes:
        capacity *= 2
    grown = realloc(block.data, capacity)
    if grown == NULL:
        return False
    block.data = <uint8_t *> grown
    block.capacity = capacity
    return True
