# connection: one client: frames in, ordered replies out, and where the two stand.
# Owns        its socket, the buffer of what has arrived and cannot be handled yet, its unsent replies.
# Called by   net/loop.
# Threads     one network thread at a time; net/relief moves it between turns.
# Returns     connection_receive: bytes, 0 at the end of the stream, or -errno. Never raises, never takes the GIL.
# Invariants  own[start:filled] has arrived and is not handled; without such bytes there is no buffer, so an idle connection
#             costs its struct and nothing more. A buffer is never larger than the pool's class for twice what has arrived
#             (or LARGE_BUFFER_FIRST_BYTES after a large frame), whatever size a frame claims. Bytes move only in
#             connection_keep, connection_receive, connection_admit and connection_tighten, never while a request is handled.
#             `charged` is what `own` costs the budget: nothing up to the smallest buffer, else its capacity; what a frame claims
#             costs nothing. A buffer that is full before its frame is whole grows as it is kept; if the budget has no room for
#             that, its connection starves: it is not read until connection_admit.
#             A connection has at most one request with the purgatory or the control loop: `waiting` says which. Of commits and
#             heartbeats that arrived together the control loop has several, with serials in a row; they are answered in order.
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t

from kbroker._core.net.budget cimport Budget
from kbroker._core.net.egress cimport Outflow, Transform
from kbroker._core.net.mailbox cimport Address, Message

cdef enum:
    BUFFER_CLASSES = 11              # 4 KiB, doubling, to 4 MiB; larger ones are not kept

cdef enum Waiting:
    NO_REQUEST = 0
    PARKED_REQUEST = 1               # purgatory has it
    POSTED_REQUEST = 2               # the control loop has it
    STALLED_REQUEST = 3              # the control loop shall have it: the mailbox was full, the frame is the first in `own`

cdef enum Closing:
    CLOSE_WHEN_SENT = 1
    PARTING = 2                      # our half is closed; what still comes is thrown away until everything sent has arrived

cdef struct Connection

cdef struct Receiver:                # what one loop receives with
    uint8_t *chunk                   # RECEIVE_CHUNK_BYTES, shared: most frames arrive, are handled and are gone within it
    void *pool[BUFFER_CLASSES]       # idle buffers, each beginning with a pointer to the next
    bint drained                     # the last receive got less than it had room for: the socket is empty
    int64_t pooled_bytes
    int64_t now_ms                   # of this turn
    Budget *budget
    int64_t beyond_max               # the largest frame: what may be missing of all frames that go beyond the budget, or of one
    int64_t beyond_bytes
    int64_t lent_bytes               # held by connections

cdef struct Link:                    # a place in one of the loop's lists
    Link *next
    Link *previous
    Connection *owner

cdef struct Connection:
    int fd                           # -1: free
    int32_t slot
    uint64_t generation
    int8_t interest                  # what the poller was told
    int8_t waiting
    int8_t together                  # what is posted are commits and heartbeats: more of them may follow
    int8_t long_poll                 # the parked request is a Fetch: a drain does not wait for it
    int8_t warming                   # the warmer reads the next slice: nothing is sent meanwhile
    int8_t closing                   # CLOSE_WHEN_SENT, PARTING; 0: it stays
    int8_t more                      # `own` may hold whole frames that had to wait
    int8_t large                     # the last frame was: receive into `own`, to the frame's end
    int8_t close_reason              # of `closing`
    int8_t starved                   # `own` is full, and the rest of its frame waits for memory
    int32_t listener_index
    int64_t principal                # 0: anonymous
    uint64_t serial                  # of the posted request, or the first of them: a stale token finds another one
    int32_t awaited                  # posted requests that are not answered yet
    Message *early                   # what the control loop said to later ones of them, by serial
    int64_t muted_until_ms           # 0: not muted
    int64_t active_ms                # last byte in or out
    uint8_t *own
    int64_t capacity
    int64_t start
    int64_t filled
    int64_t charged
    int64_t beyond                   # of Receiver.beyond_bytes; 0: it keeps to the budget
    int64_t begun_ms                 # when the first byte in `own` came, while it is charged
    int64_t due_ms                   # its place among the starved: the less is missing of it, the earlier
    int64_t paced_ms                 # when its client was last seen to be on time, and
    int64_t paced_bytes              # how much of what lies in `own` had come by then: see net/pressure
    int64_t reply_bytes              # memory of `out` while its reader is behind
    Outflow out
    const Transform *transform       # NULL: plain
    void *transform_state
    Address address
    Link idle                        # by active_ms, oldest first
    Link turn                        # has more to do next turn
    Link held                        # waits for the mailbox, or for muted_until_ms
    Link starving                    # waits for memory; by due_ms
    Link heavy                       # had large requests or replies in this window of net/relief
    Link leaving                     # moves to another loop as soon as nothing refers to its slot
    int32_t own_loop                 # the loop that it was given to when it was accepted
    int64_t heavy_ms                 # when it last had a large request or reply
    Link behind                      # has replies that the socket did not take; the longest without taking anything first

cdef int receiver_open(Receiver *r, Budget *budget, int64_t frame_max) noexcept nogil
cdef void receiver_close(Receiver *r) noexcept nogil
# Receives once. On success at[0:length[0]] is everything unhandled, in one run: in the loop's chunk or in `own`.
cdef int64_t connection_receive(Connection *c, Receiver *r, uint8_t **at, int64_t *length) noexcept nogil
# Keeps the unhandled rest of such a run; with length 0 the buffer is given back. False: no memory. `starved` may be set then.
cdef bint connection_keep(Connection *c, Receiver *r, uint8_t *at, int64_t length) noexcept nogil
# The starved frame may grow, within the budget or beyond it. 1: it has; 0: no room yet; -ENOMEM.
cdef int connection_admit(Connection *c, Receiver *r) noexcept nogil
cdef void connection_tighten(Connection *c, Receiver *r) noexcept nogil      # what is not used of a large first buffer is given back
# Writes why the four bytes at `at` are no frame size: another protocol's first bytes (TLS, HTTP), or out of bounds.
cdef void describe_size(const uint8_t *at, int64_t request_max, char *text, size_t room) noexcept nogil
# Forgets what was posted: its tokens are good for nothing now.
cdef void connection_unpost(Connection *c) noexcept nogil
cdef void connection_pace(Connection *c, Receiver *r) noexcept nogil         # its client is on time as of now

cdef inline void list_init(Link *head) noexcept nogil:
    head.next = head
    head.previous = head
    head.owner = NULL

cdef inline bint linked(const Link *l) noexcept nogil:
    return l.next != NULL

cdef inline void list_append(Link *head, Link *l) noexcept nogil:
    l.next = head
    l.previous = head.previous
    head.previous.next = l
    head.previous = l

cdef inline void list_remove(Link *l) noexcept nogil:
    if l.next != NULL:
        l.previous.next = l.next
        l.next.previous = l.previous
        l.next = NULL
        l.previous = NULL
