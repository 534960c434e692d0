# mailbox: what crosses between the network threads and the control loop.
#   Mailbox    requests on their way to Python: a bounded ring and a bell, all loops in, the control loop out
#   Inbox      what one loop is told: replies, closings, new connections, listeners; any thread in, the loop out
#   EventLog   what the control side should log: bounded, coalesced, counted when it overflows
# Owns        the frames and messages under way.
# Threads     each has one mutex, held for a few assignments only; a bell is rung at most once until it is heard.
# Fails by    False: the ring is full or memory ran out; the connection waits and is tried again (nothing is lost).
# Invariants  an entry owns a copy of its frame; whoever takes a Message frees it.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint64_t

from kbroker._core.limits cimport EVENT_TEXT_BYTES
from kbroker._core.net.poller cimport Bell
from kbroker._core.partitions cimport pthread_mutex_t

cdef struct Address:
    int8_t v6
    uint16_t port
    uint8_t host[16]         # an IPv4 address stands in the first four

# ---- to the control loop ----
cdef struct Letter:
    uint64_t token           # see loop.pxd
    int64_t principal
    int32_t listener_index
    int32_t length
    Address address
    uint8_t *frame

cdef struct Mailbox:
    pthread_mutex_t lock
    Letter *ring
    int32_t slots
    int32_t first
    int32_t count
    int64_t bytes_max
    int64_t bytes_held
    int32_t starved          # a loop found it full and wants to be told of room
    int32_t rung
    Bell bell

cdef int mailbox_open(Mailbox *m, int32_t slots, int64_t bytes_max, bint portable) noexcept nogil
cdef void mailbox_close(Mailbox *m) noexcept nogil
# Copies the frame in. The bell is left to mailbox_ring, once a turn.
cdef bint mailbox_post(Mailbox *m, const Letter *letter) noexcept nogil
cdef void mailbox_ring(Mailbox *m) noexcept nogil
# Moves up to `limit` letters out, oldest first, and says how many; the caller frees their frames.
# `wake_loops` is set when a loop is waiting for room.
cdef int32_t mailbox_take(Mailbox *m, Letter *out, int32_t limit, bint *wake_loops) noexcept nogil

# ---- to a loop ----
cdef enum MessageKind:
    REPLY = 0                # answer the posted request `token` with the payload; length -1: it has no answer
    HANG_UP = 1              # close the connection of the posted request
    ADOPT = 2                # a new connection: fd, address, listener_index
    WARMED = 4               # the cold slice of the connection with the key `token` is in memory now
    OPEN_LISTENER = 3        # watch the listening socket `fd` as listener_index
    ARRIVE = 5               # a connection that another loop has handed over: the payload is its Connection (net/relief)

cdef struct Message:
    Message *next
    int32_t kind
    int32_t listener_index
    uint64_t token
    int fd
    Address address
    int8_t close_after       # REPLY: close once it is sent
    int64_t principal        # REPLY: from now on the connection's; -1 leaves it
    int64_t mute_ms          # REPLY: read nothing for so long (KIP-219)
    int64_t length
    # the payload, or HANG_UP's reason, follows

cdef struct Inbox:
    pthread_mutex_t lock
    Message *first
    Message *last
    int32_t rung
    Bell bell

cdef int inbox_open(Inbox *i, bint portable) noexcept nogil
cdef void inbox_close(Inbox *i) noexcept nogil
cdef Message *message_new(int32_t kind, const uint8_t *payload, int64_t length) noexcept nogil    # NULL: no memory
cdef void inbox_put(Inbox *i, Message *m) noexcept nogil
cdef void inbox_put_all(Inbox *i, Message *first, Message *last) noexcept nogil       # a run of them, linked by `next`
cdef void inbox_ring(Inbox *i) noexcept nogil
cdef Message *inbox_take(Inbox *i) noexcept nogil               # all of them, oldest first

cdef inline uint8_t *message_payload(Message *m) noexcept nogil:
    return <uint8_t *> (m + 1)

# ---- to the log ----
cdef enum EventKind:
    CLOSED = 0               # a connection was closed for a reason worth knowing
    REFUSED = 1              # a connection was turned away
    ACCEPT_PAUSED = 2        # no connections are accepted for now

cdef struct Event:
    int32_t kind
    int32_t count            # the same thing happened so often in a row
    Address address          # of the last one
    char text[EVENT_TEXT_BYTES]

cdef struct EventLog:
    pthread_mutex_t lock
    Event *ring
    int32_t first
    int32_t count
    uint64_t dropped

cdef int events_open(EventLog *e) noexcept nogil
cdef void events_close(EventLog *e) noexcept nogil
cdef void events_note(EventLog *e, int32_t kind, const char *text, const Address *address) noexcept nogil
cdef bint events_take(EventLog *e, Event *out) noexcept nogil
