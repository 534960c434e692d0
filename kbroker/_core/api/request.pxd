# request: what net hands to the api rooms, and what they answer. The contract between the two; no code.
# Threads     one network thread.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from kbroker._core.clock cimport Clock
from kbroker._core.partitions cimport Table, View
from kbroker._core.record.compression cimport Scratch
from kbroker._core.wire.chain cimport Chain

cdef enum Outcome:
    READY = 0        # the chain holds the whole reply (size and header included); send it in its turn
    SILENT = 1       # acks=0: nothing to send, go on with the next frame
    PARKED = 2       # purgatory holds the request; the connection waits
    POST = 3         # hand the frame to the control loop; the connection waits
    CLOSE = 4        # broken or refused: close, with `reason` logged
    HELD = 5         # a Produce in the worker's run: run_settle tells its true outcome

# Which connection a parked or posted request belongs to, safe to keep after the connection is gone.
cdef struct Peer:
    int32_t loop_index
    int32_t slot             # index in the loop's connection table
    uint64_t generation      # that slot's generation: a stale Peer finds nobody

cdef struct Request:
    uint8_t *frame           # header and body, without the four size bytes; writable (batches are stamped in place)
    int32_t length
    int16_t api_key
    int16_t api_version
    int32_t correlation_id
    const uint8_t *client_id # NULL: null
    int32_t client_id_length
    const uint8_t *body
    int32_t body_length
    bint flexible
    Peer peer
    int32_t listener_index
    View *view               # the listener's cluster
    int64_t principal        # 0: anonymous; else the id the control side gave it
    const char *reason       # static text, set by whoever answers CLOSE

# Pre-encoded ApiVersions bodies, published by the control side; [version] for 0..4, [5] = the fallback (v0 body, error 35).
cdef struct ApiTable:
    int32_t references
    uint8_t *bodies[6]
    int32_t lengths[6]
    # per api key: lowest and highest version this node parses (-1: not served); native[key]: answered in _core
    int16_t min_version[128]
    int16_t max_version[128]
    int16_t flexible_from[128]   # first flexible request version; 32767: none
    int8_t native_key[128]

# What one network thread lends to the api rooms.
cdef struct Worker:
    int32_t loop_index
    Clock *clock
    Scratch scratch          # decompression
    ApiTable *apis           # of this turn
    Table *table             # of this turn, for the request's view
    void *purgatory          # api/purgatory's, per loop
    void *run                # api/produce's, per loop
    void *sessions           # fetch_session's cache, per broker
    void *shared             # the Core: counters, settings
    int32_t node_id
    int32_t fetch_max_bytes
    int8_t force_fallback_codecs     # test switch: bit per codec
