# fetch_request: what a Fetch asks, read by hand in every version from 4 to 18.
# Owns        nothing but the shape of the work; api/fetch owns the memory.
# Called by   api/fetch.
# Threads     one network thread.
# Fails by    False with a reason: truncated, or more partitions than FETCH_PARTITIONS_MAX. Property tests hold it to the plan codec.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from kbroker._core.api.request cimport Request
from kbroker._core.fetch_session cimport Session, SessionTopic
from kbroker._core.log.txn_index cimport AbortedTxn
from kbroker._core.partitions cimport Partition, ReadFound, Table, Topic
from kbroker._core.purgatory cimport Block
from kbroker._core.wire.cursor cimport Cursor

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
    AbortedTxn *aborted            # that a reader of the slice must know of; the request's memory, or NULL
    int32_t aborted_count

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
# Walks ForgottenTopicsData; with a session (and its cache locked) it also does what it says.
cdef void read_forgotten(Cursor *c, const FetchWork *work, void *sessions, Session *session) noexcept nogil
cdef FetchItem *add_item(FetchWork *work) noexcept nogil                       # NULL: no room
cdef void topic_key(const FetchWork *work, const FetchItem *item, SessionTopic *topic) noexcept nogil
