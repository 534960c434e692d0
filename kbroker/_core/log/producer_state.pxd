# producer_state: what a partition remembers of each idempotent producer: its epoch, its last five batches, whether it has
# a transaction open. So a retry is recognised and answered as the first time, and a lost request is not skipped over.
# Owns        a hash table of producers, and the list of them by last write.
# Called by   log/append (check, then note), log/recovery (replay, snapshots), log/upkeep (snapshots, expiry).
# Threads     under the log's lock.
# Fails by    an Err code from producers_check; -errno from the files.
# Transactions: one is undecided from its first batch to its marker, and by Kafka's rule until the high watermark has passed
#             the marker, too; the oldest undecided one bounds the last stable offset.
# Invariants  at most PRODUCERS_PER_LOG_MAX producers: the one that wrote longest ago without an open transaction makes room,
#             which is to it as if it had expired. Beyond that only open transactions count, which their coordinators know.
#
# The file NNNNNNNNNNNNNNNNNNNN.snapshot: the state before the offset in its name.
# at size field                          at size field, 46 bytes per producer from 10
#  0   2  version = 1                    +0   8  producer_id              +26  8  timestamp
#  2   4  crc32c of what follows         +8   2  producer_epoch           +34  4  coordinator_epoch
#  6   4  number of producers            +10  4  last sequence            +38  8  first offset of the open transaction, or -1
# 10   .  producers                      +14  8  last offset
#                                        +22  4  offset delta (last sequence - first sequence)
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from kbroker._core.limits cimport PRODUCER_BATCHES_KEPT, PRODUCERS_PER_LOG_MAX
from kbroker._core.log.txn_index cimport AbortedTxn
from kbroker._core.log.verification cimport Verification

cdef struct ProducerBatch:
    int32_t last_sequence
    int32_t offset_delta
    int64_t last_offset
    int64_t timestamp

cdef struct Producer:
    int64_t producer_id
    int16_t producer_epoch
    int8_t batch_count
    int8_t newest                    # index of the newest batch in the ring
    int32_t coordinator_epoch        # of the last transaction marker; -1: none
    int64_t last_timestamp
    int64_t txn_first_offset         # -1: no open transaction
    int32_t earlier, later           # neighbours in the order of last writes; -1: none
    ProducerBatch batches[5]

# A transaction whose marker the high watermark has not passed yet.
cdef struct EndedTxn:
    int64_t first_offset
    int64_t marker_offset

cdef struct ProducerTable:
    Producer *producers              # 0..count, in no order
    int32_t count
    int32_t capacity
    int32_t *slots                   # open addressing: index into producers, or -1
    int32_t slot_mask
    int32_t oldest, newest           # by last write
    int64_t first_open_txn_offset    # -1: none
    EndedTxn *ended                  # ascending by marker
    int32_t ended_count
    int32_t ended_capacity
    int64_t first_ended_txn_offset   # the smallest first offset among them; -1: none
    int64_t swept_ms                 # when expiry last looked
    int64_t snapshot_offset          # of the newest snapshot on disk; -1: none

cdef enum Check:
    CHECK_SEQUENCE = 0               # a client's batch
    CHECK_EPOCH = 1                  # a coordinator's

cdef void producers_init(ProducerTable *t) noexcept nogil
cdef void producers_free(ProducerTable *t) noexcept nogil
cdef void producers_clear(ProducerTable *t) noexcept nogil
cdef bint producers_in_transaction(const ProducerTable *t, int64_t producer_id, int16_t producer_epoch) noexcept nogil
# May this batch be appended? An Err code. A retry of a kept batch sets *duplicate. `pending` is what stands among the
# verifications for its producer, or NULL; `verified`: its first batch of a transaction may come.
cdef int16_t producers_check(const ProducerTable *t, const uint8_t *batch, Check check, const Verification *pending,
                             bint verified, ProducerBatch **duplicate) noexcept nogil
# And this marker? By the rules of its transaction version: in 2 a transaction's end has an epoch above that of its batches; the
# same epoch again is a retry.
cdef int16_t producers_check_marker(const ProducerTable *t, const uint8_t *batch, int64_t size_bytes,
                                    int16_t transaction_version) noexcept nogil
# It was appended (its offsets are stamped). False when memory ran out. What a marker aborted stands in *aborted, else a
# producer id of -1.
cdef bint producers_note(ProducerTable *t, const uint8_t *batch, int64_t size_bytes, AbortedTxn *aborted) noexcept nogil
cdef void producers_replicated(ProducerTable *t, int64_t high_watermark) noexcept nogil    # it has moved
cdef void producers_expire(ProducerTable *t, int64_t now_ms, int64_t expiration_ms) noexcept nogil
cdef int producers_write_snapshot(ProducerTable *t, const char *directory, int64_t offset) noexcept nogil
cdef int producers_read_snapshot(ProducerTable *t, const char *directory, int64_t offset,
                                 int64_t now_ms, int64_t expiration_ms) noexcept nogil   # -EINVAL: damaged
