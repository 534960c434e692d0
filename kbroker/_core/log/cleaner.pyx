# The steps of a compaction, and the Python class that takes them.
import os
from collections import namedtuple

from libc.errno cimport EBADMSG, EFBIG, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from kbroker._core.c.prelude cimport load_int32, store_int64
from kbroker._core.errors cimport NONE
from kbroker._core.limits cimport DECOMPRESSED_BATCH_MAX_BYTES
from kbroker._core.log.aborted cimport log_confirm_aborted
from kbroker._core.log.batch_filter cimport filter_batch, filter_free
from kbroker._core.log.directory cimport add_offset
from kbroker._core.log.files cimport pthread_mutex_lock, pthread_mutex_unlock, read_at, write_at
from kbroker._core.log.id_map cimport ids_clear, ids_put
from kbroker._core.log.lookup cimport position_of, segment_of
from kbroker._core.log.offset_map cimport KEYS_AT_ONCE, MAP_ENTRY_BYTES, KeyHash, map_free, map_hash, map_make, map_put
from kbroker._core.log.open_files cimport files_forget, files_open_indexes, files_open_log
from kbroker._core.log.offset_index cimport OFFSET_ENTRY_BYTES
from kbroker._core.log.partition_log cimport PartitionLog, log_last_stable_offset
from kbroker._core.log.producer_state cimport Producer
from kbroker._core.log.segment cimport (
    segment_account, segment_close_files, segment_new, segment_release, segment_retain, walk_begin, walk_header, walk_next,
)
from kbroker._core.log.state cimport active, usable
from kbroker._core.log.swap cimport LOG_CHANGED, STOPPED, cleaned_create, cleaned_remove, cleaned_sync, swap_in
from kbroker._core.log.time_index cimport TIME_ENTRY_BYTES
from kbroker._core.log.transactions cimport (
    MARKER_BYTES_MAX, txns_begin_walk, txns_first_open, txns_free, txns_init, txns_on_batch, txns_on_marker, txns_scan,
    txns_scanned,
)
from kbroker._core.record.batch cimport (
    ATTR_CONTROL, BATCH_HEADER_BYTES, batch_attributes, batch_base_offset, batch_last_offset, batch_records_count,
    batch_size_bytes, check_batch,
)
from kbroker._core.record.compression cimport NO_ENGINE, empty_scratch, scratch_free, scratch_reserve
from kbroker._core.record.record_view cimport RECORD_FINE, RecordView
from kbroker._core.record.records cimport RecordWalk, next_record, open_records

Cleaned = namedtuple("Cleaned", "end_offset records_read records_kept bytes_mapped bytes_read bytes_written segments_written keys")

cdef enum:
    HEADERS_A_STEP = 4096


class CleaningError(Exception):
    """Why a log cannot be compacted: its content, or a codec that this machine lacks."""


class CleaningCancelledError(Exception):
    """The log was closed, failed or was cut while it was being compacted. What was done so far stands."""


class Stopped(Exception):  # noqa: N818
    """A test's `stop_after` was reached: the files are as a kill would leave them."""


# ---- segments ----

cdef void close_quietly(Log *log, Segment *s) noexcept nogil:
    # A compaction passes over many segments: it leaves none open that only the log and itself hold. One that has left the
    # log is not touched: the second reference may be a reader's.
    pthread_mutex_lock(&log.lock)
    if (not log.closed and load_int32(&s.references) == 2
            and log.segments[segment_of(log, s.base_offset)] == s):
        files_forget(log.files, s)
        segment_close_files(s)
    pthread_mutex_unlock(&log.lock)


cdef inline int still_there(const Cleaning *c) noexcept nogil:
    # Under the lock.
    return 0 if usable(c.log) and c.log.cuts == c.cuts else LOG_CHANGED


cdef int32_t index_from(const Log *log, int64_t base_offset) noexcept nogil:
    # The first segment that begins at `base_offset` or later.
    cdef int32_t i = segment_of(log, base_offset)
    return i if log.segments[i].base_offset >= base_offset else i + 1


cdef int open_source(Cleaning *c, int64_t below) noexcept nogil:
    # 1: c.source is the next segment that begins before `below`; 0: there is none; -errno.
    cdef Segment *s
    cdef int32_t i
    cdef int rc
    pthread_mutex_lock(&c.log.lock)
    rc = still_there(c)
    if rc == 0:
        i = index_from(c.log, c.next_source)
        if i < c.log.segment_count and c.log.segments[i].base_offset < below:
            s = c.log.segments[i]
            rc = files_open_log(c.log.files, s)
            if rc == 0:
                segment_retain(s)
                c.source = s
                c.source_end = s.size_bytes
                c.position = 0
                c.next_source = s.base_offset + 1
                rc = 1
    pthread_mutex_unlock(&c.log.lock)
    return rc


cdef void close_source(Cleaning *c) noexcept nogil:
    if c.source != NULL:
        close_quietly(c.log, c.source)
        segment_release(c.source)
        c.source = NULL


cdef int64_t read_chunk(Cleaning *c) noexcept nogil:
    # As much of the source as the buffer takes, at least one batch; -errno.
    cdef int64_t n = min(max(c.buffer_bytes, c.wanted), c.source_end - c.position)
    cdef int64_t got
    if not scratch_reserve(&c.input, n):
        return -ENOMEM
    got = read_at(c.source.fd, c.input.data, n, c.position)
    if 0 <= got < n:
        c.reason = b"a segment is shorter than it was"
        return -EBADMSG
    return got


cdef int64_t next_whole(Cleaning *c, int64_t at, int64_t length) noexcept nogil:
    # The size of the batch at `at` of the chunk; 0: it is not whole in there; -errno: it is none.
    cdef const uint8_t *batch = c.input.data + at
    cdef int64_t left = c.source_end - c.position - at
    c.wanted = BATCH_HEADER_BYTES
    if length - at >= BATCH_HEADER_BYTES:
        c.wanted = batch_size_bytes(batch)
    if c.wanted < BATCH_HEADER_BYTES or c.wanted > left:
        c.reason = b"the bytes are not record batches"
        return -EBADMSG
    if c.wanted > length - at:
        return 0
    if check_batch(batch, length - at) != NONE:
        c.reason = b"a batch does not match its checksum"
        return -EBADMSG
    return c.wanted


# ---- scan ----

cdef int scan_batch(Cleaning *c, const uint8_t *header) noexcept nogil:
    cdef uint8_t marker[MARKER_BYTES_MAX]
    cdef int64_t available = BATCH_HEADER_BYTES
    if batch_attributes(header) & ATTR_CONTROL:
        available = min(<int64_t> batch_size_bytes(header), <int64_t> MARKER_BYTES_MAX)
        available = read_at(c.source.fd, marker, available, c.walk.position)
        if available < BATCH_HEADER_BYTES:
            c.reason = b"a segment is shorter than it was"
            return -EBADMSG
        header = marker
    elif c.first_dirty_offset <= batch_last_offset(header) and batch_base_offset(header) < c.first_uncleanable_offset:
        c.dirty_records += batch_records_count(header)
    return txns_scan(&c.txns, header, available, batch_base_offset(header) < c.first_uncleanable_offset)


cdef bint scan_goes_on(const Cleaning *c, int64_t offset) noexcept nogil:
    # Behind the range only the fate of transactions is of interest that began in it: a marker may stand behind the last
    # stable offset, when a later transaction is still open.
    return offset < c.first_uncleanable_offset or (c.txns.open.count > 0 and offset < c.high_watermark)


cdef int64_t scan(Cleaning *c) noexcept nogil:
    cdef const uint8_t *header = NULL
    cdef int64_t began
    cdef int32_t count = 0
    cdef int rc
    if c.source == NULL:
        rc = open_source(c, 0x7fffffffffffffff)
        if rc < 0:
            return rc
        if rc == 0 or not scan_goes_on(c, c.source.base_offset):
            close_source(c)
            return begin_mapping(c)
        walk_begin(&c.walk, c.source.fd, 0, c.source_end)
    began = c.walk.position
    for count in range(HEADERS_A_STEP):
        header = walk_header(&c.walk)
        if header == NULL or not scan_goes_on(c, batch_base_offset(header)):
            break
        rc = scan_batch(c, header)
        if rc != 0:
            return rc
        walk_next(&c.walk, header)
    if c.walk.error != 0:
        return c.walk.error
    if header == NULL and c.walk.position < c.source_end and c.source.base_offset < c.first_uncleanable_offset:
        c.reason = b"the bytes are not record batches"
        return -EBADMSG
    began = (c.walk.position - began) // 16      # most of it was stepped over
    if header == NULL:
        close_source(c)
    elif not scan_goes_on(c, batch_base_offset(header)):
        close_source(c)
        rc = begin_mapping(c)
        return rc if rc != 0 else began
    return began


# ---- map ----

cdef int begin_mapping(Cleaning *c) noexcept nogil:
    # Room for as many keys as there can be, or for as many as may be held.
    cdef int64_t slots = <int64_t> (<double> c.dirty_records / c.load_factor) + 2
    cdef int64_t undecided = txns_first_open(&c.txns)
    cdef int32_t i
    cdef int rc = log_confirm_aborted(c.log, &c.txns)
    if rc != 0:
        return rc
    txns_scanned(&c.txns)
    txns_begin_walk(&c.txns)
    slots = min(slots, c.map_slots_most)
    if not map_make(&c.map, slots, max(<int64_t> 1, min(slots - 1, <int64_t> (<double> slots * c.load_factor)))):
        return -ENOMEM
    pthread_mutex_lock(&c.log.lock)
    rc = still_there(c)
    if rc == 0 and undecided >= 0:
        c.first_uncleanable_offset = c.log.segments[segment_of(c.log, undecided)].base_offset
    if rc == 0:
        i = segment_of(c.log, c.first_dirty_offset)
        c.next_source = c.log.segments[i].base_offset
        c.position = position_of(c.log, i, c.first_dirty_offset)
        if c.position < 0:
            rc = <int> c.position
    pthread_mutex_unlock(&c.log.lock)
    c.phase = MAPPING if c.first_dirty_offset < c.first_uncleanable_offset else FINISHED
    return rc


cdef int begin_copying(Cleaning *c) noexcept nogil:
    close_source(c)
    txns_begin_walk(&c.txns)
    c.filter.map = &c.map
    c.filter.txns = &c.txns
    c.filter.end_offset = c.first_uncleanable_offset
    c.next_source = 0
    c.phase = COPYING
    return 0


cdef bint put_keys(Cleaning *c, const KeyHash *keys, const int64_t *offsets, int32_t count) noexcept nogil:
    # False: the map is full. What it knows ends before the key it did not take.
    cdef int32_t i
    for i in range(count):
        if not map_put(&c.map, &keys[i], offsets[i]):
            return False
        c.filter.latest_offset = offsets[i]
    return True


cdef int map_records(Cleaning *c, const uint8_t *batch) noexcept nogil:
    # 1: the map is full; 0; -errno.
    cdef RecordWalk walk
    cdef RecordView record
    cdef KeyHash keys[KEYS_AT_ONCE]
    cdef int64_t offsets[KEYS_AT_ONCE]
    cdef int32_t count = 0
    cdef int64_t timestamp = 0
    cdef int rc = open_records(batch, &c.filter.inflated, DECOMPRESSED_BATCH_MAX_BYTES, &walk)
    if rc != 0:
        c.reason = (b"the codec of a batch has no native engine on this machine" if rc == NO_ENGINE
                    else b"a batch cannot be decompressed")
        return -EBADMSG
    while walk.left > 0:
        if next_record(&walk, &record, &offsets[count], &timestamp) != RECORD_FINE:
            c.reason = b"a batch does not hold the records its header counts"
            return -EBADMSG
        if record.key_length >= 0 and offsets[count] >= c.first_dirty_offset:
            map_hash(&c.map, record.key, record.key_length, &keys[count])
            count += 1
        if count == KEYS_AT_ONCE or walk.left == 0:
            if not put_keys(c, keys, offsets, count):
                return 1
            count = 0
    return 0


cdef int map_batch(Cleaning *c, const uint8_t *batch) noexcept nogil:
    cdef int rc
    if batch_last_offset(batch) < c.first_dirty_offset:
        return 0
    if batch_attributes(batch) & ATTR_CONTROL:
        rc = txns_on_marker(&c.txns, batch)
        rc = min(rc, 0)
    else:
        rc = txns_on_batch(&c.txns, batch)
        rc = map_records(c, batch) if rc == 0 else min(rc, 0)        # what was aborted replaces nothing
    if rc == 0:
        c.filter.latest_offset = batch_last_offset(batch)
    return rc


cdef int64_t map_keys(Cleaning *c) noexcept nogil:
    cdef int64_t length, size
    cdef int64_t at = 0
    cdef int64_t position = c.position
    cdef int rc = 0
    if c.source == NULL:
        rc = open_source(c, c.first_uncleanable_offset)
        if rc < 0:
            return rc
        if rc == 0:
            c.filter.latest_offset = c.first_uncleanable_offset - 1      # a gap at the end is clean, too
            return begin_copying(c)
        if c.source.base_offset <= c.first_dirty_offset:
            c.position = position
        rc = 0
    length = read_chunk(c)
    if length < 0:
        return length
    while at < length and rc == 0:
        size = next_whole(c, at, length)
        if size <= 0:
            if size < 0:
                return size
            break
        rc = map_batch(c, c.input.data + at)
        if rc < 0:
            return rc
        at += size
    if at == length:
        c.wanted = 0
    c.position += at
    c.bytes_mapped += at
    if rc == 1:
        begin_copying(c)
    elif c.position == c.source_end:
        close_source(c)
        c.position = 0
    return at


# ---- copy ----

cdef int add_to_group(Cleaning *c, Segment *s) noexcept nogil:
    cdef void *moved
    cdef int32_t capacity
    if c.group_count == c.group_capacity:
        capacity = 2 * c.group_capacity if c.group_capacity > 0 else 8
        moved = realloc(c.group, capacity * sizeof(Segment *))
        if moved == NULL:
            return -ENOMEM
        c.group = <Segment **> moved
        c.group_capacity = capacity
    segment_retain(s)
    c.group[c.group_count] = s
    c.group_count += 1
    return 0


cdef int gather(Cleaning *c, int64_t below) noexcept nogil:
    # Under the lock: neighbours that fit one segment together, by Kafka's measure: bytes, index bytes, span of offsets.
    cdef Log *log = c.log
    cdef Segment *s
    cdef int64_t size = 0
    cdef int64_t offsets = 0
    cdef int64_t times = 0
    cdef int64_t end
    cdef int32_t i = index_from(log, c.next_source)
    cdef int rc = 0
    while rc == 0 and i < log.segment_count - 1 and log.segments[i].base_offset < below:
        s = log.segments[i]
        rc = files_open_indexes(log.files, s, log.config.index_interval_bytes)
        if rc != 0:
            break
        size += s.size_bytes
        offsets += <int64_t> s.offset_index.count * OFFSET_ENTRY_BYTES
        times += <int64_t> s.time_index.count * TIME_ENTRY_BYTES
        end = log.segments[i + 1].base_offset
        if c.group_count > 0 and (
                size > log.config.segment_bytes or offsets > log.config.segment_index_bytes
                or times > log.config.segment_index_bytes
                or (s.size_bytes > 0 and end - 1 - c.group[0].base_offset > 0x7fffffff)):
            break
        rc = add_to_group(c, s)
        i += 1
    return rc


cdef int note_producers(Cleaning *c) noexcept nogil:
    # Under the lock: which batch of each producer must not vanish.
    cdef Producer *p
    cdef int64_t value
    cdef int32_t i
    ids_clear(&c.filter.last_of_producers)
    for i in range(c.log.producers.count):
        p = &c.log.producers.producers[i]
        value = p.batches[p.newest].last_offset if p.batch_count > 0 else -2 - <int64_t> p.producer_epoch
        if not ids_put(&c.filter.last_of_producers, p.producer_id, value):
            return -ENOMEM
    return 0


cdef int begin_group(Cleaning *c) noexcept nogil:
    # 1: there is one; 0: all were copied; -errno.
    cdef int rc
    c.group_count = c.group_at = 0
    pthread_mutex_lock(&c.log.lock)
    rc = still_there(c)
    if rc == 0:
        rc = gather(c, c.filter.latest_offset + 1)
    if rc == 0 and c.group_count > 0:
        rc = note_producers(c)
    if rc == 0 and c.group_count > 0:
        c.cleaned = segment_new(c.log.directory, c.group[0].base_offset, &c.log.lock, c.log.health)
    pthread_mutex_unlock(&c.log.lock)
    if rc != 0 or c.group_count == 0:
        return rc
    c.next_source = c.group[c.group_count - 1].base_offset + 1
    if c.cleaned == NULL:
        return -ENOMEM
    c.cleaned_end = 0
    c.output_used = 0
    c.txns.cleaned = &c.cleaned.txn_index
    rc = cleaned_create(c.cleaned)
    return rc if rc != 0 else 1


cdef void end_group(Cleaning *c) noexcept nogil:
    cdef int32_t i
    for i in range(c.group_count):
        segment_release(c.group[i])
    c.group_count = c.group_at = 0
    c.source = NULL


cdef int write_output(Cleaning *c) noexcept nogil:
    cdef int rc = write_at(c.cleaned.fd, c.output.data, c.output_used, c.cleaned_end - c.output_used)
    c.bytes_written += c.output_used
    c.output_used = 0
    return rc


cdef int emit(Cleaning *c, const uint8_t *batch, int64_t size) noexcept nogil:
    cdef int rc
    if c.cleaned_end + size > 0x7fffffff:
        c.reason = b"a cleaned segment grows past 2 GiB"
        return -EFBIG
    if c.output_used + size > max(c.buffer_bytes, size):
        rc = write_output(c)
        if rc != 0:
            return rc
    if not scratch_reserve(&c.output, max(c.buffer_bytes, size)):
        return -ENOMEM
    memcpy(c.output.data + c.output_used, batch, size)
    c.output_used += size
    rc = segment_account(c.cleaned, batch, c.cleaned_end, c.log.config.index_interval_bytes)
    c.cleaned_end += size
    return rc


cdef int finish_group(Cleaning *c) noexcept nogil:
    cdef int32_t replaced = c.replaced.count
    cdef int32_t i
    cdef int rc = write_output(c)
    if rc == 0:
        store_int64(&c.cleaned.size_bytes, c.cleaned_end)
        rc = cleaned_sync(c.cleaned)
    for i in range(c.group_count):
        if rc == 0:
            rc = add_offset(&c.replaced, c.group[i].base_offset)
    if rc == 0:
        rc = swap_in(c.log, c.group, c.group_count, c.cleaned, c.cuts, &c.steps_left)
    if rc != 0:
        c.replaced.count = replaced
        return rc
    c.cleaned = NULL                 # the log's now
    c.txns.cleaned = NULL
    c.segments_written += 1
    end_group(c)
    return 0


cdef int64_t copy_chunk(Cleaning *c) noexcept nogil:
    cdef const uint8_t *out = NULL
    cdef int64_t at = 0
    cdef int64_t length, size, kept
    cdef int rc
    length = read_chunk(c)
    if length < 0:
        return length
    while at < length:
        size = next_whole(c, at, length)
        if size <= 0:
            if size < 0:
                return size
            break
        kept = filter_batch(&c.filter, c.input.data + at, &out)
        if kept < 0:
            c.reason = c.filter.reason
            return kept
        rc = emit(c, out, kept) if kept > 0 else 0
        if rc != 0:
            return rc
        at += size
    if at == length:
        c.wanted = 0
    c.position += at
    c.bytes_read += at
    return at


cdef int open_member(Cleaning *c) noexcept nogil:
    cdef Segment *s = c.group[c.group_at]
    cdef int rc
    pthread_mutex_lock(&c.log.lock)
    rc = still_there(c)
    if rc == 0:
        rc = files_open_log(c.log.files, s)
    if rc == 0:
        c.source = s
        c.source_end = s.size_bytes
        c.position = 0
    pthread_mutex_unlock(&c.log.lock)
    return rc


cdef void close_member(Cleaning *c) noexcept nogil:
    # Its reference stays until the group is swapped; its files need not stay open.
    close_quietly(c.log, c.source)
    c.source = NULL


cdef int64_t copy(Cleaning *c) noexcept nogil:
    cdef int64_t moved
    cdef int64_t written = c.bytes_written
    cdef int rc
    if c.group_count == 0:
        rc = begin_group(c)
        if rc == 0:
            c.phase = FINISHED
        return min(rc, 0)
    if c.source == NULL:
        if c.group_at == c.group_count:
            rc = finish_group(c)
            return rc if rc != 0 else c.bytes_written - written
        rc = open_member(c)
        if rc != 0:
            return rc
    moved = copy_chunk(c) if c.position < c.source_end else 0
    if moved >= 0 and c.position == c.source_end:
        close_member(c)
        c.group_at += 1
    return moved + c.bytes_written - written if moved >= 0 else moved


cdef int64_t advance(Cleaning *c) noexcept nogil:
    # Bytes read and written, or -errno.
    if c.phase == SCANNING:
        return scan(c)
    if c.phase == MAPPING:
        return map_keys(c)
    return copy(c) if c.phase == COPYING else 0


cdef void let_go(Cleaning *c, bint keep_files) noexcept nogil:
    if c.group_count > 0:
        end_group(c)
    close_source(c)
    if c.cleaned != NULL:
        if not keep_files:
            cleaned_remove(c.cleaned)
        segment_release(c.cleaned)
        c.cleaned = NULL
    map_free(&c.map)
    txns_free(&c.txns)
    filter_free(&c.filter)
    scratch_free(&c.input)
    scratch_free(&c.output)
    free(c.group)
    c.group = NULL
    c.group_capacity = 0


cdef class LogCleaning:
    """One compaction of one log, from `first_dirty_offset` up to the segment that begins at `first_uncleanable_offset`.

    Take step() until `finished`, then ask for `result`; close() at any time gives up what was not swapped in yet.
    """

    def __cinit__(self, PartitionLog log not None, int64_t first_dirty_offset, int64_t first_uncleanable_offset, int64_t now_ms, *,
                  int64_t delete_retention_ms=86400000, int64_t map_bytes=134217728, double load_factor=0.9,
                  int64_t buffer_bytes=262144, int32_t stop_after=-1):
        memset(&self.c, 0, sizeof(Cleaning))
        txns_init(&self.c.txns)
        self.c.filter.inflated = self.c.filter.kept = empty_scratch()
        self.c.filter.encoded = self.c.filter.rewritten = empty_scratch()
        self.c.input = self.c.output = empty_scratch()
        self.c.log = NULL
        if log.log.directory == NULL:
            raise ValueError("a log in memory is not compacted")
        if not 0 < load_factor <= 1 or <double> (map_bytes // MAP_ENTRY_BYTES) * load_factor <= 1:
            raise ValueError(f"a map of {map_bytes} bytes, filled to {load_factor}, holds no key")
        self._log = log
        self._failure = None
        self.c.log = log.log
        self.c.first_dirty_offset = first_dirty_offset
        self.c.map_slots_most = map_bytes // MAP_ENTRY_BYTES
        self.c.load_factor = load_factor
        self.c.buffer_bytes = max(buffer_bytes, 1024)
        self.c.steps_left = stop_after
        self.c.filter.now_ms = now_ms
        self.c.filter.delete_retention_ms = delete_retention_ms
        self.c.filter.latest_offset = first_dirty_offset - 1
        secret = os.urandom(16)
        memcpy(self.c.map.secret, <const uint8_t *> secret, 16)
        with nogil:
            pthread_mutex_lock(&self.c.log.lock)
            self.c.cuts = self.c.log.cuts
            self.c.high_watermark = self.c.log.high_watermark
            if self.c.log.segment_count > 0:         # else it was closed, which the first step finds out
                first_uncleanable_offset = min(first_uncleanable_offset, log_last_stable_offset(self.c.log))
                first_uncleanable_offset = self.c.log.segments[segment_of(self.c.log, first_uncleanable_offset)].base_offset
            pthread_mutex_unlock(&self.c.log.lock)
        self.c.first_uncleanable_offset = first_uncleanable_offset

    def __dealloc__(self):
        self.close()
        free(self.c.replaced.items)

    def close(self):
        """Lets everything go; what was being written is removed. A second call does nothing."""
        cdef bint keep_files = isinstance(self._failure, Stopped)
        if self.c.log == NULL:
            return
        with nogil:
            let_go(&self.c, keep_files)
        self.c.log = NULL

    @property
    def finished(self):
        return self.c.phase == FINISHED

    def step(self):
        """A part of the work, without the GIL; how many bytes were read and written."""
        cdef int64_t moved
        if self.c.log == NULL or self._failure is not None:
            raise ValueError("this compaction is over")
        with nogil:
            moved = advance(&self.c)
        if moved >= 0:
            return moved
        if moved == STOPPED:
            self._failure = Stopped()
        elif moved == LOG_CHANGED:
            self._failure = CleaningCancelledError("the log has changed")
        elif self.c.reason != NULL:
            where = f" (segment {self.c.source.base_offset}, byte {self.c.position})" if self.c.source != NULL else ""
            self._failure = CleaningError(self.c.reason.decode() + where)
        elif moved == -ENOMEM:
            self._failure = MemoryError()
        else:
            self._failure = OSError(-moved, os.strerror(-moved), self._log.directory)
        raise self._failure

    @property
    def result(self):
        """The first offset that is not compacted, and figures."""
        return Cleaned(self.c.filter.latest_offset + 1, self.c.filter.records_read, self.c.filter.records_kept,
                       self.c.bytes_mapped, self.c.bytes_read, self.c.bytes_written, self.c.segments_written,
                       self.c.map.count)

    @property
    def replaced(self):
        """Base offsets of the segments whose files are .deleted now."""
        return [self.c.replaced.items[i] for i in range(self.c.replaced.count)]
