# fetch: Fetch (1), versions 4-18, whole: full and incremental, by name (to v12) and by topic id (v13+).
# Owns        a request's items and the segment references of its plan, while it is answered or parked.
# Called by   dispatch.
# Threads     one network thread.
# v7+: sessions (KIP-227). v9+: current leader epoch (KIP-320). v11+: followers may answer (KIP-392). v12+: flexible, diverging
# epochs (KIP-595). v13+: topic ids (KIP-516). v15+: ReplicaState tag (KIP-903). v16+: CurrentLeader, NodeEndpoints (KIP-951).
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from kbroker._core.api.request cimport Outcome, Request, Worker
from kbroker._core.partitions cimport Partition, ReadFound, Table, Topic
from kbroker._core.purgatory cimport Block
from kbroker._core.wire.chain cimport Chain

cdef struct FetchItem:
    # what was asked
    Topic *topic                   # NULL: unknown
    uint8_t id[16]
    const uint8_t *name            # of the request or the table; unknown names of a session: see names_at
    int32_t name_length
    int32_t names_at               # offset in work.names, -1: `name` is good
    int32_t index
    int32_t max_bytes
    int32_t current_leader_epoch
    int32_t last_fetched_epoch
    int64_t offset
    # what came of it
    Partition *partition           # NULL: unknown
    int16_t error                  # of the look-up; the plan has its own
    bint listed                    # in the answer
    void *remembered               # the session's entry, good as long as session_resume finds the session
    ReadFound found

cdef enum SessionUse:
    SESSIONLESS = 0
    NEW_SESSION = 1
    INCREMENTAL = 2

cdef struct FetchWork:
    int16_t version
    bint flexible
    int32_t correlation_id
    int32_t replica_id
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    int8_t isolation_level
    int32_t asked_session_id
    int32_t asked_session_epoch
    const uint8_t *forgotten       # where that array starts in the frame
    SessionUse use
    int32_t session_id
    int32_t session_epoch          # the session's after this request
    uint64_t session_serial
    int16_t error                  # top level
    Table *table                   # of the turn that began it; a parked work holds a reference
    Block block                    # the items
    FetchItem *items
    int32_t count
    Block names                    # copies of unknown topics' names
    int32_t names_used

# Reads the body into work.items, resolving nothing. False: truncated or over a bound, with a reason.
cdef bint read_fetch(Request *r, FetchWork *work, const char **reason) noexcept nogil
cdef Outcome fetch(Worker *w, Request *r, Chain *reply) noexcept nogil
