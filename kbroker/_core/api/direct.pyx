# direct: the api rooms without a network. Tests and benchmarks hand it frames and get the reply's bytes.
# One DirectCaller stands for one network thread with as many connections as the test likes to number.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from posix.unistd cimport pread

from kbroker._core.api.dispatch cimport dispatch
from kbroker._core.api.produce cimport Run, run_create, run_destroy, run_settle
from kbroker._core.api.request cimport HELD, READY, ApiTable, Outcome, Peer, Request, Worker
from kbroker._core.clock cimport BrokerClock
from kbroker._core.fetch_session cimport sessions_count, sessions_create, sessions_destroy
from kbroker._core.limits cimport APPENDS_AT_ONCE, FETCH_SESSIONS_MAX
from kbroker._core.partitions cimport table_release, view_acquire
from kbroker._core.views cimport ViewHandle
from kbroker._core.purgatory cimport (
    purgatory_collect, purgatory_count, purgatory_create, purgatory_destroy, purgatory_forget, purgatory_next_deadline,
    purgatory_on_wake,
)
from kbroker._core.record.compression cimport scratch_free
from kbroker._core.wire.chain cimport Chain, Piece, chain_clear, chain_free

OUTCOMES = ("READY", "SILENT", "PARKED", "POST", "CLOSE")
PRODUCE_KEY = b"\0\0"


cdef void count_wake(void *context) noexcept nogil:
    (<int64_t *> context)[0] += 1


cdef bytes flatten(Chain *chain):
    """The reply as a client would read it: byte runs from the arena, slices from their files."""
    cdef Piece *piece
    cdef int32_t i
    cdef uint8_t *buffer
    cdef int64_t got
    parts = []
    if chain.broken:
        raise MemoryError
    for i in range(chain.piece_count):
        piece = &chain.pieces[i]
        if piece.fd < 0:
            parts.append((<const char *> chain.arena)[piece.start:piece.start + piece.length])
            continue
        buffer = <uint8_t *> malloc(piece.length)
        if buffer == NULL:
            raise MemoryError
        got = pread(piece.fd, buffer, piece.length, piece.start)
        parts.append((<const char *> buffer)[:max(got, 0)])
        free(buffer)
    return b"".join(parts)


cdef class Copy:
    """A frame in memory of exactly its size, so that a sanitizer sees every overrun."""

    cdef uint8_t *data
    cdef int32_t length

    def __cinit__(self, bytes frame not None):
        self.length = <int32_t> len(frame)
        self.data = <uint8_t *> malloc(self.length if self.length > 0 else 1)
        if self.data == NULL:
            raise MemoryError
        memcpy(self.data, <const char *> frame, self.length)

    def __dealloc__(self):
        free(self.data)


cdef class DirectCaller:
    """Calls dispatch on whole frames (without their four size bytes) as a network thread would."""

    cdef Worker w
    cdef Chain chains[APPENDS_AT_ONCE + 1]     # one for each that is held, and one more
    cdef ApiTable *apis
    cdef object _clock
    cdef ViewHandle _view
    cdef bint _owns_sessions
    cdef DirectCaller _neighbour
    cdef int64_t _wakes

    def __cinit__(self, BrokerClock clock not None, ViewHandle view not None, dict apis not None, list bodies not None,
                  int32_t node_id=1, int32_t fetch_max_bytes=57671680, int32_t sessions_max=FETCH_SESSIONS_MAX,
                  DirectCaller neighbour=None, int force_fallback_codecs=0):
        """apis: key -> (min, max, flexible from, native); bodies: six of ApiVersions, the last for unknown versions."""
        cdef int i
        memset(&self.w, 0, sizeof(Worker))
        memset(self.chains, 0, sizeof(self.chains))
        self._clock = clock
        self._view = view
        self._neighbour = neighbour
        self.apis = <ApiTable *> calloc(1, sizeof(ApiTable))
        if self.apis == NULL or not purgatory_create(&self.w) or not run_create(&self.w):
            raise MemoryError
        purgatory_on_wake(&self.w, count_wake, &self._wakes)
        for i in range(128):
            self.apis.min_version[i] = -1
            self.apis.max_version[i] = -1
        for key, (low, high, flexible_from, native) in apis.items():
            i = key
            if i < 0 or i >= 128:
                raise ValueError(f"api key {i} is out of the table")
            self.apis.min_version[i] = low
            self.apis.max_version[i] = high
            self.apis.flexible_from[i] = flexible_from
            self.apis.native_key[i] = native
        for i in range(6):
            self.apis.lengths[i] = <int32_t> len(bodies[i])
            self.apis.bodies[i] = <uint8_t *> malloc(len(bodies[i]) + 1)
            if self.apis.bodies[i] == NULL:
                raise MemoryError
            memcpy(self.apis.bodies[i], <const char *> (<bytes> bodies[i]), len(bodies[i]))
        self.w.clock = &clock.c
        self.w.apis = self.apis
        self._owns_sessions = neighbour is None
        self.w.sessions = sessions_create(sessions_max) if neighbour is None else neighbour.w.sessions
        self.w.node_id = node_id
        self.w.fetch_max_bytes = fetch_max_bytes
        self.w.force_fallback_codecs = force_fallback_codecs

    def __dealloc__(self):
        cdef int i
        run_destroy(&self.w)
        purgatory_destroy(&self.w)
        if self._owns_sessions:
            sessions_destroy(self.w.sessions)
        for i in range(APPENDS_AT_ONCE + 1):
            chain_free(&self.chains[i])
        scratch_free(&self.w.scratch)
        if self.apis != NULL:
            for i in range(6):
                free(self.apis.bodies[i])
            free(self.apis)

    def call(self, bytes frame not None, int32_t slot=0, int64_t generation=1):
        """(outcome, reply bytes or None, reason or None) of one frame from connection `slot`."""
        return self.pipeline([frame], slot, generation)[0]

    def pipeline(self, list frames not None, int32_t slot=0, int64_t generation=1):
        """The same of frames that came together: a Produce that another one follows is held for it."""
        cdef Run *run = <Run *> self.w.run
        cdef Request r
        cdef Outcome outcome
        cdef Copy copy
        cdef bint settles
        cdef int32_t i
        answers = []
        copies = []                # held until the last is answered
        self.w.table = view_acquire(&self._view.v)
        for number, frame in enumerate(frames, 1):
            copy = Copy(frame)
            copies.append(copy)
            self.begin(&r, copy, slot, generation)
            settles = number == len(frames) or frames[number][:2] != PRODUCE_KEY
            with nogil:
                outcome = dispatch(&self.w, &r, &self.chains[run.count])
                settles = settles or outcome != HELD or run.full
                if settles:
                    run_settle(&self.w)
            if settles:
                for i in range(run.count):
                    answers.append(self.told(&run.held[i].r, run.held[i].outcome, run.held[i].reply))
                if outcome != HELD:
                    answers.append(self.told(&r, outcome, &self.chains[run.count]))
                run.count = 0
        table_release(self.w.table)
        self.w.table = NULL
        return answers

    cdef void begin(self, Request *r, Copy frame, int32_t slot, int64_t generation) noexcept:
        memset(r, 0, sizeof(Request))
        r.frame = frame.data
        r.length = frame.length
        r.peer.loop_index = self.w.loop_index
        r.peer.slot = slot
        r.peer.generation = generation
        r.view = &self._view.v

    cdef object told(self, const Request *r, Outcome outcome, Chain *reply):
        try:
            return (OUTCOMES[<int> outcome], flatten(reply) if outcome == READY else None,
                    r.reason.decode() if r.reason != NULL else None)
        finally:
            chain_clear(reply)

    def collect(self):
        """(slot, reply bytes) of one parked request that was woken or whose time has come, or None."""
        cdef Peer peer
        cdef bint found
        with nogil:
            found = purgatory_collect(&self.w, &peer, &self.chains[0])
        if not found:
            return None
        try:
            return peer.slot, flatten(&self.chains[0])
        finally:
            chain_clear(&self.chains[0])

    def forget(self, int32_t slot, int64_t generation=1):
        cdef Peer peer
        peer.loop_index = self.w.loop_index
        peer.slot = slot
        peer.generation = generation
        with nogil:
            purgatory_forget(&self.w, &peer)

    @property
    def parked(self):
        return purgatory_count(&self.w)

    @property
    def wakes(self):
        return self._wakes

    @property
    def sessions(self):
        return sessions_count(self.w.sessions)

    @property
    def next_deadline_ms(self):
        return purgatory_next_deadline(&self.w)
