# The cache of fetch sessions: a map from id, and a list by last use whose head is the next to be evicted.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from kbroker._core.c.prelude cimport load_int32
from kbroker._core.clock cimport mono_us
from kbroker._core.errors cimport Err
from kbroker._core.limits cimport (
    FETCH_PARTITIONS_MAX, FETCH_SESSION_IDLE_MS, FETCH_SESSION_PARTITIONS_MAX, TOPIC_NAME_MAX_BYTES,
)
from kbroker._core.partitions cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)

cdef enum:
    ID_BUCKETS = 1024
    FIRST_BUCKETS = 16

cdef struct Sessions:
    pthread_mutex_t lock
    Session *by_session_id[1024]
    Session *oldest
    Session *newest
    int32_t count
    int32_t max_count
    int64_t partition_count    # over all sessions
    uint64_t next_serial
    uint64_t random


cdef void *sessions_create(int32_t sessions_max) noexcept nogil:
    cdef Sessions *cache = <Sessions *> calloc(1, sizeof(Sessions))
    if cache == NULL:
        return NULL
    pthread_mutex_init(&cache.lock, NULL)
    cache.max_count = sessions_max
    cache.next_serial = 1
    cache.random = (<uint64_t> mono_us() << 16) ^ <uint64_t> <size_t> cache | 1
    return cache


cdef void sessions_destroy(void *sessions) noexcept nogil:
    cdef Sessions *cache = <Sessions *> sessions
    if cache == NULL:
        return
    while cache.oldest != NULL:
        session_drop(cache, cache.oldest)
    pthread_mutex_destroy(&cache.lock)
    free(cache)


cdef int32_t sessions_count(void *sessions) noexcept nogil:
    return load_int32(&(<Sessions *> sessions).count)


cdef void session_unlock(void *sessions) noexcept nogil:
    pthread_mutex_unlock(&(<Sessions *> sessions).lock)


# ---- the cache, locked ----

cdef Session *find(Sessions *cache, int32_t id) noexcept nogil:
    cdef Session *s = cache.by_session_id[<uint32_t> id % ID_BUCKETS]
    while s != NULL and s.id != id:
        s = s.chain
    return s


cdef void unlink_age(Sessions *cache, Session *s) noexcept nogil:
    if s.older != NULL:
        s.older.newer = s.newer
    else:
        cache.oldest = s.newer
    if s.newer != NULL:
        s.newer.older = s.older
    else:
        cache.newest = s.older


cdef void link_newest(Sessions *cache, Session *s, int64_t now_ms) noexcept nogil:
    s.last_used_ms = now_ms
    s.newer = NULL
    s.older = cache.newest
    if cache.newest != NULL:
        cache.newest.newer = s
    else:
        cache.oldest = s
    cache.newest = s


cdef void session_drop(void *sessions, Session *s) noexcept nogil:
    cdef Sessions *cache = <Sessions *> sessions
    cdef Session **at = &cache.by_session_id[<uint32_t> s.id % ID_BUCKETS]
    cdef SessionPartition *p = s.first
    cdef SessionPartition *following
    while at[0] != s:
        at = &at[0].chain
    at[0] = s.chain
    unlink_age(cache, s)
    cache.count -= 1
    cache.partition_count -= s.size
    while p != NULL:
        following = p.next
        free(p)
        p = following
    free(s.buckets)
    free(s)


cdef int32_t fresh_id(Sessions *cache) noexcept nogil:
    # Any positive id not in use. Ids are no secret, but must not repeat soon: a client that kept an old one finds nothing.
    cdef int32_t id
    while True:
        cache.random ^= cache.random << 13
        cache.random ^= cache.random >> 7
        cache.random ^= cache.random << 17
        id = <int32_t> (cache.random >> 33)
        if id != 0 and find(cache, id) == NULL:
            return id


cdef inline int32_t next_epoch(int32_t epoch) noexcept nogil:
    return 1 if epoch == 0x7fffffff else epoch + 1


cdef Session *session_step(void *sessions, int32_t id, int32_t epoch, bint by_id, int64_t now_ms,
                           int16_t *error) noexcept nogil:
    cdef Sessions *cache = <Sessions *> sessions
    cdef Session *s
    pthread_mutex_lock(&cache.lock)
    s = find(cache, id)
    error[0] = Err.NONE
    if s == NULL:
        error[0] = Err.FETCH_SESSION_ID_NOT_FOUND
    elif s.epoch != epoch:
        error[0] = Err.INVALID_FETCH_SESSION_EPOCH
    elif s.by_id != by_id:
        error[0] = Err.FETCH_SESSION_TOPIC_ID_ERROR
    if error[0] != Err.NONE:
        pthread_mutex_unlock(&cache.lock)
        return NULL
    s.epoch = next_epoch(epoch)
    unlink_age(cache, s)
    link_newest(cache, s, now_ms)
    return s


cdef Session *session_resume(void *sessions, int32_t id, uint64_t serial, int32_t epoch) noexcept nogil:
    cdef Sessions *cache = <Sessions *> sessions
    cdef Session *s
    pthread_mutex_lock(&cache.lock)
    s = find(cache, id)
    if s == NULL or s.serial != serial or s.epoch != epoch:
        pthread_mutex_unlock(&cache.lock)
        return NULL
    return s


cdef Session *session_create(void *sessions, bint by_id, int64_t now_ms) noexcept nogil:
    cdef Sessions *cache = <Sessions *> sessions
    cdef Session *s = NULL
    pthread_mutex_lock(&cache.lock)
    if cache.count >= cache.max_count and cache.oldest != NULL and \
            now_ms - cache.oldest.last_used_ms > FETCH_SESSION_IDLE_MS:
        session_drop(cache, cache.oldest)
    if cache.count < cache.max_count:
        s = <Session *> calloc(1, sizeof(Session))
    if s != NULL:
        s.buckets = <SessionPartition **> calloc(FIRST_BUCKETS, sizeof(SessionPartition *))
        if s.buckets == NULL:
            free(s)
            s = NULL
    if s == NULL:
        pthread_mutex_unlock(&cache.lock)
        return NULL
    s.mask = FIRST_BUCKETS - 1
    s.by_id = by_id
    s.id = fresh_id(cache)
    s.epoch = 1
    s.serial = cache.next_serial
    cache.next_serial += 1
    s.chain = cache.by_session_id[<uint32_t> s.id % ID_BUCKETS]
    cache.by_session_id[<uint32_t> s.id % ID_BUCKETS] = s
    cache.count += 1
    link_newest(cache, s, now_ms)
    return s


cdef void session_close(void *sessions, int32_t id) noexcept nogil:
    cdef Sessions *cache = <Sessions *> sessions
    cdef Session *s
    pthread_mutex_lock(&cache.lock)
    s = find(cache, id)
    if s != NULL:
        session_drop(cache, s)
    pthread_mutex_unlock(&cache.lock)


cdef int32_t session_id(const Session *s) noexcept nogil:
    return s.id


cdef int32_t session_epoch(const Session *s) noexcept nogil:
    return s.epoch


cdef uint64_t session_serial(const Session *s) noexcept nogil:
    return s.serial


cdef int32_t session_size(const Session *s) noexcept nogil:
    return s.size


cdef SessionPartition *session_first(const Session *s) noexcept nogil:
    return s.first


# ---- the partitions of one session ----

cdef uint32_t hash_key(const SessionTopic *topic, int32_t index) noexcept nogil:
    cdef uint32_t h = 2166136261u
    cdef const uint8_t *p = topic.id if topic.id != NULL else topic.name
    cdef int32_t length = 16 if topic.id != NULL else topic.name_length
    cdef int32_t i
    for i in range(length):
        h = (h ^ p[i]) * 16777619u
    h = (h ^ <uint32_t> index) * 16777619u
    return h ^ (h >> 15)


cdef bint matches(const SessionPartition *p, const SessionTopic *topic, int32_t index) noexcept nogil:
    if p.index != index:
        return False
    if topic.id != NULL:
        return memcmp(p.id, topic.id, 16) == 0
    return p.name_length == topic.name_length and memcmp(p.name, topic.name, topic.name_length) == 0


cdef inline uint32_t hash_partition(const SessionPartition *p) noexcept nogil:
    cdef SessionTopic topic
    topic.id = <const uint8_t *> p.id if p.name == NULL else NULL
    topic.name = p.name
    topic.name_length = p.name_length
    return hash_key(&topic, p.index)


cdef void grow_buckets(Session *s) noexcept nogil:
    # Chains grow longer when there is no memory for more buckets; nothing else does.
    cdef uint32_t mask = s.mask * 2 + 1
    cdef uint32_t slot
    cdef SessionPartition **buckets = <SessionPartition **> calloc(mask + 1, sizeof(SessionPartition *))
    cdef SessionPartition *p = s.first
    if buckets == NULL:
        return
    while p != NULL:
        slot = hash_partition(p) & mask
        p.chain = buckets[slot]
        buckets[slot] = p
        p = p.next
    free(s.buckets)
    s.buckets = buckets
    s.mask = mask


cdef void unlink_order(Session *s, SessionPartition *p) noexcept nogil:
    if p.previous != NULL:
        p.previous.next = p.next
    else:
        s.first = p.next
    if p.next != NULL:
        p.next.previous = p.previous
    else:
        s.last = p.previous


cdef void link_last(Session *s, SessionPartition *p) noexcept nogil:
    p.next = NULL
    p.previous = s.last
    if s.last != NULL:
        s.last.next = p
    else:
        s.first = p
    s.last = p


cdef void session_move_last(Session *s, SessionPartition *p) noexcept nogil:
    unlink_order(s, p)
    link_last(s, p)


cdef SessionPartition *session_put(void *sessions, Session *s, const SessionTopic *topic, int32_t index) noexcept nogil:
    cdef Sessions *cache = <Sessions *> sessions
    cdef uint32_t slot = hash_key(topic, index) & s.mask
    cdef SessionPartition *p = s.buckets[slot]
    cdef int32_t name_length = topic.name_length if topic.id == NULL else 0
    while p != NULL and not matches(p, topic, index):
        p = p.chain
    if p != NULL:
        return p
    if name_length > TOPIC_NAME_MAX_BYTES or s.size >= FETCH_PARTITIONS_MAX or \
            cache.partition_count >= FETCH_SESSION_PARTITIONS_MAX:
        return NULL
    p = <SessionPartition *> malloc(sizeof(SessionPartition) + name_length)
    if p == NULL:
        return NULL
    memset(p, 0, sizeof(SessionPartition))
    if topic.id != NULL:
        memcpy(p.id, topic.id, 16)
    else:
        p.name = <uint8_t *> (p + 1)
        p.name_length = name_length
        memcpy(p.name, topic.name, name_length)
    p.index = index
    p.high_watermark = -1
    p.log_start_offset = -1
    p.chain = s.buckets[slot]
    s.buckets[slot] = p
    link_last(s, p)
    s.size += 1
    cache.partition_count += 1
    if s.size > 2 * <int32_t> s.mask:
        grow_buckets(s)
    return p


cdef void session_forget(void *sessions, Session *s, const SessionTopic *topic, int32_t index) noexcept nogil:
    cdef SessionPartition **at = &s.buckets[hash_key(topic, index) & s.mask]
    cdef SessionPartition *p
    while at[0] != NULL and not matches(at[0], topic, index):
        at = &at[0].chain
    p = at[0]
    if p == NULL:
        return
    at[0] = p.chain
    unlink_order(s, p)
    free(p)
    s.size -= 1
    (<Sessions *> sessions).partition_count -= 1
