# probe: the seams of net, in use. Tests run it; quotas, faults and TLS will stand where it stands.
#   hooks       count what passes, refuse one api key, mute another
#   transform   every byte is masked, received in blocks through a buffer of its own, as a TLS record would be
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from posix.uio cimport iovec

from kbroker._core.api.request cimport Outcome, Request
from kbroker._core.c.prelude cimport load_int64
from kbroker._core.c.sockets cimport SEND_QUIETLY, recv, send
from kbroker._core.core cimport Core
from kbroker._core.net.egress cimport Transform
from kbroker._core.wire.chain cimport Chain

cdef enum:
    BLOCK_BYTES = 1000

OUTCOMES = ("READY", "SILENT", "PARKED", "POST", "CLOSE")


cdef struct Seen:
    int64_t before
    int64_t after[5]
    int32_t refused_key
    int32_t muted_key
    int64_t mute_ms

cdef struct Mask:
    uint8_t mask
    int64_t open_count

cdef struct Masked:
    Mask *mask
    int64_t at
    int64_t filled
    uint8_t block[BLOCK_BYTES]


cdef bint count_before(void *context, Request *r) noexcept nogil:
    cdef Seen *seen = <Seen *> context
    seen.before += 1
    if r.api_key == seen.refused_key:
        r.reason = b"refused by the probe"
        return False
    return True


cdef int64_t count_after(void *context, Request *r, Outcome outcome, Chain *reply) noexcept nogil:
    cdef Seen *seen = <Seen *> context
    seen.after[<int> outcome] += 1
    return seen.mute_ms if r.api_key == seen.muted_key else 0


cdef void *open_masked(void *context) noexcept nogil:
    cdef Masked *m = <Masked *> calloc(1, sizeof(Masked))
    if m != NULL:
        m.mask = <Mask *> context
        m.mask.open_count += 1
    return m


cdef void release_masked(void *state) noexcept nogil:
    (<Masked *> state).mask.open_count -= 1
    free(state)


cdef int64_t buffered_masked(void *state) noexcept nogil:
    return (<Masked *> state).filled - (<Masked *> state).at


cdef ssize_t receive_masked(void *state, int fd, uint8_t *into, size_t length) noexcept nogil:
    cdef Masked *m = <Masked *> state
    cdef ssize_t n
    cdef int64_t i
    if m.at == m.filled:
        n = recv(fd, m.block, BLOCK_BYTES, 0)
        if n <= 0:
            return n
        m.at = 0
        m.filled = n
    n = min(<int64_t> length, m.filled - m.at)
    for i in range(n):
        into[i] = m.block[m.at + i] ^ m.mask.mask
    m.at += n
    return n


cdef ssize_t send_masked(void *state, int fd, const iovec *runs, int count) noexcept nogil:
    # The first run alone, and at most a block of it: short sends are part of the contract.
    cdef Masked *m = <Masked *> state
    cdef uint8_t block[BLOCK_BYTES]
    cdef const uint8_t *data = <const uint8_t *> runs[0].iov_base
    cdef size_t length = min(runs[0].iov_len, <size_t> BLOCK_BYTES)
    cdef size_t i
    for i in range(length):
        block[i] = data[i] ^ m.mask.mask
    return send(fd, block, length, SEND_QUIETLY)


cdef class ProbeCore(Core):
    """A Core whose seams are in use: hooks that count, refuse and mute, and a listener whose bytes are masked."""

    cdef Seen seen
    cdef Mask mask
    cdef Transform masking

    def __cinit__(self):
        self.seen.refused_key = -1
        self.seen.muted_key = -1
        self.s.hooks.context = &self.seen
        self.s.hooks.before = count_before
        self.s.hooks.after = count_after
        self.masking.open = open_masked
        self.masking.receive = receive_masked
        self.masking.send = send_masked
        self.masking.buffered = buffered_masked
        self.masking.release = release_masked

    def refuse_key(self, int key):
        self.seen.refused_key = key

    def mute_key(self, int key, long long milliseconds):
        self.seen.mute_ms = milliseconds
        self.seen.muted_key = key

    def mask_listener(self, int index, int mask):
        """Before start(), for a listener that is or will be number `index`."""
        self.mask.mask = mask
        self.s.transform_context[index] = &self.mask
        self.s.listener_transform[index] = &self.masking

    @property
    def before(self):
        return load_int64(&self.seen.before)

    @property
    def after(self):
        return {name: load_int64(&self.seen.after[i]) for i, name in enumerate(OUTCOMES)}

    @property
    def masked_open(self):
        return load_int64(&self.mask.open_count)
