# The door of a partition's log: its life, its published offsets, and the Python class that owns it.
import base64
import os
from collections import namedtuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EIO, ERANGE
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from kbroker._core.c.prelude cimport load_int64, release_count, retain_count, store_int64
from kbroker._core.clock cimport BrokerClock, wall_ms
from kbroker._core.errors cimport KAFKA_STORAGE_ERROR, NONE
from kbroker._core.log.aborted cimport log_collect_aborted
from kbroker._core.log.append cimport push_segment
from kbroker._core.log.files cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock, read_at,
)
from kbroker._core.log.directory cimport Offsets
from kbroker._core.log.health cimport Health, health_release, health_retain
from kbroker._core.log.leader_epochs cimport EpochStart, epochs_free
from kbroker._core.log.fresh cimport fresh_make, write_topic_id
from kbroker._core.log.log_config cimport read_config
from kbroker._core.log.lookup cimport load_max_timestamp
from kbroker._core.log.open_files cimport FileBudget, OpenFiles, files_forget, files_new, files_release, files_retain
from kbroker._core.log.producer_state cimport Producer, producers_free, producers_init, producers_replicated
from kbroker._core.log.recovery cimport LOG_DAMAGED, open_directory
from kbroker._core.log.segment cimport Segment, segment_mark_empty, segment_release
from kbroker._core.log.state cimport RecoveryNote, first_unstable, offline_errno, usable
from kbroker._core.log.txn_index cimport TxnIndex, txn_index_reset
from kbroker._core.log.upkeep cimport log_expire_producers
from kbroker._core.log.verification cimport verifications_free
from kbroker._core.record.batch cimport FROM_CLIENT, FROM_QUORUM
from kbroker._core.record.compression cimport empty_scratch, scratch_free

Appended = namedtuple(
    "Appended",
    "error base_offset last_offset log_append_time_ms log_start_offset duplicate needs_fallback message record_errors",
)
Found = namedtuple("Found", "offset timestamp leader_epoch")
SegmentFacts = namedtuple("SegmentFacts", "base_offset next_offset size_bytes max_timestamp open references")
Note = namedtuple("Note", "segment_base_offset offset position bytes reason")
AbortedTransaction = namedtuple("AbortedTransaction", "producer_id first_offset last_offset last_stable_offset")
ProducerFacts = namedtuple(
    "ProducerFacts",
    "producer_id producer_epoch last_sequence last_offset last_timestamp coordinator_epoch txn_first_offset",
)

cdef enum:
    OWN_FILES_LIMIT = 64           # segments open at once in a log that was given no budget


class LogError(Exception):
    """A Kafka error code from a log."""

    def __init__(self, code: int) -> None:
        super().__init__(f"log error {code}")
        self.code = code


class DamagedLogError(LogError):
    """Bad bytes with records behind them: the log is not opened, and nothing of it was changed."""

    def __init__(self, directory: str, where: Note, later: int) -> None:
        super().__init__(KAFKA_STORAGE_ERROR)
        self.where = where
        self.args = (
            f"{directory}/{where.segment_base_offset:020}.log is damaged at byte {where.position}, offset {where.offset}: "
            f"{where.reason}. Records follow in {later:020}.log, so nothing was cut off: bring the file back from a copy, or, "
            f"to give up every record from offset {where.offset} on, move the segments behind it out of the directory; "
            f"then start the broker again.",)


cdef int64_t log_end_offset(const Log *log) noexcept nogil:
    return load_int64(&log.end_offset)


cdef int64_t log_start_offset(const Log *log) noexcept nogil:
    return load_int64(&log.start_offset)


cdef int64_t log_high_watermark(const Log *log) noexcept nogil:
    return load_int64(&log.high_watermark)


cdef bint log_awaits_sync(const Log *log) noexcept nogil:
    return load_int64(&log.recovery_point) < min(load_int64(&log.sync_target), load_int64(&log.end_offset))


cdef int64_t log_settled_end(const Log *log) noexcept nogil:
    return load_int64(&log.recovery_point) if log_awaits_sync(log) else load_int64(&log.end_offset)


cdef bint log_syncs(const Log *log) noexcept nogil:
    return load_int64(&log.config.flush_messages) != INT64_MAX and log.directory != NULL


cdef bint log_failed(const Log *log) noexcept nogil:
    return offline_errno(log) != 0


cdef int64_t log_last_stable_offset(const Log *log) noexcept nogil:
    cdef int64_t high_watermark = load_int64(&log.high_watermark)
    cdef int64_t first_unstable = load_int64(&log.first_unstable_offset)
    return first_unstable if 0 <= first_unstable < high_watermark else high_watermark


cdef bint log_raise_high_watermark(Log *log, int64_t offset) noexcept nogil:
    cdef bint moved
    pthread_mutex_lock(&log.lock)
    if offset > log.end_offset:
        offset = log.end_offset
    moved = offset > log.high_watermark
    if moved:
        store_int64(&log.high_watermark, offset)
        if log.producers.ended_count > 0:
            producers_replicated(&log.producers, offset)
            store_int64(&log.first_unstable_offset, first_unstable(log))
    pthread_mutex_unlock(&log.lock)
    return moved


cdef void log_retain(Log *log) noexcept nogil:
    retain_count(&log.references)


cdef void log_release(Log *log) noexcept nogil:
    # A log that nobody closed is let go as a crash would: the next opener scans it.
    cdef Segment *s
    if not release_count(&log.references):
        return
    pthread_mutex_lock(&log.lock)        # another log's thread may just be closing one of our idle segments
    while log.segment_count > 0:
        log.segment_count -= 1
        s = log.segments[log.segment_count]
        if log.files != NULL:
            files_forget(log.files, s)
        s.directory = NULL
        segment_release(s)
    pthread_mutex_unlock(&log.lock)
    if log.files != NULL:
        files_release(log.files)
    if log.health != NULL:
        health_release(log.health)
    producers_free(&log.producers)
    verifications_free(&log.verifications)
    epochs_free(&log.epochs)
    pthread_mutex_destroy(&log.lock)
    free(log.segments)
    while log.former_count > 0:
        log.former_count -= 1
        free(log.former[log.former_count])
    free(log.notes)
    free(log.directory)
    free(log)


cdef Log *log_new(OpenFiles *files, const char *directory, size_t length) noexcept nogil:
    cdef Log *log = <Log *> calloc(1, sizeof(Log))
    cdef size_t i
    if log == NULL:
        return NULL
    log.references = 1
    log.first_unstable_offset = -1
    log.damaged_offset = -1
    pthread_mutex_init(&log.lock, NULL)
    producers_init(&log.producers)
    if directory != NULL:
        log.directory = <char *> malloc(length + 1)
        if log.directory != NULL:
            memcpy(log.directory, directory, length + 1)
            for i in range(length):
                log.jitter_seed = log.jitter_seed * 31 + <uint8_t> directory[i]
    if files != NULL:
        files_retain(files)
        log.files = files
    else:
        log.files = files_new(OWN_FILES_LIMIT)
    if log.files == NULL or (directory != NULL and log.directory == NULL):
        log_release(log)
        return NULL
    return log


cdef bytes read_topic_id(str path):
    """The id in a partition.metadata file; empty when there is none, or an empty file that a power cut left."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        text = os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    if not text:
        return b""
    try:
        lines = dict(line.split(": ", 1) for line in text.decode("ascii").splitlines())
        known = base64.b64decode(lines["topic_id"] + "==", altchars="-_", validate=True)
    except (ValueError, KeyError):
        known, lines = b"", {}
    if len(known) != 16 or lines.get("version") != "0":
        raise ValueError(f"{path}: not a topic id of version 0")
    return known


cdef bytes text_of_id(object topic_id):
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=")


cdef bytes settle_topic_id(str directory, object topic_id):
    """The id in partition.metadata, which is written when it is missing; empty when nobody knows one."""
    cdef bytes encoded = os.fsencode(directory)
    cdef bytes text
    path = os.path.join(directory, "partition.metadata")
    known = read_topic_id(path)
    if topic_id is None or known == bytes(topic_id):
        return known
    text = text_of_id(known or topic_id)
    if known:
        raise ValueError(f"{path}: the directory belongs to topic id {text.decode()}")
    rc = write_topic_id(encoded, text)
    if rc != 0:
        raise os_error(rc, path)
    return bytes(topic_id)


cdef object os_error(int rc, str directory):
    return OSError(-rc, os.strerror(-rc), directory)


cdef class PartitionLog:
    """The log of one partition. Every call that may block runs without the GIL."""

    def __cinit__(self) -> None:
        self.log = NULL
        self.directory = ""
        self.topic_id = b""

    def __dealloc__(self) -> None:
        if self.log != NULL:
            with nogil:
                log_release(self.log)

    @staticmethod
    def open(directory, BrokerClock clock not None, config, *, topic_id=None, clean=True, recovery_point=0,
             log_start_offset=0, FileBudget files=None, Health health=None, make=True):
        """Opens or creates the log in `directory`. `clean=False` scans what lies past `recovery_point`.

        With `make=False` nothing may lie at `directory`: the first append or make() makes it, in a parent that exists.
        """
        cdef PartitionLog self = PartitionLog.__new__(PartitionLog)
        cdef LogConfig parsed
        cdef bint was_clean = clean
        cdef int64_t point = recovery_point
        cdef int64_t start = log_start_offset
        cdef int64_t now = wall_ms(&clock.c)
        cdef int rc
        if topic_id is not None and len(topic_id) != 16:
            raise ValueError("a topic id has sixteen bytes")
        read_config(config, &parsed)
        self.directory = os.fspath(directory)
        self._clock = clock
        encoded = os.fsencode(self.directory)
        if len(encoded) > 4000 or b"\0" in encoded:
            raise ValueError(f"{self.directory!r} cannot be a directory's name")
        if make:
            if not os.path.isdir(self.directory):
                os.makedirs(self.directory, exist_ok=True)
            self.topic_id = settle_topic_id(self.directory, topic_id)
        elif topic_id is not None:
            self.topic_id = bytes(topic_id)
        self.log = log_new(files.files if files is not None else NULL, PyBytes_AS_STRING(encoded), len(encoded))
        if self.log == NULL:
            raise MemoryError
        self.log.config = parsed
        self.log.flushed_ms = now
        if health is not None:
            health_retain(health.state)
            self.log.health = health.state
        if not make:
            self.be_fresh(start, now)
            return self
        with nogil:
            # Nobody else knows the log yet, but its segments are in the ring of open files, whose lock this is.
            pthread_mutex_lock(&self.log.lock)
            rc = open_directory(self.log, was_clean, point, start, now)
            pthread_mutex_unlock(&self.log.lock)
        if rc == LOG_DAMAGED:
            where = self.recovery_notes[self.log.note_count - 1]
            raise DamagedLogError(self.directory, where, next(
                one.base_offset for one in self.segments() if one.base_offset > where.segment_base_offset and one.size_bytes))
        self.checked(rc)
        return self

    @staticmethod
    def in_memory(BrokerClock clock not None, config, *, topic_id=None, log_start_offset=0):
        """A log whose segments have no name: it ends with its last reference."""
        cdef PartitionLog self = PartitionLog.__new__(PartitionLog)
        cdef LogConfig parsed
        cdef int rc
        read_config(config, &parsed)
        self._clock = clock
        self.topic_id = b"" if topic_id is None else bytes(topic_id)
        self.log = log_new(NULL, NULL, 0)
        if self.log == NULL:
            raise MemoryError
        self.log.config = parsed
        self.log.start_offset = self.log.end_offset = self.log.high_watermark = log_start_offset
        self.log.recovery_point = log_start_offset
        rc = push_segment(self.log, log_start_offset, True, wall_ms(&clock.c))
        if rc != 0:
            raise os_error(rc, "memory")
        return self

    cdef int be_fresh(self, int64_t start_offset, int64_t now_ms) except -1:
        cdef bytes text = text_of_id(self.topic_id)
        memcpy(self.log.topic_id_text, PyBytes_AS_STRING(text), len(text) + 1)
        self.log.start_offset = self.log.end_offset = self.log.high_watermark = start_offset
        self.log.recovery_point = start_offset
        self.log.producers.swept_ms = now_ms
        self.checked(push_segment(self.log, start_offset, False, now_ms))
        segment_mark_empty(self.log.segments[0])
        self.log.fresh = True
        return 0

    cdef int64_t now(self, object now_ms) except? -1:
        return wall_ms(&(<BrokerClock> self._clock).c) if now_ms is None else now_ms

    def append(self, records, *, int origin=FROM_CLIENT, int32_t leader_epoch=0, now_ms=None, inflated=None,
               int64_t guard=0, int16_t transaction_version=0):
        """Appends batches; the bytes given are left alone. The answer carries a Kafka error code."""
        cdef const uint8_t[::1] view = records
        cdef const uint8_t[::1] clear
        cdef Append append
        cdef AppendResult *out = &append.out
        cdef Scratch scratch
        cdef int64_t now = self.now(now_ms)
        if not FROM_CLIENT <= origin <= FROM_QUORUM:
            raise ValueError(f"origin {origin} is unknown")
        if view.shape[0] > 0x7fffffff:
            raise ValueError("more than 2 GiB in one append")
        append.length = <int32_t> view.shape[0]
        append.inflated = NULL
        append.inflated_length = -1
        append.guard = guard
        append.transaction_version = transaction_version
        if inflated is not None:
            clear = inflated
            append.inflated_length = clear.shape[0]
            append.inflated = &clear[0] if append.inflated_length > 0 else NULL
        append.records = <uint8_t *> malloc(append.length + 1)
        if append.records == NULL:
            raise MemoryError
        if append.length > 0:
            memcpy(append.records, &view[0], append.length)
        scratch = empty_scratch()
        with nogil:
            log_append(self.log, &append, 1, <Origin> origin, leader_epoch, &scratch, now)
            if out.error == NONE and log_awaits_sync(self.log) and log_flush(self.log) != 0:
                append_begin(out, KAFKA_STORAGE_ERROR)
            free(append.records)
            scratch_free(&scratch)
        message = out.verdict.message.decode() if out.verdict.message != NULL else None
        return Appended(
            out.error, out.base_offset, out.last_offset, out.log_append_time_ms, out.log_start_offset, bool(out.duplicate),
            bool(out.needs_fallback), message, [out.verdict.record_errors[i] for i in range(out.verdict.record_error_count)])

    def read(self, int64_t offset, int64_t max_bytes=1048576, bound=None, *, bint at_least_one=True):
        """Whole batches from the one that holds `offset`, of one segment, none at or past `bound` (the end by default)."""
        cdef ReadPlan plan
        cdef int64_t limit = 0x7fffffffffffffff if bound is None else bound
        cdef int64_t n
        cdef bytes data
        cdef char *to
        with nogil:
            log_read(self.log, offset, limit, max_bytes, at_least_one, &plan)
        if plan.error != NONE:
            raise LogError(plan.error)
        if plan.segment == NULL:
            return b""
        try:
            data = PyBytes_FromStringAndSize(NULL, plan.length)
            to = PyBytes_AS_STRING(data)
            with nogil:
                n = read_at(plan.segment.fd, to, plan.length, plan.position)
        finally:
            segment_release(plan.segment)
        if n != plan.length:
            raise os_error(<int> n if n < 0 else -EIO, self.directory)
        return data

    @property
    def log_end_offset(self):
        return log_end_offset(self.log)

    @property
    def log_start_offset(self):
        return log_start_offset(self.log)

    @property
    def last_stable_offset(self):
        return log_last_stable_offset(self.log)

    @property
    def high_watermark(self):
        return log_high_watermark(self.log)

    @high_watermark.setter
    def high_watermark(self, int64_t offset):
        with nogil:
            log_raise_high_watermark(self.log, offset)

    @property
    def recovery_point(self):
        return load_int64(&self.log.recovery_point)

    @property
    def latest_epoch(self):
        return log_latest_epoch(self.log)

    @property
    def offline_errno(self):
        return offline_errno(self.log)

    @property
    def closed(self):
        return bool(self.log.closed)

    @property
    def size_bytes(self):
        cdef int64_t total = 0
        cdef int32_t i
        with nogil:
            pthread_mutex_lock(&self.log.lock)
            for i in range(self.log.segment_count):
                total += self.log.segments[i].size_bytes
            pthread_mutex_unlock(&self.log.lock)
        return total

    @property
    def damaged_offset(self):
        return load_int64(&self.log.damaged_offset)

    @property
    def recovery_notes(self):
        cdef int32_t i
        return [
            Note(self.log.notes[i].segment_base_offset, self.log.notes[i].offset, self.log.notes[i].position,
                 self.log.notes[i].bytes, self.log.notes[i].reason.decode())
            for i in range(self.log.note_count)
        ]

    def segments(self, *, bint times=False):
        """Facts about every segment, oldest first. A timestamp is -2 until `times` asks for it."""
        cdef Segment *copies
        cdef int32_t count = 0
        cdef int32_t i
        cdef int rc = 0
        with nogil:
            pthread_mutex_lock(&self.log.lock)
            copies = <Segment *> malloc((self.log.segment_count + 1) * sizeof(Segment))
            if copies != NULL:
                count = self.log.segment_count
                for i in range(count):
                    if times and rc == 0 and self.log.segments[i].max_timestamp < -1:
                        rc = load_max_timestamp(self.log, self.log.segments[i])
                    copies[i] = self.log.segments[i][0]
            pthread_mutex_unlock(&self.log.lock)
        if copies == NULL:
            raise MemoryError
        facts = [SegmentFacts(copies[i].base_offset, copies[i].next_offset, copies[i].size_bytes, copies[i].max_timestamp,
                              copies[i].fd >= 0, copies[i].references) for i in range(count)]
        free(copies)
        self.checked(rc)
        return facts

    def producers(self):
        """What is remembered of idempotent producers."""
        cdef Producer *copies
        cdef Producer *p
        cdef int32_t count = 0
        cdef int32_t i
        with nogil:
            pthread_mutex_lock(&self.log.lock)
            copies = <Producer *> malloc((self.log.producers.count + 1) * sizeof(Producer))
            if copies != NULL:
                count = self.log.producers.count
                if count > 0:
                    memcpy(copies, self.log.producers.producers, count * sizeof(Producer))
            pthread_mutex_unlock(&self.log.lock)
        if copies == NULL:
            raise MemoryError
        facts = []
        for i in range(count):
            p = &copies[i]
            facts.append(ProducerFacts(
                p.producer_id, p.producer_epoch,
                p.batches[p.newest].last_sequence if p.batch_count else -1,
                p.batches[p.newest].last_offset if p.batch_count else -1,
                p.last_timestamp, p.coordinator_epoch, p.txn_first_offset))
        free(copies)
        return facts

    def collect_aborted(self, int64_t from_offset, int64_t upper_bound):
        """Aborted transactions with something in [from_offset, upper_bound), by their markers: for read_committed."""
        cdef TxnIndex found
        cdef int32_t i
        cdef int rc
        found.entries = NULL
        found.count = found.written = found.capacity = 0
        with nogil:
            rc = log_collect_aborted(self.log, from_offset, upper_bound, &found)
        aborted = [AbortedTransaction(found.entries[i].producer_id, found.entries[i].first_offset,
                                      found.entries[i].last_offset, found.entries[i].last_stable_offset)
                   for i in range(found.count)]
        txn_index_reset(&found)
        self.checked(rc)
        return aborted

    cdef object found(self, TimestampOffset *out):
        if out.error != NONE:
            raise LogError(out.error)
        return Found(out.offset, out.timestamp, out.leader_epoch) if out.offset >= 0 else None

    def offset_for_timestamp(self, int64_t timestamp):
        """The first record at or after `timestamp`: (offset, timestamp, leader epoch), or None."""
        cdef TimestampOffset out
        with nogil:
            log_offset_for_timestamp(self.log, timestamp, &out)
        return self.found(&out)

    def offset_of_max_timestamp(self):
        """The first record that carries the largest timestamp, or None."""
        cdef TimestampOffset out
        with nogil:
            log_offset_of_max_timestamp(self.log, &out)
        return self.found(&out)

    def end_offset_for_epoch(self, int32_t epoch):
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) when unknown."""
        cdef int32_t found = -1
        cdef int64_t end = -1
        with nogil:
            log_end_offset_for_epoch(self.log, epoch, &found, &end)
        return found, end

    def epochs(self):
        """Every known (epoch, start offset)."""
        cdef EpochStart *copies
        cdef int32_t count = 0
        cdef int32_t i
        with nogil:
            pthread_mutex_lock(&self.log.lock)
            copies = <EpochStart *> malloc((self.log.epochs.count + 1) * sizeof(EpochStart))
            if copies != NULL:
                count = self.log.epochs.count
                if count > 0:
                    memcpy(copies, self.log.epochs.entries, count * sizeof(EpochStart))
            pthread_mutex_unlock(&self.log.lock)
        if copies == NULL:
            raise MemoryError
        entries = [(copies[i].epoch, copies[i].start_offset) for i in range(count)]
        free(copies)
        return entries

    def assign_epoch(self, int32_t epoch):
        """On becoming leader: this epoch begins at the end of the log."""
        with nogil:
            log_assign_epoch(self.log, epoch)

    def configure(self, config):
        """Takes over a topic's settings; they hold from the next append."""
        cdef LogConfig parsed
        read_config(config, &parsed)
        with nogil:
            pthread_mutex_lock(&self.log.lock)
            self.log.config = parsed
            pthread_mutex_unlock(&self.log.lock)

    cdef int checked(self, int rc) except -1:
        if rc != 0:
            raise os_error(rc, self.directory)
        return 0

    def make(self):
        """Makes the files of a log that was opened without; of any other it does nothing."""
        cdef int rc = 0
        with nogil:
            pthread_mutex_lock(&self.log.lock)
            if usable(self.log):
                rc = fresh_make(self.log)
            pthread_mutex_unlock(&self.log.lock)
        self.checked(rc)

    @property
    def made(self):
        return not self.log.fresh

    def flush(self):
        """Syncs what was appended; the new recovery point."""
        cdef int rc
        with nogil:
            rc = log_flush(self.log)
        self.checked(rc)
        return load_int64(&self.log.recovery_point)

    def flush_sealed(self):
        """Syncs the segments that are full, which takes no append's time. A closed or failed log is left alone."""
        cdef int rc = 0
        with nogil:
            if usable(self.log):
                rc = log_flush_sealed(self.log)
        if not self.log.closed:
            self.checked(rc)
        return load_int64(&self.log.recovery_point)

    def flush_if_due(self, now_ms=None):
        """Syncs when flush.ms have passed since it was last done here; whether it did."""
        cdef int64_t now = self.now(now_ms)
        if now - self.log.flushed_ms < self.log.config.flush_ms or self.recovery_point >= self.log_end_offset:
            return False
        self.flush()
        self.log.flushed_ms = now
        return True

    def roll(self, now_ms=None):
        """Begins a new segment, unless the active one is empty."""
        cdef int64_t now = self.now(now_ms)
        cdef int rc
        with nogil:
            rc = log_roll(self.log, now)
        self.checked(rc)

    def truncate_to(self, int64_t offset):
        """Cuts the log at the batch that holds `offset`; the new end offset."""
        cdef int64_t now = self.now(None)
        cdef int rc
        with nogil:
            rc = log_truncate_to(self.log, offset, now)
        self.checked(rc)
        return log_end_offset(self.log)

    def raise_start(self, int64_t offset):
        """Raises the start to `offset`, at most the high watermark; the start that holds. Segments go by retire()."""
        cdef int rc
        with nogil:
            rc = log_raise_start(self.log, offset)
        if rc == -ERANGE:
            raise ValueError(f"{offset} is past the high watermark {log_high_watermark(self.log)}")
        self.checked(rc)
        return log_start_offset(self.log)

    def retire(self, now_ms=None):
        """Takes out every segment that retention lets go; their base offsets. Their files are called *.deleted then.

        Of a log that is closed or offline: none.
        """
        cdef Offsets retired
        cdef int64_t now = self.now(now_ms)
        cdef int32_t i
        cdef int rc
        retired.items = NULL
        retired.count = retired.capacity = 0
        with nogil:
            rc = log_retire(self.log, now, &retired)
        bases = [retired.items[i] for i in range(retired.count)]
        free(retired.items)
        self.checked(rc)
        return bases

    @property
    def file_delete_delay_ms(self):
        return self.log.config.file_delete_delay_ms

    def expire_producers(self, now_ms=None):
        """Forgets producers that have been silent for producer.id.expiration.ms."""
        cdef int64_t now = self.now(now_ms)
        with nogil:
            log_expire_producers(self.log, now)

    def close(self, *, bint sync=True):
        """Writes what a clean start relies on and lets the files go. A second call does nothing.

        With `sync=False` it writes nothing: for a log that is to be deleted, on a disk that may be full.
        """
        cdef int rc
        with nogil:
            rc = log_close(self.log, sync)
        self.checked(rc)
