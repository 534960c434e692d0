# A network thread from its first turn to its last.
from libc.errno cimport EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM
from libc.stdint cimport INT64_MAX, UINT32_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset
from posix.unistd cimport close

from kbroker._core.api.produce cimport run_create, run_destroy
from kbroker._core.api.request cimport ApiTable, Peer
from kbroker._core.c.prelude cimport load_int32, release_count, retain_count, store_int32
from kbroker._core.clock cimport mono_ms, mono_us
from kbroker._core.limits cimport ACCEPT_BURST, ACCEPT_RETRY_MS, RELIEF_IDLE_MS, SLEEP_HELD_MS, SLEEP_MS
from kbroker._core.net.connection cimport (
    NO_REQUEST,
    PARKED_REQUEST,
    POSTED_REQUEST,
    STALLED_REQUEST,
    Connection,
    Link,
    linked,
    list_append,
    list_init,
    list_remove,
    receiver_close,
    receiver_open,
)
from kbroker._core.net.egress cimport egress_chain, egress_close, egress_recycle
from kbroker._core.net.listener cimport accept_next, admission_delay_ms, admission_enter, admission_full, admission_leave
from kbroker._core.net.mailbox cimport (
    ACCEPT_PAUSED,
    ADOPT,
    ARRIVE,
    HANG_UP,
    OPEN_LISTENER,
    REFUSED,
    REPLY,
    WARMED,
    Address,
    Message,
    events_note,
    inbox_close,
    inbox_open,
    inbox_put,
    inbox_ring,
    inbox_take,
    mailbox_ring,
    message_new,
    message_payload,
)
from kbroker._core.net.poller cimport (
    READABLE,
    bell_ring,
    poller_add,
    poller_change,
    poller_close,
    poller_next,
    poller_open,
    poller_remove,
    poller_wait,
)
from kbroker._core.net.pressure cimport pressure_turn
from kbroker._core.net.relief cimport relief_arrive, relief_discard, relief_turn
from kbroker._core.net.service cimport (
    connection_key,
    find_connection,
    service_adopt,
    service_answer,
    service_close,
    service_event,
    service_finish,
    service_mute,
    service_resume,
    service_retry_post,
    service_warmed,
)
from kbroker._core.partitions cimport pthread_mutex_lock, pthread_mutex_unlock, table_release
from kbroker._core.purgatory cimport (
    purgatory_collect,
    purgatory_create,
    purgatory_destroy,
    purgatory_next_deadline,
    purgatory_on_wake,
)
from kbroker._core.record.compression cimport scratch_free
from kbroker._core.wire.chain cimport Chain, put_int32, put_raw

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t *set) noexcept
    int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) noexcept
    int SIG_BLOCK

cdef extern from "<sys/socket.h>" nogil:
    int shutdown(int fd, int how) noexcept
    int SHUT_RDWR

cdef extern from "<pthread.h>" nogil:
    pthread_t pthread_self() noexcept
    int pthread_equal(pthread_t a, pthread_t b) noexcept

# Keys of what is not a connection: generations never reach all ones.
cdef enum:
    BELL_SLOT = 0x7fffffff

cdef inline uint64_t special_key(int32_t which) noexcept nogil:
    return (<uint64_t> UINT32_MAX << 32) | <uint64_t> which


cdef int loop_open(Loop *l, Shared *shared, int32_t index) noexcept nogil:
    cdef int failed
    memset(l, 0, sizeof(Loop))
    l.shared = shared
    l.index = index
    l.inbox.bell.wait_fd = -1
    l.inbox.bell.ring_fd = -1
    l.poller.epoll_fd = -1
    l.egress.portable = shared.portable
    l.held_due_ms = INT64_MAX
    list_init(&l.free)
    list_init(&l.idle)
    list_init(&l.turn)
    list_init(&l.held)
    list_init(&l.starved)
    list_init(&l.behind)
    list_init(&l.heavy)
    list_init(&l.leaving)
    l.worker.loop_index = index
    l.worker.clock = shared.clock
    l.worker.sessions = shared.sessions
    l.worker.shared = shared
    l.worker.node_id = shared.node_id
    l.worker.fetch_max_bytes = shared.fetch_max_bytes
    l.worker.force_fallback_codecs = shared.force_fallback_codecs
    if not purgatory_create(&l.worker) or not run_create(&l.worker):
        return -ENOMEM
    purgatory_on_wake(&l.worker, wake_for_parked, l)
    failed = poller_open(&l.poller, shared.portable)
    if failed == 0:
        failed = inbox_open(&l.inbox, shared.portable)
    if failed == 0:
        failed = receiver_open(&l.receiver, &shared.requests, shared.request_max_bytes)
    if failed == 0:
        failed = poller_add(&l.poller, l.inbox.bell.wait_fd, special_key(BELL_SLOT), READABLE)
    return failed


cdef void loop_close(Loop *l) noexcept nogil:
    cdef int32_t i
    cdef Message *m
    close_listeners(l)
    if l.inbox.bell.wait_fd >= 0:
        m = inbox_take(&l.inbox)
        while m != NULL:
            if m.kind == ARRIVE:
                relief_discard(l, <const Connection *> message_payload(m), STOPPED)
            m = discard(m)
    for i in range(l.slot_count):
        service_close(l, l.slots[i], STOPPED)
    for i in range(l.slot_count):
        free(l.slots[i])
    free(l.slots)
    l.slots = NULL
    l.slot_count = 0
    apis_release(l.worker.apis)
    l.worker.apis = NULL
    run_destroy(&l.worker)
    if l.worker.purgatory != NULL:
        purgatory_destroy(&l.worker)
    scratch_free(&l.worker.scratch)
    egress_close(&l.egress)
    receiver_close(&l.receiver)
    inbox_close(&l.inbox)
    poller_close(&l.poller)


cdef Message *discard(Message *m) noexcept nogil:
    cdef Message *following = m.next
    if m.fd >= 0:
        close(m.fd)
    free(m)
    return following


cdef void apis_release(ApiTable *t) noexcept nogil:
    cdef int i
    if t == NULL or not release_count(&t.references):
        return
    for i in range(6):
        free(t.bodies[i])
    free(t)


cdef void loop_run(Loop *l) noexcept nogil:
    # Signals are the host program's: its own threads get them. Among them SIGPIPE, which sendfile can cause.
    cdef sigset_t all_signals
    sigfillset(&all_signals)
    pthread_sigmask(SIG_BLOCK, &all_signals, NULL)
    l.thread = pthread_self()
    l.window_us = mono_us()
    while not load_int32(&l.shared.stopping):
        turn(l)


cdef int wait(Loop *l) noexcept nogil:
    cdef int64_t began_us
    cdef int found
    if l.shared.loop_count == l.shared.regular_count:
        return poller_wait(&l.poller, sleep_ms(l))
    began_us = mono_us()
    found = poller_wait(&l.poller, sleep_ms(l))
    l.waited_us += mono_us() - began_us
    return found


cdef void turn(Loop *l) noexcept nogil:
    cdef uint64_t key
    cdef int what
    cdef bint heard = False
    cdef bint slept = wait(l) == 0
    cdef Connection *c
    l.counters.turns += 1
    l.now_ms = mono_ms(l.shared.clock)
    l.receiver.now_ms = l.now_ms
    take_apis(l)
    while poller_next(&l.poller, &key, &what):
        if <uint32_t> (key >> 32) != UINT32_MAX:
            c = find_connection(l, <int32_t> key)
            if c != NULL and connection_key(c) == key:
                service_event(l, c, what)
        elif <int32_t> key == BELL_SLOT:
            heard = True
        else:
            accept_burst(l, <int32_t> key)
    if heard:
        release_tables(l)                # a reply may tell of topics that this turn's tables do not know yet
        read_inbox(l)
    go_on(l)
    if l.held.next != &l.held and (heard or slept or l.now_ms >= l.held_due_ms):
        look_at_held(l)
    close_idle(l)
    pressure_turn(l)
    if l.accept_again_ms != 0:
        maybe_accept_again(l, heard)
    if load_int32(&l.shared.draining) and not l.draining:
        begin_drain(l)
    collect(l)                           # last: everything above may have woken someone
    relief_turn(l)
    release_tables(l)
    if l.posted:
        l.posted = False
        mailbox_ring(&l.shared.mailbox)


cdef int sleep_ms(Loop *l) noexcept nogil:
    # A clock that is held or set ahead moves without waking anyone, so sleep is short enough to notice.
    cdef int64_t longest = SLEEP_HELD_MS if load_int32(&l.shared.clock.held) else SLEEP_MS
    cdef int64_t now = mono_ms(l.shared.clock)
    cdef int64_t due = INT64_MAX
    cdef int64_t parked_due
    if l.turn.next != &l.turn:
        return 0
    if l.shared.idle_max_ms >= 0 and l.idle.next != &l.idle:
        due = l.idle.next.owner.active_ms + l.shared.idle_max_ms
    if l.held_due_ms < due:
        due = l.held_due_ms
    parked_due = purgatory_next_deadline(&l.worker)
    if 0 <= parked_due < due:
        due = parked_due
    if l.accept_again_ms != 0:
        longest = min(longest, ACCEPT_RETRY_MS, max(0, l.accept_again_ms - mono_us() // 1000))
    if l.index == l.shared.regular_count:            # the relief thread: idle connections return to their own loop
        if l.open_count == 0:
            return -1
        longest = min(longest, RELIEF_IDLE_MS)
    if due == INT64_MAX or due - now > longest:
        return <int> longest
    return <int> (due - now) if due > now else 0


cdef void take_apis(Loop *l) noexcept nogil:
    cdef ApiTable *old
    if load_int32(&l.shared.apis_version) == l.apis_version:
        return
    old = l.worker.apis
    pthread_mutex_lock(&l.shared.apis_lock)
    l.worker.apis = l.shared.apis
    l.apis_version = l.shared.apis_version
    if l.worker.apis != NULL:
        retain_count(&l.worker.apis.references)
    pthread_mutex_unlock(&l.shared.apis_lock)
    apis_release(old)


cdef void release_tables(Loop *l) noexcept nogil:
    cdef int32_t i
    for i in range(load_int32(&l.shared.view_count)):
        if l.tables[i] != NULL:
            table_release(l.tables[i])
            l.tables[i] = NULL
    l.worker.table = NULL


cdef void collect(Loop *l) noexcept nogil:
    # Parked requests that were woken or have waited long enough.
    cdef Peer peer
    cdef Connection *c
    cdef Chain *reply = egress_chain(&l.egress)
    while reply != NULL and purgatory_collect(&l.worker, &peer, reply):
        c = find_connection(l, peer.slot)
        if c == NULL or c.generation != peer.generation or c.waiting != PARKED_REQUEST:
            egress_recycle(&l.egress, reply)
        else:
            service_answer(l, c, reply)
            service_resume(l, c)
        reply = egress_chain(&l.egress)
    if reply != NULL:
        egress_recycle(&l.egress, reply)


cdef void wake_for_parked(void *context) noexcept nogil:
    # Under a partition's lock, in whichever thread appended. The loop's own thread collects before it sleeps anyway.
    cdef Loop *l = <Loop *> context
    if not pthread_equal(pthread_self(), l.thread):
        inbox_ring(&l.inbox)


cdef void go_on(Loop *l) noexcept nogil:
    # Those that had more to do than one turn allows. Whoever still has more joins the list again, for the next turn.
    cdef Link batch
    cdef Connection *c
    if l.turn.next == &l.turn:
        return
    list_init(&batch)
    batch.next = l.turn.next
    batch.previous = l.turn.previous
    batch.next.previous = &batch
    batch.previous.next = &batch
    list_init(&l.turn)
    while batch.next != &batch:
        c = batch.next.owner
        list_remove(&c.turn)
        service_resume(l, c)


cdef void look_at_held(Loop *l) noexcept nogil:
    cdef Link *at = l.held.next
    cdef Connection *c
    cdef bint full = False
    l.held_due_ms = INT64_MAX
    while at != &l.held:
        c = at.owner
        at = at.next
        if c.waiting == STALLED_REQUEST:
            if not full:
                service_retry_post(l, c)
                full = c.waiting == STALLED_REQUEST
        elif c.muted_until_ms > l.now_ms:
            if c.muted_until_ms < l.held_due_ms:
                l.held_due_ms = c.muted_until_ms
        else:
            c.muted_until_ms = 0
            list_remove(&c.held)
            service_resume(l, c)


cdef void close_idle(Loop *l) noexcept nogil:
    # A request in progress keeps its connection; an unsent reply does not: its reader has had the time.
    cdef Link *at = l.idle.next
    cdef Connection *c
    if l.shared.idle_max_ms < 0:
        return
    while at != &l.idle and at.owner.active_ms + l.shared.idle_max_ms <= l.now_ms:
        c = at.owner
        at = at.next
        if c.waiting == NO_REQUEST and c.muted_until_ms == 0:
            service_close(l, c, IDLE)
        else:
            c.active_ms = l.now_ms
            list_remove(&c.idle)
            list_append(&l.idle, &c.idle)


# ---- what the loop is told ----

cdef void read_inbox(Loop *l) noexcept nogil:
    cdef Message *m = inbox_take(&l.inbox)
    take_apis(l)                         # after inbox_take: the loop that sent a connection here may have a newer table
    while m != NULL:
        if m.kind == REPLY or m.kind == HANG_UP:
            m = take_word(l, m)
            continue
        elif m.kind == WARMED:
            send_warmed(l, m)
        elif m.kind == ADOPT:
            service_adopt(l, m.fd, &m.address, m.listener_index)
            m.fd = -1
        elif m.kind == ARRIVE:
            relief_arrive(l, <const Connection *> message_payload(m))
        elif m.kind == OPEN_LISTENER:
            open_listener(l, m)
        m = discard(m)


cdef Message *take_word(Loop *l, Message *m) noexcept nogil:
    # What the control loop says to a posted request; returns the message behind it. It waits for those before it.
    cdef Message *following = m.next
    cdef Connection *c = find_connection(l, token_slot(m.token))
    cdef uint64_t place = 0
    if c != NULL:
        place = token_serial(m.token) - c.serial
    if c == NULL or c.waiting != POSTED_REQUEST or token_serial(m.token) < c.serial or place >= <uint64_t> c.awaited:
        discard(m)                       # the connection has gone, or the request was answered before
        return following
    if place > 0:
        keep_early(c, m)
        return following
    while m != NULL:
        if m.kind == REPLY:
            take_reply(l, c, m)
        else:
            service_finish(l, c, BY_CONTROL, <const char *> message_payload(m))
        discard(m)
        m = NULL
        if c.fd >= 0 and c.early != NULL and token_serial(c.early.token) == c.serial:
            m = c.early
            c.early = m.next
    if c.waiting == POSTED_REQUEST:
        if not linked(&c.turn):
            list_append(&l.turn, &c.turn)    # the others' answers may be in this inbox too: they leave together
    else:
        service_resume(l, c)
    return following


cdef void keep_early(Connection *c, Message *m) noexcept nogil:
    cdef Message **at = &c.early
    while at[0] != NULL and at[0].token < m.token:
        at = &at[0].next
    if at[0] != NULL and at[0].token == m.token:
        discard(m)
        return
    m.next = at[0]
    at[0] = m


cdef void take_reply(Loop *l, Connection *c, Message *m) noexcept nogil:
    cdef Chain *reply = NULL
    if m.length >= 0:
        reply = egress_chain(&l.egress)
        if reply == NULL:
            service_finish(l, c, NO_ROOM, b"out of memory for a reply")
            return
        put_int32(reply, <int32_t> m.length)
        put_raw(reply, message_payload(m), m.length)
    if m.principal >= 0:
        c.principal = m.principal
    service_answer(l, c, reply)
    if c.fd >= 0 and m.mute_ms > 0:
        service_mute(l, c, m.mute_ms)
    if c.fd >= 0 and m.close_after:
        service_finish(l, c, BY_CONTROL, NULL)


cdef void tell_warmed(void *shared, const Errand *errand) noexcept nogil:
    # Without memory for the message the connection waits until it is idle for too long; there is nothing better to do then.
    cdef Message *m = message_new(WARMED, NULL, 0)
    if m != NULL:
        m.token = errand.key
        inbox_put(&(<Shared *> shared).loops[errand.loop_index].inbox, m)


cdef void send_warmed(Loop *l, Message *m) noexcept nogil:
    cdef Connection *c = find_connection(l, <int32_t> m.token)
    if c != NULL and connection_key(c) == m.token and c.warming:
        service_warmed(l, c)


cdef void tell_relieved(void *shared) noexcept nogil:
    # In whichever thread gave memory back: those who wait for it may be any loop's.
    cdef Shared *s = <Shared *> shared
    cdef int32_t i
    for i in range(s.loop_count):
        inbox_ring(&s.loops[i].inbox)


# ---- accepting ----

cdef void open_listener(Loop *l, Message *m) noexcept nogil:
    cdef int32_t i = m.listener_index
    if l.draining:
        return
    l.listeners[i].fd = m.fd
    l.listeners[i].watched = True
    m.fd = -1
    while l.listener_count <= i:
        if l.listener_count != i:
            l.listeners[l.listener_count].fd = -1
        l.listener_count += 1
    if poller_add(&l.poller, l.listeners[i].fd, special_key(i), READABLE) < 0:
        close(l.listeners[i].fd)
        l.listeners[i].fd = -1


cdef void close_listeners(Loop *l) noexcept nogil:
    cdef int32_t i
    for i in range(l.listener_count):
        if l.listeners[i].fd >= 0:
            poller_remove(&l.poller, l.listeners[i].fd)
            shutdown(l.listeners[i].fd, SHUT_RDWR)   # frees the port even if a forked process holds a copy
            close(l.listeners[i].fd)
            l.listeners[i].fd = -1
    l.listener_count = 0


cdef void watch_listeners(Loop *l, bint watched) noexcept nogil:
    cdef int32_t i
    for i in range(l.listener_count):
        if l.listeners[i].fd >= 0 and l.listeners[i].watched != watched:
            l.listeners[i].watched = watched
            poller_change(&l.poller, l.listeners[i].fd, special_key(i), READABLE if watched else 0)


cdef void pause_accepting(Loop *l, int64_t milliseconds, const char *why, const Address *address) noexcept nogil:
    # Further clients wait in the backlog. The listening sockets stay readable: watching them would be a busy loop.
    watch_listeners(l, False)
    l.accept_again_ms = mono_us() // 1000 + milliseconds
    events_note(&l.shared.events, ACCEPT_PAUSED, why, address)
    l.posted = True


cdef void maybe_accept_again(Loop *l, bint heard) noexcept nogil:
    # Whoever leaves a full house rings; for the system's resources there is only the time.
    if not (heard and l.accept_full) and mono_us() // 1000 < l.accept_again_ms:
        return
    if admission_full(&l.shared.admission):
        l.accept_again_ms = mono_us() // 1000 + ACCEPT_RETRY_MS
        return
    l.accept_again_ms = 0
    l.accept_full = False
    watch_listeners(l, True)


cdef void accept_burst(Loop *l, int32_t i) noexcept nogil:
    cdef Address address
    cdef int64_t delay_ms
    cdef int accepted
    cdef int fd
    memset(&address, 0, sizeof(address))
    if i >= l.listener_count or l.listeners[i].fd < 0 or not l.listeners[i].watched:
        return
    for accepted in range(ACCEPT_BURST):
        if admission_full(&l.shared.admission):
            l.accept_full = True
            pause_accepting(l, ACCEPT_RETRY_MS, b"max.connections is reached", &address)
            return
        delay_ms = admission_delay_ms(&l.shared.admission, mono_us())
        if delay_ms > 0:
            pause_accepting(l, delay_ms, b"max.connection.creation.rate is reached", &address)
            return
        fd = accept_next(l.listeners[i].fd, &address)
        if fd == -EMFILE or fd == -ENFILE or fd == -ENOBUFS or fd == -ENOMEM:
            pause_accepting(l, ACCEPT_RETRY_MS, b"out of file descriptors or socket memory", &address)
            return
        if fd == -EAGAIN:
            return
        if fd < 0:
            continue                     # this one gave up while it waited (ECONNABORTED and the like)
        if not admission_enter(&l.shared.admission, &address):
            l.counters.closed[<int> TOO_MANY] += 1
            events_note(&l.shared.events, REFUSED, b"max.connections.per.ip is reached", &address)
            l.posted = True
            close(fd)
            continue
        hand_over(l, fd, &address, i)


cdef void hand_over(Loop *l, int fd, const Address *address, int32_t listener_index) noexcept nogil:
    cdef int32_t target = l.next_loop
    cdef Message *m
    l.next_loop = (target + 1) % l.shared.regular_count
    if target == l.index:
        service_adopt(l, fd, address, listener_index)
        return
    m = message_new(ADOPT, NULL, 0)
    if m == NULL:
        close(fd)
        admission_leave(&l.shared.admission, address)
        return
    m.fd = fd
    m.address = address[0]
    m.listener_index = listener_index
    inbox_put(&l.shared.loops[target].inbox, m)


# ---- the end ----

cdef void begin_drain(Loop *l) noexcept nogil:
    # No new connections, no new requests. Each connection closes when what it has begun is answered and sent.
    cdef int32_t i
    close_listeners(l)
    store_int32(&l.draining, 1)
    for i in range(l.slot_count):
        service_resume(l, l.slots[i])
    if l.open_count == 0:
        bell_ring(&l.shared.emptied)
