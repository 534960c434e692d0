# loop: one network thread's life: wait, receive, answer or hand on, send; and what the threads of one broker share.
# Owns        its poller, connections, buffers, chains and counters. Loop 0 also accepts, for all loops in turn.
# Called by   core, which starts a thread per loop, and tells loops things through their inbox.
# Threads     a Loop: its own thread; counters are read by anyone. Shared: see each field.
# Invariants  never takes the GIL. A request is handled with the ApiTable and the partition Tables of one turn.
#             Replies leave in request order: a connection with a parked or posted request handles nothing else meanwhile.
#             A connection is read only while it may also be answered: back-pressure reaches the client through TCP.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

from kbroker._core.api.request cimport ApiTable, Outcome, Request, Worker
from kbroker._core.c.prelude cimport load_counter
from kbroker._core.clock cimport Clock
from kbroker._core.limits cimport LISTENERS_MAX, VIEWS_MAX
from kbroker._core.net.budget cimport Budget
from kbroker._core.net.connection cimport Connection, Link, Receiver
from kbroker._core.net.egress cimport Egress, Transform
from kbroker._core.net.listener cimport Admission, Listener
from kbroker._core.net.mailbox cimport Address, EventLog, Inbox, Mailbox
from kbroker._core.net.poller cimport Bell, Poller
from kbroker._core.net.warmer cimport Errand, Warmer, pthread_t
from kbroker._core.partitions cimport Table, View, pthread_mutex_t
from kbroker._core.wire.chain cimport Chain

cdef enum CloseReason:
    BY_PEER = 0              # the stream ended between frames
    BY_RESET = 1
    FRAME_SIZE = 2           # negative, too small, or above socket.request.max.bytes
    REFUSED_REQUEST = 3      # dispatch or a hook said CLOSE
    BY_CONTROL = 4
    IDLE = 5                 # connections.max.idle.ms
    TOO_MANY = 6             # max.connections.per.ip
    DRAINED = 7
    STOPPED = 8
    NO_ROOM = 9              # memory ran out
    UNSENDABLE = 10          # a reply's file slice could not be read
    MEMORY_SHORT = 11        # it held what others needed: see net/pressure
    CLOSE_REASONS = 12

cdef enum:
    API_KEYS = 128

# Written by the loop alone, read by anyone.
cdef struct Counters:
    uint64_t turns
    uint64_t bytes_in
    uint64_t bytes_out
    uint64_t accepted
    uint64_t closed[CLOSE_REASONS]
    uint64_t requests[API_KEYS + 1]      # the last: keys beyond
    uint64_t parked
    uint64_t posted
    uint64_t stalled                     # posts that found the mailbox full
    uint64_t starved                     # frames that waited for memory
    uint64_t moved                       # connections handed to another loop

# Called before and after dispatch, in the network thread; NULL by default. For quotas and injected faults.
cdef struct Hooks:
    void *context
    bint (*before)(void *context, Request *r) noexcept nogil                      # False: close, r.reason says why
    int64_t (*after)(void *context, Request *r, Outcome outcome, Chain *reply) noexcept nogil   # ms to mute for; a posted request is muted by its reply

cdef extern from *:
    """
    #define KB_SERIAL_MASK 0xfffffffffULL
    """
    const uint64_t SERIAL_MASK "KB_SERIAL_MASK"

# A posted request's name outside: loop (6 bits), slot (22) and serial (36). A token is good for one reply.
cdef inline uint64_t make_token(int32_t loop_index, int32_t slot, uint64_t serial) noexcept nogil:
    return (<uint64_t> loop_index << 58) | (<uint64_t> slot << 36) | serial

cdef inline int32_t token_loop(uint64_t token) noexcept nogil:
    return <int32_t> (token >> 58)

cdef inline int32_t token_slot(uint64_t token) noexcept nogil:
    return <int32_t> ((token >> 36) & 0x3fffff)

cdef inline uint64_t token_serial(uint64_t token) noexcept nogil:
    return token & SERIAL_MASK

cdef struct Loop

cdef struct Shared:
    # settings: fixed before the first loop starts
    Clock *clock
    int32_t node_id
    int32_t request_max_bytes
    int64_t idle_max_ms                  # negative: never
    bint portable
    int32_t fetch_max_bytes
    int8_t force_fallback_codecs          # test switch: bit per codec
    Hooks hooks
    void *sessions                       # fetch_session's cache
    # who listens: written by core before the listener's message is put
    int32_t listener_view[LISTENERS_MAX]
    const Transform *listener_transform[LISTENERS_MAX]      # NULL: plain
    void *transform_context[LISTENERS_MAX]
    View *views[VIEWS_MAX]
    int32_t view_count
    # published
    pthread_mutex_t apis_lock
    ApiTable *apis                       # under apis_lock; NULL: nothing is published, everything is posted
    int32_t apis_version                 # counts publications
    # between threads
    Budget requests                      # what clients have sent and is not answered yet
    int64_t reply_bytes_max              # unsent replies of all loops: see reply_bytes_allowed
    Mailbox mailbox
    EventLog events
    Admission admission
    Warmer warmer
    Loop **loops
    int32_t regular_count                # loops that get new connections; one further loop is the relief (net/relief)
    bint move_always                     # test switch: a connection moves after each of its requests
    uint64_t in_transit                  # connections on their way between two loops
    int32_t loop_count
    int32_t draining
    int32_t stopping
    Bell emptied                         # rung by a draining loop without connections

cdef struct Loop:
    Shared *shared
    int32_t index
    pthread_t thread
    int32_t open_count                   # connections; read by anyone
    Poller poller
    Inbox inbox
    Receiver receiver
    Egress egress
    Worker worker
    int32_t apis_version                 # of worker.apis, which the loop holds a reference to
    Table *tables[VIEWS_MAX]             # taken in this turn
    Listener listeners[LISTENERS_MAX]
    int32_t listener_count               # loop 0 only
    int64_t accept_again_ms              # system time; 0: accepting
    bint accept_full                     # it waits for max.connections
    int32_t next_loop                    # loop 0: who gets the next connection
    Connection **slots
    int32_t slot_count
    int32_t slot_capacity
    Link free                            # closed connections, by their `turn` link
    Link idle
    Link turn
    Link held
    Link starved
    Link behind
    Link heavy                           # connections with large requests or replies in this window of net/relief
    Link leaving                         # connections that net/relief moves as soon as they are free
    int64_t window_us                    # when the window of net/relief began
    int64_t waited_us                    # how long the thread has waited for its poller in this window
    int32_t busy_percent                 # of the last window; read by other loops
    int64_t measured_us                  # when that window ended
    int64_t reply_bytes                  # memory of the replies of those behind
    int64_t patrol_ms                    # when slow senders are looked for again
    uint64_t last_generation
    uint64_t last_serial
    int64_t now_ms                       # of this turn, by the broker's clock
    int64_t held_due_ms                  # when the first muted connection may go on; INT64_MAX: none is muted
    bint posted                          # in this turn
    int32_t draining                     # set by the loop, read by anyone
    Counters counters

cdef inline int64_t reply_bytes_allowed(const Loop *l) noexcept nogil:
    # The relief loop may hold as much as each other loop; the others share what it does not hold.
    cdef const Shared *s = l.shared
    if l.index == s.regular_count:
        return s.reply_bytes_max // s.loop_count
    if s.loop_count == s.regular_count:
        return s.reply_bytes_max // s.regular_count
    return (s.reply_bytes_max - <int64_t> load_counter(<const uint64_t *> &s.loops[s.regular_count].reply_bytes)) // s.regular_count

cdef int loop_open(Loop *l, Shared *shared, int32_t index) noexcept nogil      # 0 or -errno
cdef void loop_close(Loop *l) noexcept nogil                                   # after its thread has ended; closes everything
cdef void loop_run(Loop *l) noexcept nogil                                     # returns when `stopping` is set
cdef void apis_release(ApiTable *t) noexcept nogil
cdef void tell_relieved(void *shared) noexcept nogil                           # the budget's `relieved`
cdef void tell_warmed(void *shared, const Errand *errand) noexcept nogil       # the warmer's `done`
