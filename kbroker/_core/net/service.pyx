# One connection's share of a turn.
from libc.errno cimport EAGAIN, EINTR, ENOMEM, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, realloc
from libc.string cimport memset
from posix.unistd cimport close

from kbroker._core.api.dispatch cimport dispatch
from kbroker._core.api.produce cimport Held, Run, run_settle
from kbroker._core.api.request cimport CLOSE, HELD, PARKED, POST, READY, Outcome, Peer, Request
from kbroker._core.c.prelude cimport KB_ASSERT, store_int32
from kbroker._core.c.sockets cimport SHUT_WR, recv, shutdown, unread_bytes, unsent_bytes
from kbroker._core.limits cimport (
    CONNECTION_BUFFER_FIRST_BYTES,
    EVENT_TEXT_BYTES,
    FRAME_HEADER_MIN_BYTES,
    FRAMES_PER_TURN,
    LARGE_FRAME_BYTES,
    PARTING_LOOK_MS,
    PARTING_MS,
    POSTED_TOGETHER,
    RECEIVE_BYTES_PER_TURN,
    RECEIVE_CHUNK_BYTES,
    RELIEF_REPLY_BYTES,
    RELIEF_REQUEST_BYTES,
    SENDFILE_CHUNK_BYTES,
)
from kbroker._core.net.budget cimport budget_post
from kbroker._core.net.connection cimport (
    NO_REQUEST,
    CLOSE_WHEN_SENT,
    PARKED_REQUEST,
    PARTING,
    POSTED_REQUEST,
    STALLED_REQUEST,
    Link,
    connection_keep,
    connection_pace,
    connection_receive,
    connection_unpost,
    describe_size,
    linked,
    list_append,
    list_remove,
)
from kbroker._core.net.egress cimport (
    ALL_SENT,
    BLOCKED,
    SEND_FAILED,
    SLICE_COLD,
    SLICE_FAILED,
    TURN_OVER,
    Sent,
    egress_chain,
    egress_recycle,
    outflow_drop,
    outflow_queue,
    outflow_send,
)
from kbroker._core.net.listener cimport admission_leave
from kbroker._core.net.loop cimport (
    API_KEYS,
    BY_PEER,
    BY_RESET,
    DRAINED,
    FRAME_SIZE,
    NO_ROOM,
    REFUSED_REQUEST,
    SERIAL_MASK,
    UNSENDABLE,
    make_token,
)
from kbroker._core.net.mailbox cimport CLOSED, Letter, events_note, inbox_ring, mailbox_post
from kbroker._core.net.poller cimport GONE, HALF, READABLE, WRITABLE, bell_ring, poller_add, poller_change, poller_remove
from kbroker._core.net.relief cimport relief_note
from kbroker._core.net.warmer cimport Errand, warmer_send
from kbroker._core.partitions cimport view_acquire
from kbroker._core.purgatory cimport purgatory_forget, purgatory_hasten
from kbroker._core.wire.chain cimport Chain, Piece
from kbroker._core.wire.cursor cimport load_be16, load_be32

cdef enum:
    PRODUCE_KEY = 0
    FETCH_KEY = 1
    OFFSET_COMMIT_KEY = 8
    HEARTBEAT_KEY = 12


cdef inline bint in_progress(const Connection *c) noexcept nogil:
    # What a drain waits for. A long poll that finds nothing has nothing to lose: its client asks the next broker.
    return c.waiting == POSTED_REQUEST or (c.waiting == PARKED_REQUEST and not c.long_poll)


cdef inline int64_t hidden_bytes(const Connection *c) noexcept nogil:
    # What has arrived and the poller cannot see.
    return c.transform.buffered(c.transform_state) if c.transform != NULL else 0


cdef inline void touch(Loop *l, Connection *c) noexcept nogil:
    if c.active_ms != l.now_ms:
        c.active_ms = l.now_ms
        list_remove(&c.idle)
        list_append(&l.idle, &c.idle)


# ---- coming and going ----

cdef Connection *free_slot(Loop *l) noexcept nogil:
    cdef Connection *c
    cdef int32_t capacity
    cdef void *grown
    if l.free.next != &l.free:
        c = l.free.next.owner
        list_remove(&c.turn)
        return c
    if l.slot_count == l.slot_capacity:
        capacity = l.slot_capacity * 2 if l.slot_capacity else 64
        grown = realloc(l.slots, capacity * sizeof(Connection *))
        if grown == NULL:
            return NULL
        l.slots = <Connection **> grown
        l.slot_capacity = capacity
    c = <Connection *> calloc(1, sizeof(Connection))
    if c == NULL:
        return NULL
    c.fd = -1
    c.slot = l.slot_count
    c.idle.owner = c
    c.turn.owner = c
    c.held.owner = c
    c.starving.owner = c
    c.behind.owner = c
    c.heavy.owner = c
    c.leaving.owner = c
    l.slots[l.slot_count] = c
    l.slot_count += 1
    return c


cdef bint service_adopt(Loop *l, int fd, const Address *address, int32_t listener_index) noexcept nogil:
    cdef Connection *c = NULL
    if not l.draining:
        c = free_slot(l)
    if c == NULL:
        close(fd)
        admission_leave(&l.shared.admission, address)
        return False
    c.fd = fd
    c.generation = next_generation(l)
    c.own_loop = l.index
    c.interest = READABLE
    c.waiting = NO_REQUEST
    c.closing = 0
    c.more = 0
    c.large = 0
    c.warming = 0
    c.listener_index = listener_index
    c.principal = 0
    c.muted_until_ms = 0
    c.active_ms = l.now_ms
    c.transform = l.shared.listener_transform[listener_index]
    c.transform_state = NULL
    c.address = address[0]
    list_append(&l.idle, &c.idle)
    store_int32(&l.open_count, l.open_count + 1)
    l.counters.accepted += 1
    if c.transform != NULL:
        c.transform_state = c.transform.open(l.shared.transform_context[listener_index])
        if c.transform_state == NULL:
            c.transform = NULL
            service_close(l, c, NO_ROOM)
            return False
    if poller_add(&l.poller, fd, connection_key(c), READABLE) < 0:
        # Never watched, so there is nothing to unwatch; epoll does not mind being asked.
        service_close(l, c, NO_ROOM)
        return False
    return True


cdef void service_close(Loop *l, Connection *c, int reason) noexcept nogil:
    if c.fd < 0:
        return
    l.counters.closed[reason] += 1       # first: whoever sees the end of the stream may look at the counters
    poller_remove(&l.poller, c.fd)
    forget_parked(l, c)
    if c.transform != NULL:
        c.transform.release(c.transform_state)
        c.transform = NULL
    close(c.fd)
    c.fd = -1
    c.generation = 0
    connection_keep(c, &l.receiver, NULL, 0)
    outflow_drop(&c.out, &l.egress)
    count_replies(l, c, False)
    list_remove(&c.idle)
    list_remove(&c.turn)
    list_remove(&c.held)
    list_remove(&c.starving)
    list_remove(&c.heavy)
    list_remove(&c.leaving)
    list_append(&l.free, &c.turn)
    store_int32(&l.open_count, l.open_count - 1)
    if admission_leave(&l.shared.admission, &c.address):
        inbox_ring(&l.shared.loops[0].inbox)
    if l.draining and l.open_count == 0:
        bell_ring(&l.shared.emptied)


cdef void forget_parked(Loop *l, Connection *c) noexcept nogil:
    cdef Peer peer
    if c.waiting == PARKED_REQUEST:
        peer.loop_index = l.index
        peer.slot = c.slot
        peer.generation = c.generation
        purgatory_forget(&l.worker, &peer)
    c.waiting = NO_REQUEST
    connection_unpost(c)


cdef void service_finish(Loop *l, Connection *c, int reason, const char *text) noexcept nogil:
    if text != NULL:
        events_note(&l.shared.events, CLOSED, text, &c.address)
        l.posted = True
    connection_keep(c, &l.receiver, NULL, 0)
    forget_parked(l, c)
    list_remove(&c.held)
    list_remove(&c.starving)
    c.more = 0
    if c.out.first == NULL:
        service_close(l, c, reason)
        return
    c.closing = CLOSE_WHEN_SENT
    c.close_reason = reason


cdef bint service_has_unread(const Connection *c) noexcept nogil:
    return hidden_bytes(c) > 0 or unread_bytes(c.fd) > 0


cdef void part(Loop *l, Connection *c, int reason) noexcept nogil:
    # Everything is sent. To close a socket with bytes unread is to reset it, and what the client has not received by then is
    # lost. So whoever sent more than we answer, and has not received all we sent, is parted from gently.
    if unsent_bytes(c.fd) == 0 or (c.filled == c.start and unread_bytes(c.fd) == 0):
        service_close(l, c, reason)
        return
    connection_keep(c, &l.receiver, NULL, 0)
    list_remove(&c.starving)
    forget_parked(l, c)
    c.more = 0
    c.closing = PARTING
    c.close_reason = reason
    c.begun_ms = l.now_ms
    shutdown(c.fd, SHUT_WR)
    watch(l, c, READABLE)
    service_mute(l, c, PARTING_LOOK_MS)


cdef void go_on_parting(Loop *l, Connection *c) noexcept nogil:
    cdef int64_t thrown = 0
    cdef ssize_t n = 1
    while n > 0 and thrown < RECEIVE_BYTES_PER_TURN:
        n = recv(c.fd, l.receiver.chunk, RECEIVE_CHUNK_BYTES, 0)
        thrown += n
    if n == 0 or (n < 0 and errno != EAGAIN and errno != EINTR) or unsent_bytes(c.fd) == 0 \
            or l.now_ms - c.begun_ms >= PARTING_MS:
        service_close(l, c, c.close_reason)
    elif c.muted_until_ms == 0:
        service_mute(l, c, PARTING_LOOK_MS)


# ---- in ----

cdef void service_event(Loop *l, Connection *c, int what) noexcept nogil:
    if what & WRITABLE:
        flush(l, c)
    if c.fd < 0 or not what & (READABLE | GONE):
        return
    if c.closing == PARTING:
        go_on_parting(l, c)
        return
    if not may_handle(l, c):
        # The client's next request waits for this one's answer (or it is gone altogether, and nobody waits).
        # Level-triggered: without dropping the interest, this would be all the loop does.
        if what & GONE:
            service_close(l, c, BY_RESET)
        elif c.waiting != PARKED_REQUEST or not c.long_poll:
            watch(l, c, c.interest & ~(READABLE | HALF))     # the end is found when it is read again
        elif what & HALF:
            hasten(l, c)
            watch(l, c, c.interest & ~(READABLE | HALF))
        else:
            watch(l, c, (c.interest & ~READABLE) | HALF)
    elif not c.more:
        receive(l, c)


cdef void hasten(Loop *l, Connection *c) noexcept nogil:
    # Whoever asks for no more is most likely gone. Its long poll is answered now with what there is: a client that only
    # closed its half gets that, and one that is gone answers with a reset.
    cdef Peer peer
    peer.loop_index = l.index
    peer.slot = c.slot
    peer.generation = c.generation
    purgatory_hasten(&l.worker, &peer)


cdef void receive(Loop *l, Connection *c) noexcept nogil:
    cdef uint8_t *at = NULL
    cdef int64_t length = 0
    cdef int64_t received = 0
    cdef int64_t n
    while True:
        n = connection_receive(c, &l.receiver, &at, &length)
        if n <= 0:
            break
        received += n
        touch(l, c)
        handle_frames(l, c, at, length)
        # A large frame is followed to its end; everyone else has had this turn's share.
        if (c.fd < 0 or c.filled == 0 or l.receiver.drained or received >= RECEIVE_BYTES_PER_TURN
                or c.more or not may_handle(l, c)):
            break
    l.counters.bytes_in += received
    if c.fd < 0:
        return
    if n == 0:
        # All whole frames before the end were handled. What they answered is still sent: only one half need be closed.
        service_finish(l, c, BY_PEER, NULL)
    elif n == -ENOMEM:
        service_finish(l, c, NO_ROOM, b"out of memory for a request")
    elif n < 0 and n != -EAGAIN and n != -EINTR:
        service_close(l, c, BY_RESET)
    flush(l, c)


cdef inline bint legal(const Loop *l, int32_t size) noexcept nogil:
    return FRAME_HEADER_MIN_BYTES <= size <= l.shared.request_max_bytes


cdef inline bint produce_stands(const Loop *l, const uint8_t *at, const uint8_t *end) noexcept nogil:
    # Whether the next frame is here, whole, and a Produce.
    cdef int32_t size
    if end - at < 4 + FRAME_HEADER_MIN_BYTES:
        return False
    size = <int32_t> load_be32(at)
    return legal(l, size) and end - at - 4 >= size and load_be16(at + 4) == PRODUCE_KEY


cdef inline bint posts_together(const uint8_t *frame, int32_t size) noexcept nogil:
    # The control plane's hot path: small, answered soon, and decided in the order in which they came.
    cdef int32_t key = load_be16(frame)
    return (key == OFFSET_COMMIT_KEY or key == HEARTBEAT_KEY) and size <= CONNECTION_BUFFER_FIRST_BYTES


cdef inline bint may_follow(const Loop *l, const Connection *c, const uint8_t *at, const uint8_t *end) noexcept nogil:
    # Whether the next frame may be posted behind those that are.
    cdef int32_t size
    if (c.waiting != POSTED_REQUEST or not c.together or c.awaited >= POSTED_TOGETHER or end - at < 4 + FRAME_HEADER_MIN_BYTES
            or c.serial + c.awaited != l.last_serial + 1 or not may_go_on(l, c)):
        return False
    size = <int32_t> load_be32(at)
    return legal(l, size) and end - at - 4 >= size and posts_together(at + 4, size)


cdef void handle_frames(Loop *l, Connection *c, uint8_t *at, int64_t length) noexcept nogil:
    cdef uint8_t *end = at + length
    cdef int budget = FRAMES_PER_TURN
    cdef bint followed
    cdef int32_t size
    c.more = 0
    while end - at >= 4:
        if budget == 0 or not (may_handle(l, c) or may_follow(l, c, at, end)):
            c.more = 1
            break
        size = <int32_t> load_be32(at)
        if not legal(l, size):
            refuse_size(l, c, at)
            return
        if end - at - 4 < size:
            break
        c.large = size >= LARGE_FRAME_BYTES
        budget -= 1
        followed = budget > 0 and produce_stands(l, at + 4 + size, end)
        if not handle(l, c, at + 4, size, followed):
            c.more = 1
            break
        if c.fd < 0 or c.closing:
            return
        at += 4 + size
    KB_ASSERT((<Run *> l.worker.run).count == 0)     # what is held lies in these bytes
    if not connection_keep(c, &l.receiver, at, end - at):
        service_finish(l, c, NO_ROOM, b"out of memory for a request")
        return
    if c.starved and not linked(&c.starving):
        starve(l, c)
    if c.more and may_handle(l, c) and not linked(&c.turn):
        list_append(&l.turn, &c.turn)


cdef void starve(Loop *l, Connection *c) noexcept nogil:
    cdef Link *behind = &l.starved
    while behind.previous != &l.starved and behind.previous.owner.due_ms > c.due_ms:
        behind = behind.previous
    list_append(behind, &c.starving)
    l.counters.starved += 1
    inbox_ring(&l.inbox)                 # there is a turn before the loop sleeps: room may have come, or it may go beyond


cdef void refuse_size(Loop *l, Connection *c, const uint8_t *at) noexcept nogil:
    cdef char text[EVENT_TEXT_BYTES]
    describe_size(at, l.shared.request_max_bytes, text, sizeof(text))
    service_finish(l, c, FRAME_SIZE, text)


# ---- a request ----

cdef Outcome answer(Loop *l, Request *r, Chain *reply) noexcept nogil:
    cdef int32_t view = l.shared.listener_view[r.listener_index]
    if l.worker.apis == NULL:
        return POST                      # nothing is published yet: the control side decides
    if l.tables[view] == NULL:
        l.tables[view] = view_acquire(l.shared.views[view])
    l.worker.table = l.tables[view]
    r.view = l.shared.views[view]
    return dispatch(&l.worker, r, reply)


cdef bint handle(Loop *l, Connection *c, uint8_t *frame, int32_t length, bint followed) noexcept nogil:
    # False: the mailbox is full, and the frame stays where it is. `followed`: by a Produce, which is handled next.
    cdef Run *run = <Run *> l.worker.run
    cdef Request r
    cdef Chain *reply = egress_chain(&l.egress)
    cdef Outcome outcome = CLOSE
    cdef int32_t key
    if reply == NULL:
        settle_run(l, c)
        service_finish(l, c, NO_ROOM, b"out of memory for a reply")
        return True
    memset(&r, 0, sizeof(r))
    r.frame = frame
    r.length = length
    r.api_key = <int16_t> load_be16(frame)
    r.api_version = <int16_t> load_be16(frame + 2)
    r.correlation_id = <int32_t> load_be32(frame + 4)
    r.peer.loop_index = l.index
    r.peer.slot = c.slot
    r.peer.generation = c.generation
    r.listener_index = c.listener_index
    r.principal = c.principal
    key = r.api_key if 0 <= r.api_key < API_KEYS else API_KEYS
    l.counters.requests[key] += 1
    if length >= RELIEF_REQUEST_BYTES or l.shared.move_always:
        relief_note(l, c)
    if l.shared.hooks.before == NULL or l.shared.hooks.before(l.shared.hooks.context, &r):
        outcome = answer(l, &r, reply)
    if c.awaited > 0 and outcome != POST:
        egress_recycle(&l.egress, reply)     # a refusal: those before it are answered first
        l.counters.requests[key] -= 1
        return False
    if outcome == HELD and followed and not run.full:
        return True                      # the next one settles it, or is held with it
    settle_run(l, c)
    return True if outcome == HELD else conclude(l, c, &r, outcome, reply)


cdef void settle_run(Loop *l, Connection *c) noexcept nogil:
    # The requests before this one, whose records are written together.
    cdef Run *run = <Run *> l.worker.run
    cdef Held *held
    cdef int32_t i
    if run.count == 0:
        return
    run_settle(&l.worker)
    for i in range(run.count):
        held = &run.held[i]
        conclude(l, c, &held.r, held.outcome, held.reply)
    run.count = 0


cdef bint conclude(Loop *l, Connection *c, Request *r, Outcome outcome, Chain *reply) noexcept nogil:
    cdef int64_t mute_ms = 0
    if c.fd < 0 or c.closing:            # by the request before it
        egress_recycle(&l.egress, reply)
        if outcome == PARKED:
            purgatory_forget(&l.worker, &r.peer)
        return True
    if l.shared.hooks.after != NULL:
        mute_ms = l.shared.hooks.after(l.shared.hooks.context, r, outcome, reply)
    if outcome == READY:
        queue_reply(l, c, reply)
    else:
        egress_recycle(&l.egress, reply)
        if outcome == PARKED:
            c.waiting = PARKED_REQUEST
            c.long_poll = r.api_key == FETCH_KEY
            l.counters.parked += 1
        elif outcome == POST:
            return post(l, c, r.frame, r.length)
        elif outcome == CLOSE:
            if r.reason == NULL:
                r.reason = b"a request was refused"
            service_finish(l, c, REFUSED_REQUEST, r.reason)
    if mute_ms > 0 and c.fd >= 0:
        service_mute(l, c, mute_ms)
    return True


cdef void queue_reply(Loop *l, Connection *c, Chain *reply) noexcept nogil:
    if reply.broken or reply.total_bytes == 0:
        egress_recycle(&l.egress, reply)
        service_finish(l, c, NO_ROOM, b"out of memory for a reply")
        return
    if reply.total_bytes >= RELIEF_REPLY_BYTES:
        relief_note(l, c)
    outflow_queue(&c.out, reply)


cdef bint post(Loop *l, Connection *c, uint8_t *frame, int32_t length) noexcept nogil:
    cdef Letter letter
    cdef uint64_t serial = (l.last_serial + 1) & SERIAL_MASK
    if serial == 0:
        serial = 1
    letter.token = make_token(l.index, c.slot, serial)
    letter.principal = c.principal
    letter.listener_index = c.listener_index
    letter.length = length
    letter.address = c.address
    letter.frame = frame
    if not mailbox_post(&l.shared.mailbox, &letter):
        if c.awaited > 0:
            l.counters.requests[load_be16(frame)] -= 1
        elif c.waiting != STALLED_REQUEST:
            c.waiting = STALLED_REQUEST
            list_append(&l.held, &c.held)
            l.counters.stalled += 1
        return False
    if length > CONNECTION_BUFFER_FIRST_BYTES:
        budget_post(&l.shared.requests, length)
    l.last_serial = serial
    l.posted = True
    l.counters.posted += 1
    if c.awaited == 0:
        c.serial = serial
        c.together = posts_together(frame, length)
    c.awaited += 1
    c.waiting = POSTED_REQUEST
    return True


cdef void service_retry_post(Loop *l, Connection *c) noexcept nogil:
    cdef uint8_t *at = c.own + c.start
    cdef int32_t size = <int32_t> load_be32(at)
    if not post(l, c, at + 4, size):
        return
    list_remove(&c.held)
    connection_keep(c, &l.receiver, at + 4 + size, c.filled - c.start - 4 - size)
    c.more = c.filled > c.start


cdef void service_mute(Loop *l, Connection *c, int64_t milliseconds) noexcept nogil:
    c.muted_until_ms = l.now_ms + milliseconds
    if c.muted_until_ms < l.held_due_ms:
        l.held_due_ms = c.muted_until_ms
    if not linked(&c.held):
        list_append(&l.held, &c.held)


# ---- out ----

cdef void service_answer(Loop *l, Connection *c, Chain *reply) noexcept nogil:
    if c.awaited > 1:
        c.awaited -= 1
        c.serial += 1
    else:
        c.awaited = 0
        c.serial = 0
        c.waiting = NO_REQUEST
    touch(l, c)
    connection_pace(c, &l.receiver)      # what came behind the request has not been looked at
    if reply != NULL:
        queue_reply(l, c, reply)


cdef void service_resume(Loop *l, Connection *c) noexcept nogil:
    if c.fd >= 0 and may_handle(l, c):
        if c.more:
            handle_frames(l, c, c.own + c.start, c.filled - c.start)
        elif hidden_bytes(c) > 0:
            receive(l, c)
            return
    flush(l, c)


cdef void service_warmed(Loop *l, Connection *c) noexcept nogil:
    # Sent without asking again: should the pages be gone already, waiting for them once is better than fetching for ever.
    c.warming = 0
    send_out(l, c, True)


cdef void flush(Loop *l, Connection *c) noexcept nogil:
    send_out(l, c, False)


cdef bint send_for_warming(Loop *l, Connection *c) noexcept nogil:
    cdef Errand errand
    cdef Chain *reply = c.out.first
    cdef Piece *piece = &reply.pieces[reply.next_piece]
    errand.fd = piece.fd
    errand.loop_index = l.index
    errand.key = connection_key(c)
    errand.position = piece.start + reply.sent_in_piece
    errand.length = min(piece.length - reply.sent_in_piece, <int64_t> SENDFILE_CHUNK_BYTES)
    return warmer_send(&l.shared.warmer, &errand)


cdef void count_replies(Loop *l, Connection *c, bint reads) noexcept nogil:
    # What the replies of a reader that is behind hold in memory, file slices aside. Whoever reads on goes to the end of the row.
    cdef Chain *reply = c.out.first
    cdef int64_t bytes = 0
    while reply != NULL:
        bytes += reply.capacity + reply.piece_capacity * <int64_t> sizeof(Piece)
        reply = reply.next
    l.reply_bytes += bytes - c.reply_bytes
    if bytes == 0 or reads:
        list_remove(&c.behind)
    if bytes > 0 and not linked(&c.behind):
        list_append(&l.behind, &c.behind)
    c.reply_bytes = bytes


cdef void send_out(Loop *l, Connection *c, bint may_wait) noexcept nogil:
    cdef Sent outcome = ALL_SENT
    cdef int64_t sent = 0
    cdef int64_t more = 0
    cdef int interest
    if c.fd < 0:
        return
    if c.out.first != NULL and not c.warming:
        outcome = outflow_send(&c.out, &l.egress, c.fd, c.transform, c.transform_state, may_wait, &sent)
        if outcome == SLICE_COLD:
            if send_for_warming(l, c):
                c.warming = 1
            else:
                outcome = outflow_send(&c.out, &l.egress, c.fd, c.transform, c.transform_state, True, &more)
                sent += more
        if sent > 0:
            l.counters.bytes_out += sent
            touch(l, c)
        if outcome == SEND_FAILED:
            service_close(l, c, BY_RESET)
            return
        if outcome == SLICE_FAILED:
            events_note(&l.shared.events, CLOSED, b"a log segment could not be read for a reply", &c.address)
            l.posted = True
            service_close(l, c, UNSENDABLE)
            return
        if c.out.first != NULL or c.reply_bytes > 0:
            count_replies(l, c, sent > 0)
    if c.out.first == NULL:
        if c.closing == PARTING:
            go_on_parting(l, c)
            return
        if c.closing or (l.draining and not in_progress(c)):
            part(l, c, c.close_reason if c.closing else <int> DRAINED)
            return
    if (outcome == TURN_OVER or ((c.more or hidden_bytes(c) > 0) and may_handle(l, c))) and not linked(&c.turn):
        list_append(&l.turn, &c.turn)
    # READABLE is asked for again as soon as it may be used, but dropped only when it is in the way (service_event):
    # a client that waits for its answers costs no system call for either.
    interest = READABLE if may_handle(l, c) and not c.more else c.interest & (READABLE | HALF)
    watch(l, c, interest | (WRITABLE if outcome == BLOCKED else 0))


cdef inline void watch(Loop *l, Connection *c, int interest) noexcept nogil:
    if interest != c.interest:
        c.interest = interest
        poller_change(&l.poller, c.fd, connection_key(c), interest)
