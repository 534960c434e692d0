# One broker's native side, as Python holds it.
import os
import threading

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from kbroker._core.api.request cimport ApiTable
from kbroker._core.c.platform cimport LINUX_CALLS
from kbroker._core.c.prelude cimport full_fence, load_counter, load_int32, store_int32
from kbroker._core.clock cimport BrokerClock, mono_us
from kbroker._core.fetch_session cimport sessions_count, sessions_create, sessions_destroy
from kbroker._core.limits cimport (
    CONNECTION_BUFFER_FIRST_BYTES,
    FETCH_SESSIONS_MAX,
    LISTENERS_MAX,
    LOOPS_MAX,
    MAILBOX_BYTES_MAX,
    MAILBOX_SLOTS,
    MAILBOX_SLOTS_MAX,
    REPLY_BYTES_MAX,
    REQUEST_BYTES_MAX,
    VIEWS_MAX,
)
from kbroker._core.net.binding import bind_socket
from kbroker._core.net.budget cimport budget_answer
from kbroker._core.net.listener cimport admission_close, admission_limit, admission_open, admission_override
from kbroker._core.net.loop cimport (
    API_KEYS,
    CLOSE_REASONS,
    Loop,
    apis_release,
    loop_close,
    loop_open,
    loop_run,
    tell_relieved,
    tell_warmed,
    token_loop,
)
from kbroker._core.net.mailbox cimport (
    HANG_UP,
    OPEN_LISTENER,
    REPLY,
    Address,
    Event,
    Letter,
    Message,
    events_close,
    events_open,
    events_take,
    inbox_put,
    inbox_put_all,
    inbox_ring,
    mailbox_close,
    mailbox_open,
    mailbox_take,
    message_new,
)
from kbroker._core.net.poller cimport POLLIN, bell_clear, bell_close, bell_open, poll, pollfd
from kbroker._core.net.warmer cimport warmer_close, warmer_open
from kbroker._core.partitions cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kbroker._core.purgatory cimport purgatory_count
from kbroker._core.views cimport ViewHandle

cdef extern from "<sched.h>" nogil:
    int sched_yield() noexcept

cdef extern from "<arpa/inet.h>" nogil:
    int AF_INET, AF_INET6
    const char *inet_ntop(int family, const void *host, char *text, unsigned int length) noexcept

CLOSE_REASON_NAMES = (
    "peer_closed", "peer_reset", "frame_size", "refused_request", "by_control", "idle", "too_many_from_address",
    "drained", "stopped", "out_of_memory", "unsendable", "memory_short",
)
# Whether the build avoids Linux's own system calls (c/platform.h).
IS_PORTABLE_BUILD = not LINUX_CALLS
EVENT_NAMES = ("closed", "refused", "accept_paused")


cdef enum:
    TAKE_AT_ONCE = 256


cdef str host_text(const Address *address):
    cdef char text[64]
    inet_ntop(AF_INET6 if address.v6 else AF_INET, address.host, text, sizeof(text))
    return text.decode("ascii")


def never_free(thing):
    """Keeps an object until the process ends, past the end of the interpreter: a forked child must not free its parent's."""
    Py_INCREF(thing)


cdef class Core:
    """One broker's network threads and what they share. Start it with listen() and start(); end it with close()."""

    def __cinit__(
        self,
        BrokerClock clock not None,
        *,
        int node_id,
        int network_threads=1,
        int socket_request_max_bytes=104857600,
        long long max_idle_ms=600000,
        int max_connections=INT32_MAX,
        int max_connections_per_ip=INT32_MAX,
        per_ip_overrides=(),
        int max_connection_creation_rate=INT32_MAX,
        int mailbox_slots=MAILBOX_SLOTS,
        long long mailbox_max_bytes=MAILBOX_BYTES_MAX,
        long long request_bytes_max=REQUEST_BYTES_MAX,
        long long reply_bytes_max=REPLY_BYTES_MAX,
        int fetch_max_bytes=57671680,
        int fetch_sessions_max=FETCH_SESSIONS_MAX,
        int force_fallback_codecs=0,
        bint portable=False,
        bint relief_thread=False,
        bint move_always=False,
    ):
        if not 1 <= network_threads <= LOOPS_MAX:
            raise ValueError(f"num.network.threads is {network_threads}, not between 1 and {LOOPS_MAX}")
        if mailbox_slots < 1:
            raise ValueError(f"a mailbox needs slots, not {mailbox_slots}")
        mailbox_slots = min(mailbox_slots, MAILBOX_SLOTS_MAX)
        memset(&self.s, 0, sizeof(self.s))
        self._clock = clock
        self._threads = []
        self._views = []
        self.addresses = []
        self._taken = {}
        self.s.clock = &clock.c
        self.s.node_id = node_id
        self.s.request_max_bytes = socket_request_max_bytes
        self.s.idle_max_ms = 1 if max_idle_ms == 0 else max_idle_ms      # what is busy now is not idle within this turn
        self.s.portable = portable or not LINUX_CALLS
        self.s.fetch_max_bytes = fetch_max_bytes
        self.s.force_fallback_codecs = force_fallback_codecs
        self.s.regular_count = network_threads
        if relief_thread and network_threads < LOOPS_MAX:
            network_threads += 1
        self.s.move_always = move_always
        self.s.requests.limit_bytes = request_bytes_max
        self.s.requests.context = &self.s
        self.s.requests.relieved = tell_relieved
        self.s.reply_bytes_max = reply_bytes_max
        self.s.emptied.wait_fd = -1
        self.s.emptied.ring_fd = -1
        pthread_mutex_init(&self.s.apis_lock, NULL)
        warmer_open(&self.s.warmer, tell_warmed, &self.s)
        self._opened = True
        cdef int failed = mailbox_open(&self.s.mailbox, mailbox_slots, mailbox_max_bytes, self.s.portable)
        failed = events_open(&self.s.events) or failed
        failed = admission_open(&self.s.admission, max_connections, max_connections_per_ip, max_connection_creation_rate) or failed
        for host, own_max in per_ip_overrides:
            failed = self._override(host, own_max) or failed
        failed = bell_open(&self.s.emptied, self.s.portable) or failed
        self.s.loops = <Loop **> calloc(network_threads, sizeof(Loop *))
        self.s.sessions = sessions_create(fetch_sessions_max)
        if self.s.loops == NULL or self.s.sessions == NULL:
            raise MemoryError
        cdef Loop *loop
        while failed == 0 and self.s.loop_count < network_threads:
            loop = <Loop *> malloc(sizeof(Loop))
            if loop == NULL:
                raise MemoryError
            failed = loop_open(loop, &self.s, self.s.loop_count)
            self.s.loops[self.s.loop_count] = loop
            self.s.loop_count += 1
        if failed:
            raise OSError(-failed, os.strerror(-failed))

    cdef int _override(self, bytes host, int own_max) except 1:
        cdef Address address
        if len(host) not in (4, 16):
            raise ValueError(f"an address has 4 or 16 bytes, not {len(host)}")
        memset(&address, 0, sizeof(address))
        address.v6 = len(host) == 16
        memcpy(address.host, PyBytes_AS_STRING(host), len(host))
        return admission_override(&self.s.admission, &address, own_max)

    def limit_connections(self, int most, int most_per_ip, per_ip_overrides, int creation_rate):
        """Other limits while the threads run: max.connections, max.connections.per.ip and its overrides, the rate of KIP-612."""
        self._check_open()
        admission_limit(&self.s.admission, most, most_per_ip, creation_rate)
        for host, own_max in per_ip_overrides:
            if self._override(host, own_max) != 0:
                raise MemoryError
        self.nudge()                     # who waits outside may come in now

    def __dealloc__(self):
        # Never while a thread runs: a running thread holds a reference.
        if self._opened and not self._closed:
            self._release()

    cdef void _check_open(self) except *:
        if self._closed:
            raise RuntimeError("this core is closed")

    # ---- life ----

    def listen(self, str host, int port, ViewHandle view=None, int backlog=4096, *,
               int receive_buffer_bytes=-1, int send_buffer_bytes=-1):
        """Bind one exclusive listening socket and return its port. An empty host means every address.

        Its clients see the topics of `view`; without one, none.
        """
        self._check_open()
        if self._listeners == LISTENERS_MAX:
            raise ValueError(f"more than {LISTENERS_MAX} listeners")
        cdef int seen = self._view_index(ViewHandle() if view is None else view)
        sock = bind_socket(host, port, backlog, receive_buffer_bytes, send_buffer_bytes)
        address = sock.getsockname()[:2]
        cdef Message *m = message_new(OPEN_LISTENER, NULL, 0)
        if m == NULL:
            sock.close()
            raise MemoryError
        m.listener_index = self._listeners
        self.s.listener_view[self._listeners] = seen
        self._listeners += 1
        m.fd = sock.detach()
        inbox_put(&self.s.loops[0].inbox, m)
        self.addresses.append(address)
        return address[1]

    cdef int _view_index(self, ViewHandle view) except -1:
        cdef int i
        for i in range(self.s.view_count):
            if self.s.views[i] == &view.v:
                return i
        if self.s.view_count == VIEWS_MAX:
            raise ValueError(f"more than {VIEWS_MAX} views")
        self._views.append(view)
        self.s.views[self.s.view_count] = &view.v
        store_int32(&self.s.view_count, self.s.view_count + 1)
        return self.s.view_count - 1

    def start(self):
        """Start the network threads. They give the GIL away once and never take it again."""
        self._check_open()
        if self._started:
            raise RuntimeError("this core is started already")
        self._started = True
        for index in range(self.s.loop_count):
            thread = threading.Thread(target=self._run, args=(index,), name=f"kbroker-net-{index}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, int index):
        cdef Loop *loop = self.s.loops[index]
        with nogil:
            loop_run(loop)

    def drain(self, long long timeout_ms):
        """Accept nothing more, finish and send what was begun, close. True when nobody is left in time.

        Blocks without the GIL. Posted requests still need their replies: call it from another thread than the one that gives them.
        """
        self._check_open()
        cdef int64_t deadline = mono_us() // 1000 + timeout_ms
        cdef int64_t rest
        cdef pollfd waiting
        waiting.fd = self.s.emptied.wait_fd
        waiting.events = POLLIN
        store_int32(&self.s.draining, 1)
        self.nudge()
        while self._started and not self._drained():
            rest = deadline - mono_us() // 1000
            if rest <= 0:
                return False
            with nogil:
                waiting.revents = 0
                poll(&waiting, 1, <int> (rest if rest < 1000 else 1000))
                bell_clear(&self.s.emptied)
        return True

    def _drained(self):
        cdef int i
        for i in range(self.s.loop_count):
            if not load_int32(&self.s.loops[i].draining):
                return False
        if load_counter(&self.s.in_transit) > 0:         # a draining loop hands no connection over, so it only falls
            return False
        full_fence()
        for i in range(self.s.loop_count):
            if load_int32(&self.s.loops[i].open_count) > 0:
                return False
        return True

    def close(self):
        """End the threads and close every descriptor, whatever is in flight. Closing twice is closing once."""
        if self._closed:
            return
        self._closed = True
        store_int32(&self.s.stopping, 1)
        self.nudge()
        for thread in self._threads:
            thread.join()
        self._release()
        self._threads.clear()
        self._views.clear()

    cdef void _release(self) noexcept:
        # Touches no Python object: it may run while the object is taken apart.
        cdef int i
        warmer_close(&self.s.warmer)             # before the inboxes it tells
        for i in range(self.s.loop_count):
            loop_close(self.s.loops[i])
        for i in range(self.s.loop_count):       # after all are closed: whoever leaves a full house rings the first loop
            free(self.s.loops[i])
        free(self.s.loops)
        self.s.loops = NULL
        self.s.loop_count = 0
        if self.s.sessions != NULL:
            sessions_destroy(self.s.sessions)
            self.s.sessions = NULL
        apis_release(self.s.apis)
        self.s.apis = NULL
        mailbox_close(&self.s.mailbox)
        events_close(&self.s.events)
        admission_close(&self.s.admission)
        bell_close(&self.s.emptied)
        pthread_mutex_destroy(&self.s.apis_lock)

    def nudge(self):
        """Have every loop look at the clock and its flags now instead of within half a second."""
        cdef int i
        for i in range(self.s.loop_count):
            inbox_ring(&self.s.loops[i].inbox)

    def descriptors(self):
        """The descriptors that stay open from the first to the last moment of this core: pollers and bells."""
        cdef int i
        found = set()
        if not self._closed:
            found |= {self.s.mailbox.bell.wait_fd, self.s.mailbox.bell.ring_fd, self.s.emptied.wait_fd, self.s.emptied.ring_fd}
            for i in range(self.s.loop_count):
                found |= {self.s.loops[i].inbox.bell.wait_fd, self.s.loops[i].inbox.bell.ring_fd}
                if not self.s.portable:
                    found.add(self.s.loops[i].poller.epoll_fd)
        return found

    # ---- requests for Python ----

    def fileno(self):
        """A descriptor that is readable while take() or events() has something to give."""
        self._check_open()
        return self.s.mailbox.bell.wait_fd

    def linger(self, long long microseconds):
        """Wait so long for a posted request, awake; whoever else wants this processor has it. True: there is one.

        Without the GIL. For whoever knows that one will come at once: to be woken takes longer than many an answer. The
        bell of a request that is taken before it was rung rings for nothing afterwards.
        """
        cdef int64_t until
        if self._closed:
            return False
        with nogil:
            until = mono_us() + microseconds
            while load_int32(&self.s.mailbox.count) == 0 and mono_us() < until:
                sched_yield()
        return load_int32(&self.s.mailbox.count) > 0

    def take(self, int limit=TAKE_AT_ONCE):
        """Up to `limit` posted requests: (token, listener index, principal, peer host, peer port, frame without its size)."""
        self._check_open()
        cdef Letter letters[TAKE_AT_ONCE]
        cdef bint wake_loops = False
        cdef int32_t taken = mailbox_take(&self.s.mailbox, letters, limit if limit < TAKE_AT_ONCE else TAKE_AT_ONCE, &wake_loops)
        cdef int32_t i
        cdef Letter *letter
        if wake_loops:
            self.nudge()
        requests = []
        try:
            for i in range(taken):
                letter = &letters[i]
                if letter.length > CONNECTION_BUFFER_FIRST_BYTES:
                    self._taken[letter.token] = letter.length
                requests.append((
                    letter.token, letter.listener_index, letter.principal, host_text(&letter.address), letter.address.port,
                    PyBytes_FromStringAndSize(<const char *> letter.frame, letter.length),
                ))
        finally:
            for i in range(taken):
                free(letters[i].frame)
        return requests

    def reply(self, token, bytes payload, *, long long principal=-1, long long mute_ms=0, bint close_after=False):
        """Answer a posted request with header and body (the size is added here), or with None: it has no answer.

        A token whose connection is gone, or that was answered before, is ignored.
        """
        cdef uint64_t name = token
        cdef int64_t length = -1
        cdef const uint8_t *data = NULL
        if payload is not None:
            length = PyBytes_GET_SIZE(payload)
            data = <const uint8_t *> PyBytes_AS_STRING(payload)
            if length > INT32_MAX - 4:
                raise ValueError(f"a reply of {length} bytes does not fit in a frame")
        self._give_back(token)
        cdef Message *m = message_new(REPLY, data, length)
        if m == NULL:
            raise MemoryError
        m.token = name
        m.principal = principal
        m.mute_ms = mute_ms
        m.close_after = close_after
        self._put(token_loop(name), m)

    def reply_all(self, replies):
        """reply() for each (token, payload); every loop that is told something is rung once, when it has been told all."""
        cdef Message *first[LOOPS_MAX]
        cdef Message *last[LOOPS_MAX]
        cdef Message *m
        cdef uint64_t name
        cdef const uint8_t *data
        cdef bytes payload
        cdef int64_t length
        cdef int i
        memset(first, 0, sizeof(first))
        try:
            for token, payload in replies:
                name = token
                length = -1 if payload is None else PyBytes_GET_SIZE(payload)
                if length > INT32_MAX - 4:
                    raise ValueError(f"a reply of {length} bytes does not fit in a frame")
                self._give_back(token)
                data = <const uint8_t *> PyBytes_AS_STRING(payload) if payload is not None else <const uint8_t *> NULL
                m = message_new(REPLY, data, length)
                if m == NULL:
                    raise MemoryError
                m.token = name
                i = token_loop(name)
                if self._closed or i >= self.s.loop_count:
                    free(m)                  # its connection is gone
                elif first[i] == NULL:
                    first[i] = last[i] = m
                else:
                    last[i].next = m
                    last[i] = m
        finally:
            for i in range(self.s.loop_count):
                if first[i] != NULL:
                    inbox_put_all(&self.s.loops[i].inbox, first[i], last[i])

    def close_connection(self, token, str reason):
        """Close the connection of a posted request instead of answering it; the reason comes back through events()."""
        cdef uint64_t name = token
        cdef bytes text = reason.encode("utf-8", "replace") + b"\0"
        self._give_back(token)
        cdef Message *m = message_new(HANG_UP, <const uint8_t *> PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        if m == NULL:
            raise MemoryError
        m.token = name
        self._put(token_loop(name), m)

    cdef void _give_back(self, token):
        # A posted request is held until it is answered, even if its connection has gone meanwhile.
        cdef int64_t cost
        if self._taken:
            cost = self._taken.pop(token, 0)
            if cost > 0 and not self._closed:
                budget_answer(&self.s.requests, cost)

    cdef void _put(self, int loop_index, Message *m) noexcept:
        if self._closed or loop_index >= self.s.loop_count:
            free(m)                          # its connection is gone
            return
        inbox_put(&self.s.loops[loop_index].inbox, m)

    # ---- published state ----

    def publish_apis(self, dict served, bodies):
        """Publish what this node serves: api key -> (min, max, first flexible version or None, native), and the pre-encoded
        ApiVersions bodies for versions 0 to 4 and the fallback."""
        self._check_open()
        if len(bodies) != 6:
            raise ValueError(f"six ApiVersions bodies, not {len(bodies)}")
        cdef ApiTable *t = <ApiTable *> calloc(1, sizeof(ApiTable))
        cdef ApiTable *old
        cdef int key, i
        cdef bytes body
        if t == NULL:
            raise MemoryError
        t.references = 1
        try:
            for key in range(API_KEYS):
                t.min_version[key] = -1
                t.max_version[key] = -1
                t.flexible_from[key] = 32767
            for key, (low, high, flexible_from, native) in served.items():
                if not 0 <= key < API_KEYS:
                    raise ValueError(f"api key {key} is out of range")
                t.min_version[key] = low
                t.max_version[key] = high
                t.flexible_from[key] = 32767 if flexible_from is None else flexible_from
                t.native_key[key] = bool(native)
            for i in range(6):
                body = bodies[i]
                t.lengths[i] = <int32_t> PyBytes_GET_SIZE(body)
                t.bodies[i] = <uint8_t *> malloc(t.lengths[i] + 1)
                if t.bodies[i] == NULL:
                    raise MemoryError
                memcpy(t.bodies[i], PyBytes_AS_STRING(body), t.lengths[i])
        except BaseException:
            apis_release(t)
            raise
        with nogil:
            pthread_mutex_lock(&self.s.apis_lock)
            old = self.s.apis
            self.s.apis = t
            store_int32(&self.s.apis_version, self.s.apis_version + 1)
            pthread_mutex_unlock(&self.s.apis_lock)
        apis_release(old)
        self.nudge()

    # ---- what happened ----

    def events(self):
        """What the network threads noticed since the last call: (kind, reason, peer host, peer port, how often in a row)."""
        cdef Event event
        if self._closed:
            return []
        noticed = []
        while events_take(&self.s.events, &event):
            noticed.append((EVENT_NAMES[event.kind], event.text.decode("utf-8", "replace"), host_text(&event.address),
                            event.address.port, event.count))
        return noticed

    def counters(self):
        """Sums over the loops, read without locks while they run."""
        cdef Loop *l
        cdef int i, j
        self._check_open()
        total = dict.fromkeys(
            ("connections_accepted", "bytes_in", "bytes_out", "turns", "requests_parked",
             "requests_parked_now", "requests_posted", "posts_stalled", "frames_starved", "receive_buffer_bytes",
             "reply_bytes_held", "connections_moved"), 0)
        requests = {}
        closed = dict.fromkeys(CLOSE_REASON_NAMES, 0)
        for i in range(self.s.loop_count):
            l = self.s.loops[i]
            total["connections_accepted"] += load_counter(&l.counters.accepted)
            total["bytes_in"] += load_counter(&l.counters.bytes_in)
            total["bytes_out"] += load_counter(&l.counters.bytes_out)
            total["turns"] += load_counter(&l.counters.turns)
            total["requests_parked"] += load_counter(&l.counters.parked)
            total["requests_parked_now"] += purgatory_count(&l.worker)
            total["requests_posted"] += load_counter(&l.counters.posted)
            total["posts_stalled"] += load_counter(&l.counters.stalled)
            total["connections_moved"] += load_counter(&l.counters.moved)
            total["frames_starved"] += load_counter(&l.counters.starved)
            total["reply_bytes_held"] += load_counter(<uint64_t *> &l.reply_bytes)
            total["receive_buffer_bytes"] += load_counter(<uint64_t *> &l.receiver.lent_bytes)
            for j in range(API_KEYS + 1):
                if l.counters.requests[j]:
                    key = j if j < API_KEYS else -1
                    requests[key] = requests.get(key, 0) + load_counter(&l.counters.requests[j])
            for j in range(<int> CLOSE_REASONS):
                closed[CLOSE_REASON_NAMES[j]] += load_counter(&l.counters.closed[j])
        total["connections_open"] = load_int32(&self.s.admission.open)   # the loops' counts miss one that moves
        total["requests"] = requests
        total["connections_closed"] = closed
        total["request_bytes_held"] = load_counter(<uint64_t *> &self.s.requests.used_bytes)
        total["fetch_sessions"] = sessions_count(self.s.sessions)
        total["mailbox_depth"] = load_int32(&self.s.mailbox.count)
        total["slices_warmed"] = load_counter(&self.s.warmer.slices)
        total["events_dropped"] = load_counter(&self.s.events.dropped)
        return total
