# state: the structs of a partition's log. Other rooms see them through partition_log; only log/ looks inside Log.
from libc.errno cimport EIO
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from kbroker._core.c.prelude cimport load_int32, store_int32
from kbroker._core.log.files cimport pthread_mutex_t
from kbroker._core.log.health cimport HealthState, failure_of, health_fail
from kbroker._core.log.leader_epochs cimport LeaderEpochs
from kbroker._core.log.open_files cimport OpenFiles
from kbroker._core.log.producer_state cimport ProducerTable
from kbroker._core.log.segment cimport Segment
from kbroker._core.log.verification cimport Verifications
from kbroker._core.record.batch cimport BatchRules, Verdict

cdef enum:
    RECENT_BATCHES = 32             # a power of two
    READ_HINTS = 8
    RECOVERY_NOTES_MAX = 64
    FORMER_DIRECTORIES = 4          # a log moves in under one name, is served under another and is deleted under a third

cdef struct LogConfig:
    BatchRules rules
    int32_t segment_bytes
    int32_t segment_index_bytes
    int32_t index_interval_bytes
    int64_t segment_ms
    int64_t segment_jitter_ms
    int64_t producer_id_expiration_ms
    int32_t verifies_transactions   # a transaction's first batch needs a guard; read without the lock
    int64_t retention_ms            # negative: no segment is too old
    int64_t retention_bytes         # negative: no log is too large
    int64_t file_delete_delay_ms    # the control side's: how long retired files stay
    int8_t delete_old               # cleanup.policy has `delete`; without it the two above say nothing
    int64_t flush_messages          # an append that leaves as many unflushed is synced before it is acknowledged; 2**63-1 = never
    int64_t flush_ms
    int8_t preallocate

# Where a batch of the active segment lies: a consumer at the tail is served without a look into the file.
cdef struct RecentBatch:
    int64_t base_offset
    int64_t last_offset
    int64_t position

# Where the next read of a catching-up consumer will begin.
cdef struct ReadHint:
    Segment *segment                # compared, never followed
    int64_t offset
    int64_t position

# What opening found and did about it.
cdef struct RecoveryNote:
    int64_t segment_base_offset
    int64_t offset                  # the first one affected
    int64_t position                # in the segment's file
    int64_t bytes                   # given up
    const char *reason              # static text

cdef struct Log:
    int32_t references
    int32_t offline_errno           # 0: fine. Set once, never cleared
    HealthState *health             # of the directory that this log shares with others; NULL: it stands alone
    bint closed
    bint handed_over                # another log has taken its place (log/handover): its files may go while someone reads
    bint fresh                      # its files are still to be made: log/fresh
    char topic_id_text[24]          # for partition.metadata; empty: nobody knows one
    pthread_mutex_t lock
    int64_t end_offset              # these four: written under the lock, read by anyone (acquire)
    int64_t start_offset
    int64_t high_watermark
    int64_t first_unstable_offset   # of the oldest undecided transaction; -1: none
    int64_t recovery_point          # every byte below it was synced
    int64_t flushed_ms              # when flush.ms last had it synced, or it was opened; the control side's
    int64_t sync_target             # appends below it are not acknowledged before recovery_point has come here (flush.messages)
    LogConfig config
    char *directory                 # NULL: in memory
    char *former[4]                 # names it had before: log/handover
    int32_t former_count
    OpenFiles *files
    Segment **segments              # ascending; the last one is written to
    int32_t segment_count
    int32_t segment_capacity
    ProducerTable producers
    Verifications verifications
    LeaderEpochs epochs
    bint names_changed              # files came or went since the directory was last synced
    int64_t cuts                    # how often the end was cut off: what a cleaner has read before is void
    uint32_t recent_next     # batches noted so far, modulo 2**32
    uint32_t recent_count
    RecentBatch recent[32]
    int32_t hint_next
    ReadHint hints[8]
    uint64_t jitter_seed
    int64_t damaged_offset          # where a reader found last that no batch stands; -1: nowhere
    int32_t note_count
    RecoveryNote *notes             # NULL: none, as of nearly every log

cdef struct AppendResult:
    int16_t error
    bint duplicate                  # a retry of one of the last five batches: base_offset is the original's
    bint needs_fallback             # nothing was appended: hand the request to the Python worker
    int64_t base_offset             # -1 on error
    int64_t last_offset
    int64_t log_append_time_ms      # -1 for CreateTime; of a duplicate: the stored timestamp, as Kafka answers
    int64_t log_start_offset        # -1 when the error came before the log was looked at
    int32_t appended_bytes
    Verdict verdict                 # record errors and message

# One partition's part of a Produce, or of a leader's fetch, on its way into the log.
cdef struct Append:
    uint8_t *records                # stamped in place
    int32_t length
    const uint8_t *inflated         # NULL with -1, or what a codec without a native engine made of the records
    int64_t inflated_length
    int64_t guard                   # of a transaction's first batch, from log_begin_verification; 0: none
    int16_t transaction_version     # of a marker
    AppendResult out

# What a reader gets: one slice of one segment. The reference in `segment` is the caller's to release (or hand to a chain).
cdef struct ReadPlan:
    int16_t error                   # NONE, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR
    Segment *segment                # NULL: nothing to read
    int64_t position
    int64_t length                  # whole batches; nothing when the first one passes max_bytes and at_least_one is false
    bint more_behind                # readable records stand in a later segment, which this slice cannot reach
    int64_t high_watermark          # of the same moment; -1 on error, as the others
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t log_end_offset

cdef struct TimestampOffset:
    int16_t error
    int64_t offset                  # -1: none
    int64_t timestamp
    int32_t leader_epoch


cdef inline Segment *active(Log *log) noexcept nogil:
    return log.segments[log.segment_count - 1]

cdef inline int32_t offline_errno(const Log *log) noexcept nogil:
    # Why it is offline, by its own failure or its neighbour's; 0: it is not.
    cdef int32_t own = load_int32(&log.offline_errno)
    return own if own != 0 else failure_of(log.health)

cdef inline bint usable(const Log *log) noexcept nogil:
    return not log.closed and offline_errno(log) == 0

cdef inline int refusal(const Log *log) noexcept nogil:
    # What someone is told who asks a log that is not usable.
    cdef int32_t code = offline_errno(log)
    return -code if code != 0 else -EIO

cdef inline int64_t first_unstable(const Log *log) noexcept nogil:
    # A transaction may have begun before what was deleted: readers wait at the start, not below it.
    cdef int64_t offset = log.producers.first_open_txn_offset
    cdef int64_t ended = log.producers.first_ended_txn_offset
    if ended >= 0 and (offset < 0 or ended < offset):
        offset = ended
    return log.start_offset if 0 <= offset < log.start_offset else offset

cdef inline int go_offline(Log *log, int rc) noexcept nogil:
    # Keeps the first errno; returns rc. What the disk did is its whole directory's affair.
    if log.offline_errno == 0:
        store_int32(&log.offline_errno, -rc if rc < 0 else EIO)
    if not log.handed_over:
        health_fail(log.health, rc, log.directory)
    return rc
