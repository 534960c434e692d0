# examine: one segment's files read through from end to end, and everything that does not add up named. Changes nothing.
# Owns        its own descriptor and buffers; the caller may go on by steps, so that a long file can show its progress.
# Called by   storage/examine (kbroker doctor --deep), quorum/integrity (is what the metadata log lost only a torn tail?).
# Threads     one at a time per Examination; the reading takes no GIL, so several segments are read at once.
# Fails by    OSError from the file system; damage is a Fault, never an exception.
#
# Behind a damaged batch the walk goes on: at the length its header tells if a header stands there, else at the next
# place where a batch with a matching checksum begins.
import os
from collections import namedtuple

from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr

from kbroker._core.errors cimport NONE
from kbroker._core.limits cimport DECOMPRESSED_BATCH_MAX_BYTES
from kbroker._core.log.files cimport READ_ONLY, close_file, open_file, read_at, size_of_file
from kbroker._core.log.leader_epochs cimport LeaderEpochs, epochs_assign, epochs_free, epochs_latest
from kbroker._core.record.batch cimport (
    BATCH_HEADER_BYTES, BATCH_MIN_LENGTH, BATCH_PREFIX_BYTES, batch_base_offset, batch_last_offset,
    batch_last_offset_delta, batch_leader_epoch, batch_magic, batch_max_timestamp, batch_records_count, batch_size_bytes,
    check_batch,
)
from kbroker._core.record.compression cimport NO_ENGINE, NO_MEMORY, OVER_CAP, Scratch, empty_scratch, scratch_free
from kbroker._core.record.scratch cimport scratch_reserve
from kbroker._core.record.record_view cimport RECORD_FINE, RecordView
from kbroker._core.record.records cimport RecordWalk, next_record, open_records
from kbroker._core.wire.cursor cimport load_be32, load_be64

Fault = namedtuple("Fault", "suffix position offset bytes reason")

cdef enum:
    WINDOW_BYTES = 4194304
    FAULTS_MAX = 200             # of one segment; more are counted
    MAGIC_AT = 16
    UNREAD_MAX = 4096            # batches of one step that only Python can inflate
    OFFSET_ENTRY = 8
    TIME_ENTRY = 12

cdef enum Whose:
    OF_LOG = 0
    OF_INDEX = 1
    OF_TIMEINDEX = 2

cdef struct Finding:
    Whose whose
    int64_t position
    int64_t offset
    int64_t bytes
    const char *reason

cdef struct Entries:
    const uint8_t *data
    int64_t count
    int64_t next                 # not yet met by the walk

cdef struct State:
    int fd
    int64_t size_bytes
    int64_t position
    int64_t base_offset
    int64_t next_offset
    int64_t first_gap            # the first offset that no batch holds though a later one does; -1: none
    int64_t batches
    int64_t records
    int64_t max_timestamp
    int64_t damaged_at           # position of the first damaged batch; -1: none
    int64_t damaged_end          # where the last stretch that cannot be read ends
    int64_t good_behind_damage
    bint in_depth                # look into the batches, too
    int64_t window_at
    int64_t window_length
    Scratch window
    Scratch inflated
    Entries index
    Entries times
    LeaderEpochs epochs
    Finding findings[200]
    int32_t finding_count
    int64_t finding_total
    int64_t unread[4096]
    int32_t unread_count


cdef void tell(State *s, Whose whose, int64_t position, int64_t offset, int64_t bytes, const char *reason) noexcept nogil:
    cdef Finding *f
    s.finding_total += 1
    if s.finding_count < FAULTS_MAX:
        f = &s.findings[s.finding_count]
        f.whose = whose
        f.position = position
        f.offset = offset
        f.bytes = bytes
        f.reason = reason
        s.finding_count += 1


cdef int64_t have(State *s, int64_t position, int64_t wanted) noexcept nogil:
    # How many bytes stand in the window from `position` on: at least `wanted` unless the file ends before. -errno.
    cdef int64_t n
    wanted = min(wanted, s.size_bytes - position)
    if position >= s.window_at and position + wanted <= s.window_at + s.window_length:
        return s.window_at + s.window_length - position
    n = min(max(wanted, <int64_t> WINDOW_BYTES), s.size_bytes - position)
    if not scratch_reserve(&s.window, n):
        return -ENOMEM
    s.window_at = position
    s.window_length = 0
    n = read_at(s.fd, s.window.data, n, position)
    if n < 0:
        return n
    if n < wanted:
        return -EIO                      # the file has become shorter
    s.window_length = n
    return n


cdef inline const uint8_t *at(const State *s, int64_t position) noexcept nogil:
    return s.window.data + (position - s.window_at)


cdef inline bint is_header(const uint8_t *b, int64_t left) noexcept nogil:
    cdef int64_t length = <int32_t> load_be32(b + 8)
    return batch_magic(b) == 2 and BATCH_MIN_LENGTH <= length <= left - BATCH_PREFIX_BYTES


cdef inline bint is_within(const State *s, const uint8_t *b, int64_t least) noexcept nogil:
    cdef int64_t base = batch_base_offset(b)
    cdef int64_t delta = batch_last_offset_delta(b)
    return least <= base and 0 <= delta <= <int64_t> 0x7fffffff - (base - s.base_offset)


cdef int64_t next_good(State *s, int64_t position) noexcept nogil:
    # The first place behind `position` where a whole batch of a later offset begins; the file's end: none. -errno.
    cdef int64_t n, left
    cdef const uint8_t *b
    cdef void *found
    while True:
        position += 1
        left = s.size_bytes - position
        if left < BATCH_HEADER_BYTES:
            return s.size_bytes
        n = have(s, position, BATCH_HEADER_BYTES)
        if n < 0:
            return n
        b = at(s, position)
        if batch_magic(b) != 2:              # on to the next byte that could be one
            found = memchr(b + MAGIC_AT, 2, n - MAGIC_AT)
            position += (<const uint8_t *> found - (b + MAGIC_AT) if found != NULL else n - MAGIC_AT) - 1
            continue
        if not is_header(b, left) or not is_within(s, b, s.next_offset):
            continue
        n = have(s, position, batch_size_bytes(b))
        if n < 0:
            return n
        if check_batch(at(s, position), n) == NONE:
            return position


cdef void match_index(State *s, int64_t position, int64_t last_offset, bint readable) noexcept nogil:
    # Entries that lie before this batch missed its neighbours; the one that names it must tell its last offset.
    cdef const uint8_t *entry
    cdef int64_t at_position, relative
    while s.index.next < s.index.count:
        entry = s.index.data + s.index.next * OFFSET_ENTRY
        at_position = <int32_t> load_be32(entry + 4)
        relative = <int32_t> load_be32(entry)
        if at_position > position:
            return
        if at_position < position:
            if at_position >= s.damaged_end:
                tell(s, OF_INDEX, s.index.next * OFFSET_ENTRY, s.base_offset + relative, OFFSET_ENTRY,
                     b"an entry points to where no batch begins")
        elif readable and s.base_offset + relative != last_offset:
            tell(s, OF_INDEX, s.index.next * OFFSET_ENTRY, s.base_offset + relative, OFFSET_ENTRY,
                 b"an entry names another offset than the batch it points to")
        s.index.next += 1


cdef void match_times(State *s, int64_t first_offset, int64_t last_offset) noexcept nogil:
    # An entry tells the largest timestamp up to and with the batch that holds its offset.
    cdef const uint8_t *entry
    cdef int64_t offset
    while s.times.next < s.times.count and s.damaged_at < 0:
        entry = s.times.data + s.times.next * TIME_ENTRY
        offset = s.base_offset + <int32_t> load_be32(entry + 8)
        if offset > last_offset:
            return
        if offset < first_offset:
            tell(s, OF_TIMEINDEX, s.times.next * TIME_ENTRY, offset, TIME_ENTRY,
                 b"an entry names an offset that no batch holds")
        elif <int64_t> load_be64(entry) != s.max_timestamp:
            tell(s, OF_TIMEINDEX, s.times.next * TIME_ENTRY, offset, TIME_ENTRY,
                 b"an entry names another timestamp than the largest up to its offset")
        s.times.next += 1


cdef int look_inside(State *s, const uint8_t *batch) noexcept nogil:
    cdef RecordWalk walk
    cdef RecordView record
    cdef int64_t offset = 0
    cdef int64_t timestamp = 0
    cdef int64_t before = -1
    cdef int64_t base = batch_base_offset(batch)
    cdef const char *reason = NULL
    cdef int rc
    if not s.in_depth or batch_records_count(batch) == 0:
        return 0
    rc = open_records(batch, &s.inflated, DECOMPRESSED_BATCH_MAX_BYTES, &walk)
    if rc == NO_MEMORY:
        return -ENOMEM
    if rc == NO_ENGINE:
        s.unread[s.unread_count] = s.position
        s.unread_count += 1
        return 0
    if rc != 0:
        reason = b"a batch inflates to more than any broker takes" if rc == OVER_CAP else b"a batch cannot be decompressed"
    while reason == NULL and walk.left > 0:
        if next_record(&walk, &record, &offset, &timestamp) != RECORD_FINE:
            reason = b"a batch does not hold the records its header counts"
        elif record.offset_delta <= before or record.offset_delta > batch_last_offset_delta(batch):
            reason = b"the records of a batch do not ascend"
        before = record.offset_delta
    if reason != NULL:
        tell(s, OF_LOG, s.position, base, batch_size_bytes(batch), reason)
    return 0


cdef int take_good(State *s, const uint8_t *batch, int64_t size) noexcept nogil:
    cdef int64_t base = batch_base_offset(batch)
    cdef int64_t last = batch_last_offset(batch)
    if batch_leader_epoch(batch) >= 0:
        if batch_leader_epoch(batch) < epochs_latest(&s.epochs):
            tell(s, OF_LOG, s.position, base, size, b"a batch has an older leader epoch than the one before it")
        elif batch_leader_epoch(batch) > epochs_latest(&s.epochs):
            if epochs_assign(&s.epochs, batch_leader_epoch(batch), base) != 0:
                return -ENOMEM
    if base > s.next_offset and s.first_gap < 0:
        s.first_gap = s.next_offset
    s.max_timestamp = max(s.max_timestamp, batch_max_timestamp(batch))
    match_index(s, s.position, last, True)
    match_times(s, base, last)
    s.next_offset = last + 1
    s.batches += 1
    s.records += batch_records_count(batch)
    if s.damaged_at >= 0:
        s.good_behind_damage += 1
    return 0


cdef int take_bad(State *s, int64_t end, int64_t offset, const char *reason) noexcept nogil:
    tell(s, OF_LOG, s.position, offset, end - s.position, reason)
    if s.damaged_at < 0:
        s.damaged_at = s.position
    match_index(s, s.position, 0, False)
    s.damaged_end = end
    return 0


cdef bint is_led_astray(State *s, int64_t size, const uint8_t *batch) noexcept nogil:
    # No checksum covers the base offset: of two batches that contradict each other the first is wrong if the second
    # follows what was before.
    cdef int64_t behind = s.position + size
    cdef int64_t last = batch_last_offset(batch)
    cdef int64_t n
    if batch_base_offset(batch) == s.next_offset or s.size_bytes - behind < BATCH_HEADER_BYTES:
        return False
    n = have(s, s.position, size + BATCH_HEADER_BYTES)
    if n < size + BATCH_HEADER_BYTES:
        return False
    batch = at(s, behind)
    return is_header(batch, s.size_bytes - behind) and s.next_offset < batch_base_offset(batch) <= last


cdef int take_one(State *s) noexcept nogil:
    # One batch, or one stretch that is none.
    cdef const uint8_t *batch
    cdef const char *reason = NULL
    cdef int64_t left = s.size_bytes - s.position
    cdef int64_t n, end, size, base
    cdef int rc
    n = have(s, s.position, BATCH_HEADER_BYTES)
    if n < 0:
        return <int> n
    batch = at(s, s.position)
    if left < BATCH_HEADER_BYTES:
        rc = take_bad(s, s.size_bytes, s.next_offset, b"a batch header is cut short")
        s.position = s.size_bytes
        return rc
    if not is_header(batch, left):
        reason = b"the bytes are not a record batch"
        if batch_magic(batch) == 2:
            reason = b"a batch states an impossible length"
            if <int32_t> load_be32(batch + 8) >= BATCH_MIN_LENGTH:
                reason = b"a batch is cut short"
        end = next_good(s, s.position)
        if end < 0:
            return <int> end
        rc = take_bad(s, end, s.next_offset, reason)
        s.position = end
        return rc
    size = batch_size_bytes(batch)
    n = have(s, s.position, size)
    if n < 0:
        return <int> n
    batch = at(s, s.position)
    if check_batch(batch, n) != NONE:
        base = batch_base_offset(batch) if is_within(s, batch, s.next_offset) else s.next_offset
        end = s.position + size
        if end < s.size_bytes:               # is the length to be believed?
            n = have(s, s.position, size + BATCH_HEADER_BYTES)
            if n < 0:
                return <int> n
            if (n < size + BATCH_HEADER_BYTES or not is_header(at(s, end), s.size_bytes - end)
                    or not is_within(s, at(s, end), s.next_offset)):
                end = next_good(s, s.position)
                if end < 0:
                    return <int> end
        rc = take_bad(s, end, base, b"a batch does not match its checksum")
        s.position = end
        return rc
    if not is_within(s, batch, s.next_offset) or is_led_astray(s, size, batch):
        rc = take_bad(s, s.position + size, s.next_offset, b"a batch does not follow the one before it")
        s.position += size
        return rc
    batch = at(s, s.position)                # the window may have moved
    rc = take_good(s, batch, size)
    if rc == 0:
        rc = look_inside(s, batch)
    s.position += size
    return rc


cdef int take_some(State *s, int64_t max_bytes) noexcept nogil:
    cdef int64_t stop = s.position + max_bytes
    cdef int rc = 0
    s.unread_count = 0
    while rc == 0 and s.position < s.size_bytes and s.position < stop and s.unread_count < UNREAD_MAX:
        rc = take_one(s)
    return rc


cdef void check_order(State *s) noexcept nogil:
    # Both indexes ascend. A search in one that does not may miss what is there.
    cdef int64_t i
    cdef const uint8_t *e
    for i in range(1, s.index.count):
        e = s.index.data + i * OFFSET_ENTRY
        if (<int32_t> load_be32(e) <= <int32_t> load_be32(e - OFFSET_ENTRY)
                or <int32_t> load_be32(e + 4) <= <int32_t> load_be32(e - OFFSET_ENTRY + 4)):
            tell(s, OF_INDEX, i * OFFSET_ENTRY, s.base_offset + <int32_t> load_be32(e), OFFSET_ENTRY,
                 b"the entries do not ascend")
            s.index.count = 0                # its other faults follow from this one
            break
    for i in range(1, s.times.count):
        e = s.times.data + i * TIME_ENTRY
        if (<int64_t> load_be64(e) <= <int64_t> load_be64(e - TIME_ENTRY)
                or <int32_t> load_be32(e + 8) < <int32_t> load_be32(e - TIME_ENTRY + 8)):
            tell(s, OF_TIMEINDEX, i * TIME_ENTRY, s.base_offset + <int32_t> load_be32(e + 8), TIME_ENTRY,
                 b"the entries do not ascend")
            s.times.count = 0
            break


cdef void finish(State *s) noexcept nogil:
    cdef const uint8_t *e
    while s.index.next < s.index.count:
        e = s.index.data + s.index.next * OFFSET_ENTRY
        if <int32_t> load_be32(e + 4) >= s.damaged_end:
            tell(s, OF_INDEX, s.index.next * OFFSET_ENTRY, s.base_offset + <int32_t> load_be32(e), OFFSET_ENTRY,
                 b"an entry points behind the end of the log")
        s.index.next += 1
    while s.times.next < s.times.count and s.damaged_at < 0:
        e = s.times.data + s.times.next * TIME_ENTRY
        tell(s, OF_TIMEINDEX, s.times.next * TIME_ENTRY, s.base_offset + <int32_t> load_be32(e + 8), TIME_ENTRY,
             b"an entry names an offset behind the end of the log")
        s.times.next += 1


cdef int64_t without_zeros(bytes held, int width):
    """Entries before the zeros that Apache preallocates and a kill leaves."""
    cdef int64_t kept = len(held.rstrip(b"\0"))
    return (kept + width - 1) // width


cdef class Examination:
    """One segment: call step() until it answers False, then read what was found."""

    cdef State s
    cdef bytes _index
    cdef bytes _times
    cdef bint _finished
    cdef object _path

    def __cinit__(self, path, int64_t base_offset, index=b"", times=b"", *, bint in_depth=True):
        self.s.fd = -1
        self.s.window = empty_scratch()
        self.s.inflated = empty_scratch()
        self._path = os.fspath(path)
        self._index = bytes(index)
        self._times = bytes(times)
        self.s.base_offset = self.s.next_offset = base_offset
        self.s.first_gap = self.s.damaged_at = self.s.max_timestamp = -1
        self.s.in_depth = in_depth
        self.s.index.data = <const uint8_t *> PyBytes_AS_STRING(self._index)
        self.s.times.data = <const uint8_t *> PyBytes_AS_STRING(self._times)
        self.s.index.count = min(without_zeros(self._index, OFFSET_ENTRY), len(self._index) // OFFSET_ENTRY)
        self.s.times.count = min(without_zeros(self._times, TIME_ENTRY), len(self._times) // TIME_ENTRY)
        encoded = os.fsencode(self._path)
        self.s.fd = open_file(PyBytes_AS_STRING(encoded), READ_ONLY)
        if self.s.fd >= 0:
            self.s.size_bytes = size_of_file(self.s.fd)
        if self.s.fd < 0 or self.s.size_bytes < 0:
            code = -(self.s.fd if self.s.fd < 0 else <int> self.s.size_bytes)
            raise OSError(code, os.strerror(code), self._path)
        check_order(&self.s)

    def __dealloc__(self):
        close_file(self.s.fd)
        scratch_free(&self.s.window)
        scratch_free(&self.s.inflated)
        epochs_free(&self.s.epochs)

    def step(self, int64_t max_bytes=67108864):
        """Reads on; False when the end is reached. OSError when the file cannot be read."""
        cdef int rc
        with nogil:
            rc = take_some(&self.s, max_bytes)
            if rc == 0 and self.s.position >= self.s.size_bytes and not self._finished:
                self._finished = True
                finish(&self.s)
        if rc != 0:
            raise OSError(-rc, os.strerror(-rc), self._path)
        return not self._finished

    @property
    def unread(self):
        """Positions of the batches of the last step that have no native codec here: Python must inflate them."""
        return [self.s.unread[i] for i in range(self.s.unread_count)]

    @property
    def faults(self):
        """What was found, at most so many of a segment; `fault_count` counts all."""
        names = {<int> OF_LOG: ".log", <int> OF_INDEX: ".index", <int> OF_TIMEINDEX: ".timeindex"}
        return [
            Fault(names[<int> self.s.findings[i].whose], self.s.findings[i].position, self.s.findings[i].offset,
                  self.s.findings[i].bytes, self.s.findings[i].reason.decode())
            for i in range(self.s.finding_count)
        ]

    @property
    def fault_count(self):
        return self.s.finding_total

    @property
    def position(self):
        return self.s.position

    @property
    def size_bytes(self):
        return self.s.size_bytes

    @property
    def next_offset(self):
        return self.s.next_offset

    @property
    def first_gap(self):
        """The first offset missing before a later one, or -1. Compaction leaves such gaps."""
        return self.s.first_gap

    @property
    def batches(self):
        return self.s.batches

    @property
    def records(self):
        return self.s.records

    @property
    def max_timestamp(self):
        return self.s.max_timestamp

    @property
    def damaged_at(self):
        """Position of the first batch that cannot be read, or -1."""
        return self.s.damaged_at

    @property
    def good_behind_damage(self):
        """Batches that can be read behind one that cannot: then it is no torn tail."""
        return self.s.good_behind_damage

    @property
    def epochs(self):
        """(leader epoch, offset of its first batch here), ascending."""
        cdef LeaderEpochs *e = &self.s.epochs
        return [(e.entries[i].epoch, e.entries[i].start_offset) for i in range(e.count)]
