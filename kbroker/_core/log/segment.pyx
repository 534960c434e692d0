# One .log file and its indexes: descriptors, writing, accounting, walking batch headers.
from libc.errno cimport EBADMSG, EINVAL, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from posix.uio cimport iovec

from kbroker._core.c.prelude cimport release_count, retain_count, store_int64
from kbroker._core.limits cimport RESERVE_AHEAD_BYTES, RESERVE_FROM_BYTES
from kbroker._core.log.files cimport (
    CREATE, CREATE_EMPTY, OFFSET_INDEX_FILE, PATH_BYTES, READ_WRITE, SEGMENT_FILES, TIME_INDEX_FILE, Access, close_file,
    cut_file, open_file, open_memory, path_of_descriptor, path_of_file, path_of_segment, pthread_mutex_t, read_at,
    remove_path, rename_file, reserve_file, size_of_file, write_runs_at,
)
from kbroker._core.log.health cimport HealthState, health_fail, health_release, health_retain
from kbroker._core.log.offset_index cimport OFFSET_ENTRY_BYTES, offset_index_append, position_of_entry
from kbroker._core.log.sparse_index cimport (
    NO_ENTRY, SparseIndex, index_adopt, index_cut, index_floor, index_free, index_init, index_settle, index_write,
)
from kbroker._core.log.time_index cimport TIME_ENTRY_BYTES, time_index_append, time_index_last
from kbroker._core.log.txn_index cimport (
    NOT_READ, AbortedTxn, txn_index_add, txn_index_cut, txn_index_read, txn_index_reset, txn_index_rest, txn_index_write,
)
from kbroker._core.record.batch cimport (
    BATCH_HEADER_BYTES, BATCH_MIN_LENGTH, BATCH_PREFIX_BYTES, batch_last_offset, batch_magic, batch_max_timestamp,
    batch_size_bytes,
)
from kbroker._core.wire.cursor cimport load_be32


cdef Segment *segment_new(const char *directory, int64_t base_offset, pthread_mutex_t *lock, HealthState *health) noexcept nogil:
    cdef Segment *s = <Segment *> calloc(1, sizeof(Segment))
    if s == NULL:
        return NULL
    s.references = 1
    s.fd = -1
    s.base_offset = base_offset
    s.next_offset = base_offset
    s.max_timestamp = NOT_LOADED
    s.max_timestamp_offset = base_offset
    s.first_timestamp = NOT_LOADED
    s.indexed_timestamp = NOT_LOADED
    s.directory = directory
    s.lock = lock
    s.health = health
    if health != NULL:
        health_retain(health)
    s.ring_slot = -1
    index_init(&s.offset_index, OFFSET_ENTRY_BYTES)
    index_init(&s.time_index, TIME_ENTRY_BYTES)
    s.txn_index.count = NOT_READ
    return s


cdef void segment_retain(Segment *s) noexcept nogil:
    retain_count(&s.references)


cdef void segment_release(Segment *s) noexcept nogil:
    if not release_count(&s.references):
        return
    close_file(s.fd)
    close_file(s.offset_index.fd)
    close_file(s.time_index.fd)
    index_free(&s.offset_index)
    index_free(&s.time_index)
    txn_index_reset(&s.txn_index)
    if s.health != NULL:
        health_release(s.health)
    free(s)


cdef void segment_blame(Segment *s, int rc) noexcept nogil:
    # The log may be gone, and its directory's name with it: the system knows what the descriptor leads to.
    cdef char path[PATH_BYTES]
    if s.health != NULL:
        health_fail(s.health, rc, path if path_of_descriptor(path, s.fd) == 0 else NULL)


cdef void segment_close_files(Segment *s) noexcept nogil:
    if s.directory == NULL:
        return
    close_file(s.fd)
    close_file(s.offset_index.fd)
    close_file(s.time_index.fd)
    s.fd = -1
    s.offset_index.fd = -1
    s.time_index.fd = -1
    txn_index_rest(&s.txn_index)


cdef void segment_mark_empty(Segment *s) noexcept nogil:
    s.max_timestamp = -1
    s.first_timestamp = -1
    s.indexed_timestamp = -1
    s.indexes_adopted = True
    txn_index_reset(&s.txn_index)
    s.indexes_ragged = True


cdef int open_beside(const Segment *s, const char *suffix, Access access) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef int rc = path_of_segment(path, s.directory, s.base_offset, suffix)
    return open_file(path, access) if rc == 0 else rc


cdef int segment_create(Segment *s, int64_t reserve_bytes) noexcept nogil:
    # The index files follow when there is something to write into them: at a roll, a flush or a close.
    cdef int fd = open_memory() if s.directory == NULL else open_beside(s, ".log", CREATE_EMPTY)
    if fd < 0:
        return fd
    s.fd = fd
    if reserve_bytes > 0:
        reserve_file(s.fd, 0, reserve_bytes)    # a file system that cannot is no reason to stop
        s.reserved_bytes = reserve_bytes
    segment_mark_empty(s)
    return 0


cdef int segment_open_log(Segment *s) noexcept nogil:
    cdef int fd
    if s.fd >= 0:
        return 0
    fd = open_beside(s, ".log", READ_WRITE)
    if fd < 0:
        return fd
    s.fd = fd
    return 0


cdef int open_index(Segment *s, SparseIndex *x, const char *suffix, int order_at, int order_bytes) noexcept nogil:
    # An index that was never adopted must be in the file system; a new segment's own is made here.
    cdef int64_t size
    cdef int fd, rc
    if x.fd >= 0:
        return 0
    fd = open_beside(s, suffix, CREATE if s.indexes_adopted else READ_WRITE)
    if fd < 0:
        return fd
    x.fd = fd
    if s.indexes_adopted:
        return 0
    size = size_of_file(x.fd)
    if size < 0:
        return <int> size
    rc = index_adopt(x, size, order_at, order_bytes)
    if size != <int64_t> x.count * x.width:
        s.indexes_ragged = True
    return rc


cdef int segment_open_indexes(Segment *s) noexcept nogil:
    cdef int rc
    cdef int64_t relative = 0
    if s.directory == NULL:
        return 0
    rc = open_index(s, &s.offset_index, ".index", 0, 4)
    if rc == 0:
        rc = open_index(s, &s.time_index, ".timeindex", 0, 8)
    if rc == 0 and not s.indexes_adopted and s.time_index.count == 0 and s.size_bytes > 0:
        # A closed segment's ends in its largest timestamp: an empty one was cut, or a kill left it so.
        rc = segment_load_first_timestamp(s)
        if rc == 0 and s.first_timestamp >= 0:
            rc = -EINVAL
    if rc != 0:
        return rc
    s.indexes_adopted = True
    if s.indexed_timestamp == NOT_LOADED:
        return time_index_last(&s.time_index, &s.indexed_timestamp, &relative)
    return 0


cdef void reserve_ahead(Segment *s) noexcept nogil:
    # Blocks that are there already make each write cheaper (a fifth, on ext4) and keep the file in few pieces. Only a segment
    # that fills gets them, so that thousands of small partitions do not fill the disk with room they never use.
    cdef int64_t start = (max(s.reserved_bytes, s.size_bytes) + 4095) & ~<int64_t> 4095
    s.reserved_bytes = start + min(s.size_bytes, <int64_t> RESERVE_AHEAD_BYTES)
    reserve_file(s.fd, start, s.reserved_bytes - start)


cdef int segment_write(Segment *s, iovec *runs, int count, int64_t length) noexcept nogil:
    if s.size_bytes >= RESERVE_FROM_BYTES and s.size_bytes + length > s.reserved_bytes and s.directory != NULL:
        reserve_ahead(s)
    return write_runs_at(s.fd, runs, count, s.size_bytes)


cdef int segment_trim(Segment *s) noexcept nogil:
    cdef int rc
    if s.reserved_bytes <= s.size_bytes or s.directory == NULL:
        return 0
    rc = segment_open_log(s)
    if rc == 0:
        rc = cut_file(s.fd, s.size_bytes)
    if rc == 0:
        s.reserved_bytes = 0
    return rc


cdef inline bint index_time(Segment *s) noexcept nogil:
    if s.max_timestamp <= s.indexed_timestamp:
        return True
    if not time_index_append(&s.time_index, s.max_timestamp, <int32_t> (s.max_timestamp_offset - s.base_offset)):
        return False
    s.indexed_timestamp = s.max_timestamp
    return True


cdef int segment_account(Segment *s, const uint8_t *batch, int64_t position, int32_t index_interval_bytes) noexcept nogil:
    # As in Kafka the entry is made by the batch that finds more than an interval behind it, so position 0 has none.
    cdef int64_t last_offset = batch_last_offset(batch)
    cdef int64_t timestamp = batch_max_timestamp(batch)
    if position == 0:
        s.first_timestamp = timestamp
    if timestamp > s.max_timestamp:
        s.max_timestamp = timestamp
        s.max_timestamp_offset = last_offset
    if s.bytes_since_index > index_interval_bytes:
        if not offset_index_append(&s.offset_index, <int32_t> (last_offset - s.base_offset), <int32_t> position):
            return -ENOMEM
        if not index_time(s):
            return -ENOMEM
        s.bytes_since_index = 0
    s.bytes_since_index += batch_size_bytes(batch)
    s.next_offset = last_offset + 1
    return 0


cdef bint segment_indexes_written(const Segment *s, bint final) noexcept nogil:
    if s.directory == NULL:
        return True
    if not s.indexes_adopted or s.indexes_ragged or s.offset_index.written < s.offset_index.count \
            or s.time_index.written < s.time_index.count:
        return False
    return not final or (s.max_timestamp != NOT_LOADED and s.max_timestamp <= s.indexed_timestamp)


cdef int segment_write_indexes(Segment *s, bint final) noexcept nogil:
    cdef int rc
    if s.directory == NULL:
        return 0
    rc = segment_open_indexes(s)
    if rc != 0:
        return rc
    if final:
        rc = segment_load_max_timestamp(s)
        if rc == 0 and not index_time(s):
            rc = -ENOMEM
        if rc != 0:
            return rc
    rc = index_write(&s.offset_index)
    if rc == 0:
        rc = index_write(&s.time_index)
    if rc == 0:
        s.indexes_ragged = False
    if rc == 0 and final:
        index_settle(&s.offset_index)
        index_settle(&s.time_index)
    return rc


cdef int segment_cut(Segment *s, int64_t position, int64_t next_offset) noexcept nogil:
    # Everything from `position` on goes; next_offset is the offset of the first batch that went.
    cdef int64_t relative = next_offset - s.base_offset
    cdef int32_t kept
    cdef int rc = segment_open_indexes(s)
    if rc != 0:
        return rc
    rc = segment_open_log(s)
    if rc != 0:
        return rc
    kept = index_floor(&s.offset_index, 0, 4, relative - 1)
    if kept < 0 and kept != NO_ENTRY:
        return kept
    rc = index_cut(&s.offset_index, kept + 1 if kept != NO_ENTRY else 0)
    if rc != 0:
        return rc
    kept = index_floor(&s.time_index, 8, 4, relative - 1)
    if kept < 0 and kept != NO_ENTRY:
        return kept
    rc = index_cut(&s.time_index, kept + 1 if kept != NO_ENTRY else 0)
    if rc != 0:
        return rc
    rc = segment_open_txns(s)
    if rc == 0 and s.txn_index.count > 0:
        txn_index_cut(&s.txn_index, next_offset)
        rc = segment_write_txns(s)
    if rc == 0:
        rc = cut_file(s.fd, position)
    if rc != 0:
        return rc
    s.reserved_bytes = 0
    store_int64(&s.size_bytes, position)
    s.next_offset = next_offset
    s.first_timestamp = NOT_LOADED
    s.indexed_timestamp = NOT_LOADED
    return segment_load_tail(s)


cdef int segment_reset_indexes(Segment *s) noexcept nogil:
    s.indexes_adopted = True            # whatever the files hold is not to be trusted
    s.indexes_ragged = True
    s.indexed_timestamp = -1
    s.max_timestamp = -1
    s.max_timestamp_offset = s.base_offset
    s.first_timestamp = -1
    s.bytes_since_index = 0
    s.next_offset = s.base_offset
    index_free(&s.offset_index)
    index_free(&s.time_index)
    s.offset_index.stored = s.offset_index.written = s.offset_index.count = 0
    s.time_index.stored = s.time_index.written = s.time_index.count = 0
    if s.directory == NULL:
        return 0
    return segment_open_indexes(s)


cdef int open_anew(Segment *s, SparseIndex *x, const char *suffix) noexcept nogil:
    cdef int fd = open_beside(s, suffix, CREATE_EMPTY)
    if fd < 0:
        return fd
    close_file(x.fd)
    x.fd = fd
    return 0


cdef int account_all(Segment *s, int32_t index_interval_bytes) noexcept nogil:
    cdef Walk w
    cdef const uint8_t *header
    cdef int64_t next_offset = s.next_offset
    cdef int rc = segment_reset_indexes(s)
    walk_begin(&w, s.fd, 0, s.size_bytes)
    while rc == 0:
        header = walk_header(&w)
        if header == NULL:
            break
        rc = segment_account(s, header, w.position, index_interval_bytes) if batch_belongs(s, header) else -EBADMSG
        walk_next(&w, header)
    if s.next_offset < next_offset:
        s.next_offset = next_offset
    return rc if rc != 0 else w.error


cdef int segment_rebuild_indexes(Segment *s, int32_t index_interval_bytes) noexcept nogil:
    # Beside, and renamed when they are whole: nobody looks at the log again to tell whether they are. The largest timestamp
    # ends the time index, as a roll would have left it.
    cdef int rc = segment_open_log(s)
    if rc == 0:
        rc = open_anew(s, &s.offset_index, ".index.tmp")
    if rc == 0:
        rc = open_anew(s, &s.time_index, ".timeindex.tmp")
    if rc == 0:
        rc = account_all(s, index_interval_bytes)
    if rc == 0:
        rc = segment_write_indexes(s, True)
    if rc == 0:
        rc = rename_file(s.directory, s.base_offset, OFFSET_INDEX_FILE, ".tmp", "")
    if rc == 0:
        rc = rename_file(s.directory, s.base_offset, TIME_INDEX_FILE, ".tmp", "")
    if rc != 0:                         # the next who needs them tries again
        close_file(s.offset_index.fd)
        close_file(s.time_index.fd)
        s.offset_index.fd = s.time_index.fd = -1
        s.indexes_adopted = False
        s.max_timestamp = NOT_LOADED
    return rc


cdef int segment_load_first_timestamp(Segment *s) noexcept nogil:
    cdef Walk w
    cdef const uint8_t *header
    cdef int rc
    if s.first_timestamp != NOT_LOADED:
        return 0
    rc = segment_open_log(s)
    if rc != 0:
        return rc
    walk_begin(&w, s.fd, 0, s.size_bytes)
    header = walk_header(&w)
    s.first_timestamp = batch_max_timestamp(header) if header != NULL else -1
    return w.error


cdef int segment_load_max_timestamp(Segment *s) noexcept nogil:
    # Of a closed segment: its time index ends in the largest timestamp. The active one was loaded by segment_load_tail.
    cdef int64_t relative = 0
    cdef int rc
    if s.max_timestamp != NOT_LOADED:
        return 0
    rc = segment_open_indexes(s)
    if rc == 0:
        rc = time_index_last(&s.time_index, &s.max_timestamp, &relative)
    if rc == 0:
        s.max_timestamp_offset = s.base_offset + relative
    return rc


cdef int segment_load_tail(Segment *s) noexcept nogil:
    # Indexed batches are accounted for by the index; what follows the last entry is walked, header by header.
    cdef Walk w
    cdef const uint8_t *header
    cdef int64_t position, relative = 0
    cdef int rc = segment_open_indexes(s)
    if rc == 0:
        rc = time_index_last(&s.time_index, &s.max_timestamp, &relative)
    if rc != 0:
        return rc
    s.indexed_timestamp = s.max_timestamp
    s.max_timestamp_offset = s.base_offset + relative
    s.next_offset = s.base_offset
    s.bytes_since_index = 0
    if s.size_bytes == 0:
        s.first_timestamp = -1
        return 0
    rc = segment_open_log(s)
    if rc != 0:
        return rc
    position = position_of_entry(
        &s.offset_index, s.offset_index.count - 1 if s.offset_index.count > 0 else <int32_t> NO_ENTRY, &relative)
    if position < 0:
        return <int> position
    if position >= s.size_bytes:
        return -EINVAL                  # an index longer than its log
    walk_begin(&w, s.fd, position, s.size_bytes)
    while True:
        header = walk_header(&w)
        if header == NULL:
            break
        if not batch_belongs(s, header):
            return -EINVAL
        if batch_max_timestamp(header) > s.max_timestamp:
            s.max_timestamp = batch_max_timestamp(header)
            s.max_timestamp_offset = batch_last_offset(header)
        s.next_offset = batch_last_offset(header) + 1
        s.bytes_since_index += batch_size_bytes(header)
        walk_next(&w, header)
    if w.error != 0:
        return w.error
    return 0 if w.position == s.size_bytes else -EINVAL


cdef int segment_open_txns(Segment *s) noexcept nogil:
    return txn_index_read(&s.txn_index, s.directory, s.base_offset, s.next_offset)


cdef int segment_add_txn(Segment *s, const AbortedTxn *txn) noexcept nogil:
    cdef int rc = segment_open_txns(s)
    if rc == 0 and not txn_index_add(&s.txn_index, txn):
        rc = -ENOMEM
    return rc


cdef int segment_write_txns(Segment *s) noexcept nogil:
    return txn_index_write(&s.txn_index, s.directory, s.base_offset, "")


cdef int segment_remove_files(Segment *s) noexcept nogil:
    # Whoever still reads holds the descriptor; the names go now. A snapshot is the producer state before this segment.
    cdef char path[PATH_BYTES]
    cdef int rc = 0
    cdef int one, i
    if s.directory == NULL:
        return 0
    for i in range(1, SEGMENT_FILES + 1):        # the log last
        one = path_of_file(path, s.directory, s.base_offset, i % SEGMENT_FILES, "")
        if one == 0:
            one = remove_path(path)
        if one != 0:
            rc = one
    return rc


cdef void walk_begin(Walk *w, int fd, int64_t position, int64_t end) noexcept nogil:
    w.fd = fd
    w.position = position
    w.end = end
    w.window_at = 0
    w.window_length = 0
    w.window_wanted = BATCH_HEADER_BYTES
    w.error = 0


cdef const uint8_t *walk_header(Walk *w) noexcept nogil:
    cdef int64_t n
    cdef const uint8_t *header
    cdef int32_t length
    if w.end - w.position < BATCH_HEADER_BYTES:
        return NULL
    if w.position < w.window_at or w.position + BATCH_HEADER_BYTES > w.window_at + w.window_length:
        n = min(w.end - w.position, w.window_wanted)
        n = read_at(w.fd, w.window, n, w.position)
        w.window_at = w.position
        w.window_length = n if n > 0 else 0
        if n < BATCH_HEADER_BYTES:
            w.error = <int> n if n < 0 else -EBADMSG      # shorter than it was
            return NULL
    header = w.window + (w.position - w.window_at)
    length = <int32_t> load_be32(header + 8)
    if length < BATCH_MIN_LENGTH or length > w.end - w.position - BATCH_PREFIX_BYTES or batch_magic(header) != 2:
        return NULL
    return header


cdef void walk_next(Walk *w, const uint8_t *header) noexcept nogil:
    # Where several batches fit into the window, reading it whole saves calls; before large ones it is a copy for nothing.
    cdef int64_t size = batch_size_bytes(header)
    w.position += size
    w.window_wanted = <int64_t> sizeof(w.window) if size < <int64_t> sizeof(w.window) // 2 else <int64_t> BATCH_HEADER_BYTES
