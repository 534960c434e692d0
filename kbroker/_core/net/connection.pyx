# Receiving: where bytes lie until they are whole frames.
from libc.errno cimport ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from kbroker._core.c.prelude cimport KB_ASSERT
from kbroker._core.c.sockets cimport recv
from kbroker._core.limits cimport (
    CONNECTION_BUFFER_FIRST_BYTES,
    LARGE_BUFFER_FIRST_BYTES,
    LARGE_FRAME_BYTES,
    RECEIVE_CHUNK_BYTES,
    RECEIVE_POOL_KEEP_BYTES,
    SHORT_RECEIVE_BYTES,
    STARVED_BYTES_PER_MS,
)
from kbroker._core.net.budget cimport (
    Budget,
    budget_give,
    budget_may_exceed,
    budget_reserve,
    budget_short,
    budget_starve,
    budget_take,
)
from kbroker._core.wire.cursor cimport load_be32


cdef int receiver_open(Receiver *r, Budget *budget, int64_t frame_max) noexcept nogil:
    memset(r, 0, sizeof(Receiver))
    r.budget = budget
    r.beyond_max = frame_max
    r.chunk = <uint8_t *> malloc(RECEIVE_CHUNK_BYTES)
    return 0 if r.chunk != NULL else -ENOMEM


cdef void receiver_close(Receiver *r) noexcept nogil:
    cdef void *buffer
    cdef int i
    for i in range(BUFFER_CLASSES):
        while r.pool[i] != NULL:
            buffer = r.pool[i]
            r.pool[i] = (<void **> buffer)[0]
            free(buffer)
    free(r.chunk)
    r.chunk = NULL


cdef inline int class_of(int64_t capacity) noexcept nogil:
    # The class whose buffers hold `capacity` bytes; BUFFER_CLASSES when none does.
    cdef int found = 0
    cdef int64_t holds = CONNECTION_BUFFER_FIRST_BYTES
    while holds < capacity and found < BUFFER_CLASSES:
        holds *= 2
        found += 1
    return found


cdef inline int64_t rounded(int64_t capacity) noexcept nogil:
    cdef int which = class_of(capacity)
    return <int64_t> CONNECTION_BUFFER_FIRST_BYTES << which if which < BUFFER_CLASSES else capacity


cdef uint8_t *lend(Receiver *r, int64_t *capacity) noexcept nogil:
    # A buffer of at least capacity[0] bytes, which becomes its true capacity.
    cdef int which = class_of(capacity[0])
    cdef void *buffer
    capacity[0] = rounded(capacity[0])
    if which < BUFFER_CLASSES and r.pool[which] != NULL:
        buffer = r.pool[which]
        r.pool[which] = (<void **> buffer)[0]
        r.pooled_bytes -= capacity[0]
    else:
        buffer = malloc(capacity[0])
        if buffer == NULL:
            return NULL
    r.lent_bytes += capacity[0]
    return <uint8_t *> buffer


cdef void take_back(Receiver *r, uint8_t *buffer, int64_t capacity) noexcept nogil:
    cdef int which = class_of(capacity)
    r.lent_bytes -= capacity
    if which == BUFFER_CLASSES or r.pooled_bytes + capacity > RECEIVE_POOL_KEEP_BYTES:
        free(buffer)
        return
    (<void **> buffer)[0] = r.pool[which]
    r.pool[which] = buffer
    r.pooled_bytes += capacity


cdef bint regrow(Connection *c, Receiver *r, int64_t capacity) noexcept nogil:
    # Moves what has arrived into a buffer of at least `capacity` bytes, to its front.
    cdef int64_t held = c.filled - c.start
    cdef uint8_t *wider
    cdef void *grown
    capacity = rounded(capacity)
    if c.own != NULL and c.start == 0 and class_of(c.capacity) == BUFFER_CLASSES:
        grown = realloc(c.own, capacity)         # past the pool the allocator moves pages, not bytes
        if grown == NULL:
            return False
        r.lent_bytes += capacity - c.capacity
        c.own = <uint8_t *> grown
        c.capacity = capacity
        return True
    wider = lend(r, &capacity)
    if wider == NULL:
        return False
    if c.own != NULL:
        memcpy(wider, c.own + c.start, held)
        take_back(r, c.own, c.capacity)
    c.own = wider
    c.capacity = capacity
    c.start = 0
    c.filled = held
    return True


cdef inline int64_t begun_bytes(const Connection *c) noexcept nogil:
    # The whole size of the frame that has begun in `own`; 0: not known yet. It is legal: the loop has looked at it.
    return 4 + <int64_t> load_be32(c.own + c.start) if c.filled - c.start >= 4 else 0


cdef int64_t room_wanted(Connection *c, Receiver *r) noexcept nogil:
    # How many bytes to receive into `own`, whose frame begins at its front; -1: no memory.
    cdef int64_t target
    cdef int64_t total = begun_bytes(c)
    if c.own == NULL and not regrow(c, r, LARGE_BUFFER_FIRST_BYTES):
        return -1
    target = c.capacity
    if total > LARGE_FRAME_BYTES or (c.large and total > 0):
        target = total if total < c.capacity else c.capacity
    elif c.large:
        target = 4
    KB_ASSERT(target > c.filled)                 # a full buffer has grown, or is not read
    return target - c.filled


cdef int64_t connection_receive(Connection *c, Receiver *r, uint8_t **at, int64_t *length) noexcept nogil:
    cdef uint8_t *into = r.chunk
    cdef int64_t room = RECEIVE_CHUNK_BYTES
    cdef bint own = c.filled > 0 or c.large
    cdef ssize_t n
    if c.filled == 0 and budget_short(r.budget):
        own = False                              # small requests are served as ever; of a large one only the beginning comes in
        room = SHORT_RECEIVE_BYTES
    if own:
        if c.start > 0:                          # only a part of one frame is left by now
            memmove(c.own, c.own + c.start, c.filled - c.start)
            c.filled -= c.start
            c.start = 0
        room = room_wanted(c, r)
        if room < 0:
            return -ENOMEM
        into = c.own + c.filled
    if c.transform != NULL:
        n = c.transform.receive(c.transform_state, c.fd, into, room)
    else:
        n = recv(c.fd, into, room, 0)
    r.drained = n < room
    if n <= 0:
        n = -errno if n < 0 else 0
        if own and c.filled == 0:
            connection_keep(c, r, NULL, 0)
        return n
    if own:
        c.filled += n
        at[0] = c.own
        length[0] = c.filled
    else:
        at[0] = into
        length[0] = n
    return n


cdef void charge(Connection *c, Receiver *r, int64_t cost) noexcept nogil:
    if cost <= CONNECTION_BUFFER_FIRST_BYTES:
        cost = 0
    if cost > c.charged:
        budget_take(r.budget, cost - c.charged)
    elif cost < c.charged:
        budget_give(r.budget, c.charged - cost)
    c.charged = cost


cdef int64_t grown_capacity(const Connection *c) noexcept nogil:
    # Twice what has arrived: the rest of the frame has room to come, and the claimed size is not believed.
    cdef int64_t total = begun_bytes(c)
    cdef int64_t capacity = c.capacity * 2
    return rounded(min(capacity, total) if total > LARGE_FRAME_BYTES else capacity)


cdef bint settle(Connection *c, Receiver *r) noexcept nogil:
    # Charges for the buffer as it is. A full one grows for the rest of its frame, or starves. False: no memory.
    cdef int64_t capacity
    charge(c, r, c.capacity)
    if c.more or c.filled - c.start < c.capacity:
        return True
    capacity = grown_capacity(c)
    if c.beyond > 0:
        budget_take(r.budget, capacity - c.charged)
    elif not budget_reserve(r.budget, capacity - c.charged):
        c.starved = 1
        c.due_ms = c.begun_ms + (begun_bytes(c) - c.capacity) // STARVED_BYTES_PER_MS
        budget_starve(r.budget, 1)
        return True
    c.charged = capacity
    return regrow(c, r, capacity)


cdef void end_starving(Connection *c, Receiver *r) noexcept nogil:
    if c.starved:
        c.starved = 0
        budget_starve(r.budget, -1)


cdef bint go_beyond(Connection *c, Receiver *r) noexcept nogil:
    # What is missing of its frame is all that it may take, and is taken to be needed: who goes beyond comes to its end.
    cdef int64_t missing = rounded(begun_bytes(c)) - c.capacity
    if (r.beyond_bytes > 0 and r.beyond_bytes + missing > r.beyond_max) or not budget_may_exceed(r.budget):
        return False
    c.beyond = missing
    r.beyond_bytes += missing
    return True


cdef int connection_admit(Connection *c, Receiver *r) noexcept nogil:
    cdef int64_t capacity = grown_capacity(c)
    if not budget_reserve(r.budget, capacity - c.charged):
        if not go_beyond(c, r):
            return 0
        budget_take(r.budget, capacity - c.charged)
    c.charged = capacity
    end_starving(c, r)
    connection_pace(c, r)                        # the wait was not its client's
    return 1 if regrow(c, r, capacity) else -ENOMEM


cdef void connection_tighten(Connection *c, Receiver *r) noexcept nogil:
    cdef int64_t held = c.filled - c.start
    if c.own != NULL and not c.starved and c.beyond == 0 and rounded(held * 2) < c.capacity and regrow(c, r, held * 2):
        charge(c, r, c.capacity)


cdef const char *other_protocol(const uint8_t *at) noexcept nogil:
    # Names the protocol whose first bytes were read as the size of a frame; NULL if they match none. Must fit in
    # EVENT_TEXT_BYTES.
    if at[0] == 0x16 and at[1] == 3 and at[2] <= 4:
        return b"a TLS ClientHello on a PLAINTEXT listener: set security.protocol=PLAINTEXT on the client"
    if (memcmp(at, b"GET ", 4) == 0 or memcmp(at, b"POST", 4) == 0 or memcmp(at, b"HEAD", 4) == 0
            or memcmp(at, b"PUT ", 4) == 0 or memcmp(at, b"DELE", 4) == 0 or memcmp(at, b"OPTI", 4) == 0
            or memcmp(at, b"PATC", 4) == 0 or memcmp(at, b"CONN", 4) == 0 or memcmp(at, b"PRI ", 4) == 0):
        return b"an HTTP request: this port serves only the Kafka protocol"
    return NULL


cdef void describe_size(const uint8_t *at, int64_t request_max, char *text, size_t room) noexcept nogil:
    cdef int32_t size = <int32_t> load_be32(at)
    cdef const char *other = other_protocol(at)
    if other != NULL:
        snprintf(text, room, b"%s", other)
    elif size > request_max:
        snprintf(text, room, b"a frame claims %d bytes, socket.request.max.bytes is %d", <int> size, <int> request_max)
    else:
        snprintf(text, room, b"a frame claims %d bytes, fewer than a request header has", <int> size)


cdef void connection_unpost(Connection *c) noexcept nogil:
    cdef Message *m = c.early
    c.early = NULL
    c.awaited = 0
    c.serial = 0
    while m != NULL:
        c.early = m.next
        free(m)
        m = c.early


cdef void connection_pace(Connection *c, Receiver *r) noexcept nogil:
    c.paced_ms = r.now_ms
    c.paced_bytes = c.filled - c.start


cdef inline void begin(Connection *c, Receiver *r) noexcept nogil:
    c.begun_ms = r.now_ms
    c.paced_ms = r.now_ms
    c.paced_bytes = 0


cdef bint connection_keep(Connection *c, Receiver *r, uint8_t *at, int64_t length) noexcept nogil:
    cdef bint same = c.own != NULL and at == c.own + c.start
    if c.beyond > 0 and (length == 0 or not same):
        r.beyond_bytes -= c.beyond               # its frame has ended
        c.beyond = 0
    if length == 0:
        if c.own != NULL:
            end_starving(c, r)
            charge(c, r, 0)
            take_back(r, c.own, c.capacity)
        c.own = NULL
        c.capacity = 0
        c.start = 0
        c.filled = 0
        return True
    if c.own != NULL and at >= c.own and at < c.own + c.capacity:
        if c.charged == 0 or not same:
            begin(c, r)
        c.start = at - c.own
        c.filled = c.start + length
        return settle(c, r)
    if not regrow(c, r, length * 2):
        return False
    memcpy(c.own, at, length)
    c.start = 0
    c.filled = length
    begin(c, r)
    return settle(c, r)
