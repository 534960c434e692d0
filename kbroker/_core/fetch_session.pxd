# fetch_session: incremental fetch state (KIP-227), shared by all network threads of one broker.
# Owns        the sessions and their partitions, in a cache of bounded size.
# Called by   api/fetch; net/core creates and destroys the cache and lends it as Worker.sessions.
# Threads     any; one mutex around the cache. It is a leaf: nothing else is locked while it is held.
# Fails by    a Kafka error code, or no session (id 0) when the cache is full or memory ran out.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef void *sessions_create(int32_t sessions_max) noexcept nogil      # max.incremental.fetch.session.cache.slots; NULL: no memory
cdef void sessions_destroy(void *sessions) noexcept nogil
cdef int32_t sessions_count(void *sessions) noexcept nogil           # without the lock

# One partition that a session remembers. Read it only while the cache is locked.
cdef struct SessionPartition:
    SessionPartition *next         # in the session's order, which is the order of answers
    SessionPartition *previous
    SessionPartition *chain        # same bucket
    uint8_t id[16]                 # topic id, or
    uint8_t *name                  # topic name (NULL: by id)
    int32_t name_length
    int32_t index
    int32_t max_bytes
    int32_t current_leader_epoch
    int32_t last_fetched_epoch
    int64_t offset
    # What the last answer said; -1: say it again.
    int64_t high_watermark
    int64_t log_start_offset

# For this room's eyes; others use the functions below.
cdef struct Session:
    int32_t id
    int32_t epoch              # the one the next request must carry
    uint64_t serial            # never used twice, unlike the id
    bint by_id
    int64_t last_used_ms
    Session *chain             # same bucket
    Session *older             # list by last use
    Session *newer
    SessionPartition *first
    SessionPartition *last
    SessionPartition **buckets
    uint32_t mask
    int32_t size

cdef struct SessionTopic:          # how a request names a topic
    const uint8_t *id              # 16 bytes, or NULL: by name
    const uint8_t *name
    int32_t name_length

# Each of the four either returns with the cache locked and a session, or unlocked and NULL. session_unlock ends it.
# Incremental request: finds the session, checks and moves its epoch. *error: 70, 71, 106.
cdef Session *session_step(void *sessions, int32_t id, int32_t epoch, bint by_id, int64_t now_ms, int16_t *error) noexcept nogil
# Answer of an incremental request: the session as session_step left it; NULL when another request moved it or it was evicted.
cdef Session *session_resume(void *sessions, int32_t id, uint64_t serial, int32_t epoch) noexcept nogil
# Answer of a full request that asked for a session; NULL when the cache is full of sessions in use.
cdef Session *session_create(void *sessions, bint by_id, int64_t now_ms) noexcept nogil
cdef void session_unlock(void *sessions) noexcept nogil
cdef void session_close(void *sessions, int32_t id) noexcept nogil        # takes the lock itself; unknown ids are fine

# With the cache locked:
cdef int32_t session_id(const Session *s) noexcept nogil
cdef int32_t session_epoch(const Session *s) noexcept nogil
cdef uint64_t session_serial(const Session *s) noexcept nogil
cdef int32_t session_size(const Session *s) noexcept nogil
cdef SessionPartition *session_first(const Session *s) noexcept nogil
cdef SessionPartition *session_put(void *sessions, Session *s, const SessionTopic *topic, int32_t index) noexcept nogil  # found or added last; NULL: no room
cdef void session_forget(void *sessions, Session *s, const SessionTopic *topic, int32_t index) noexcept nogil
cdef void session_move_last(Session *s, SessionPartition *p) noexcept nogil
cdef void session_drop(void *sessions, Session *s) noexcept nogil         # and stays locked
