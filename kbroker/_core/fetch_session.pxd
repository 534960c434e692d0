# fetch_session: incremental fetch state (KIP-227), shared by all network threads of one broker.
# Owns        the sessions and their partitions, in a cache of bounded size.
# Called by   api/fetch; net/core creates and destroys the cache and lends it as Worker.sessions.
# Threads     any; one mutex around the cache. It is a leaf: nothing else is locked while it is held.
# Fails by    a Kafka error code, or no session (id 0) when the cache is full or memory ran out.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

cdef void *sessions_create(int32_t sessions_max) noexcept nogil      # max.incremental.fetch.session.cache.slots; NULL: no memory
cdef void sessions_destroy(void *sessions) noexcept nogil
