# segment: one .log file of a partition with its offset, time and transaction index.
# Owns        the descriptors (any kind: a file, a memfd) and the write position.
# Called by   log/append (write, roll), log/lookup (find), log/recovery (scan), log/upkeep (cut, delete), log/cleaner,
#             net/egress (sendfile from `fd`).
# Threads     everything but retain and release: under the log's lock. Bytes below size_bytes may be read from `fd` by any
#             thread that holds a reference: only a segment that nobody but its log holds is closed (open_files).
# Returns     0 or -errno. Never raises, never takes the GIL.
# Invariants  base_offset <= every offset held < next_offset; bytes below size_bytes never change (compaction makes new files).
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from posix.uio cimport iovec
from kbroker._core.log.files cimport pthread_mutex_t
from kbroker._core.log.health cimport HealthState
from kbroker._core.log.sparse_index cimport SparseIndex
from kbroker._core.log.txn_index cimport AbortedTxn, TxnIndex
from kbroker._core.record.batch cimport batch_base_offset, batch_last_offset_delta

cdef enum:
    NOT_LOADED = -2          # of the timestamps: look into the files first

cdef struct Segment:
    int32_t references       # the log holds one; each reply in flight holds one; the last one closes the file
    int fd                   # -1: closed, opened on demand; never -1 in a ReadPlan
    int64_t base_offset      # also the file's name, in 20 digits
    int64_t next_offset      # first offset not held here
    int64_t size_bytes       # published last: a reader may trust every byte below it
    int64_t reserved_bytes   # up to here the file may have blocks; beyond size_bytes they are given back (segment_trim)
    int64_t max_timestamp    # -1: none. NOT_LOADED until load_max_timestamp
    int64_t max_timestamp_offset   # last offset of the first batch that carries it, as Kafka's time index names it
    int64_t first_timestamp  # largest of the first batch, for rolling by time; -1: none. NOT_LOADED until load_first_timestamp
    int64_t created_ms
    int64_t roll_jitter_ms
    int64_t bytes_since_index
    int64_t indexed_timestamp      # the time index's last; -1: none. NOT_LOADED until the time index was opened
    SparseIndex offset_index
    SparseIndex time_index
    TxnIndex txn_index
    bint indexes_adopted     # the index files were looked at (or made); before that count says nothing
    bint indexes_doubted     # an entry led astray, and they were made anew once: the next fault is the log's own
    bint indexes_ragged      # the files are not there yet, or may hold more than is written
    const char *directory    # the log's; NULL: a memfd, never closed before its time and without index files
    pthread_mutex_t *lock    # the log's, for whoever wants to close an idle segment
    HealthState *health      # the log's, and one reference to it: a reply may outlive the log. NULL: it stands alone
    int32_t in_use           # open_files: raised by every use, lowered by the passing hand
    int32_t ring_slot        # open_files: -1 when not in the ring

cdef Segment *segment_new(const char *directory, int64_t base_offset, pthread_mutex_t *lock, HealthState *health) noexcept nogil
cdef void segment_retain(Segment *s) noexcept nogil
cdef void segment_release(Segment *s) noexcept nogil
# Somebody who holds a reference, on any thread, could not read its file: if the disk is to blame the directory goes offline.
cdef void segment_blame(Segment *s, int rc) noexcept nogil
cdef void segment_close_files(Segment *s) noexcept nogil                  # a memfd stays
cdef void segment_mark_empty(Segment *s) noexcept nogil       # no bytes, so nothing the index files could tell
cdef int segment_create(Segment *s, int64_t reserve_bytes) noexcept nogil
cdef int segment_open_log(Segment *s) noexcept nogil
cdef int segment_open_indexes(Segment *s) noexcept nogil                  # adopts them the first time; -EINVAL, -ENOENT: rebuild
cdef int segment_write(Segment *s, iovec *runs, int count, int64_t length) noexcept nogil   # size_bytes is not moved
cdef int segment_trim(Segment *s) noexcept nogil                          # nothing more will be written: no blocks beyond the end
# Accounts for one batch that stands, or is about to stand, at `position`: indexes, timestamps, next_offset. -ENOMEM.
cdef int segment_account(Segment *s, const uint8_t *batch, int64_t position, int32_t index_interval_bytes) noexcept nogil
cdef bint segment_indexes_written(const Segment *s, bint final) noexcept nogil   # the files have it all; they may be closed
cdef int segment_write_indexes(Segment *s, bint final) noexcept nogil     # final: with the last time entry
cdef int segment_cut(Segment *s, int64_t position, int64_t next_offset) noexcept nogil
cdef int segment_reset_indexes(Segment *s) noexcept nogil                 # empty, to be made anew by segment_account
cdef int segment_rebuild_indexes(Segment *s, int32_t index_interval_bytes) noexcept nogil  # from the headers; nothing is cut
cdef int segment_load_first_timestamp(Segment *s) noexcept nogil
cdef int segment_load_max_timestamp(Segment *s) noexcept nogil
cdef int segment_load_tail(Segment *s) noexcept nogil                     # next_offset and timestamps after the last index entry
# Aborted transactions. segment_open_txns: -EINVAL: damaged. segment_write_txns: after the log itself was written.
cdef int segment_open_txns(Segment *s) noexcept nogil
cdef int segment_add_txn(Segment *s, const AbortedTxn *txn) noexcept nogil
cdef int segment_write_txns(Segment *s) noexcept nogil
cdef int segment_remove_files(Segment *s) noexcept nogil


cdef inline bint batch_belongs(const Segment *s, const uint8_t *batch) noexcept nogil:
    # May this batch stand at the segment's end? No checksum covers the base offset, so files are asked again and again.
    cdef int64_t base_offset = batch_base_offset(batch)
    cdef int64_t delta = batch_last_offset_delta(batch)
    return s.next_offset <= base_offset and 0 <= delta <= <int64_t> 0x7fffffff - (base_offset - s.base_offset)


# A walk over batch headers in a file, a window at a time. The headers are not trusted: whatever does not look like a
# whole v2 batch below `end` stops the walk.
cdef struct Walk:
    int fd
    int64_t position         # of the batch that walk_header gives
    int64_t end
    int64_t window_at
    int64_t window_length
    int64_t window_wanted    # a header's worth, and all of it once batches turn out to be small
    int error                # -errno of a failed read
    uint8_t window[4096]

cdef void walk_begin(Walk *w, int fd, int64_t position, int64_t end) noexcept nogil
cdef const uint8_t *walk_header(Walk *w) noexcept nogil                   # 61 bytes, or NULL: the end
cdef void walk_next(Walk *w, const uint8_t *header) noexcept nogil
