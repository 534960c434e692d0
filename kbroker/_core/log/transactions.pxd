# transactions: which transactions of a stretch of log were aborted, and when a marker has outlived its records.
# Owns        the list of aborted transactions and the state of a walk over the batches.
# Called by   log/cleaner (scan), log/batch_filter (walk).
# Threads     one at a time.
# Fails by    -ENOMEM. Never takes the GIL.
#
# Whether a batch was aborted stands behind it, in its transaction's marker. So the headers are scanned first, and then
# walked as often as need be. What the transaction indexes say of the same transactions is taken over (log/aborted), and a
# walk that copies writes down those whose batches it still met, as Kafka's does.
from libc.stdint cimport int64_t, uint8_t
from kbroker._core.log.id_map cimport IdMap
from kbroker._core.log.txn_index cimport AbortedTxn, TxnIndex

cdef enum Marker:
    MARKER_ABORT = 0
    MARKER_COMMIT = 1
    MARKER_OTHER = 2         # a control record that ends no transaction
    MARKER_EMPTY = 3         # its record was removed by an earlier cleaning

cdef enum:
    MARKER_BYTES_MAX = 128   # as much of a control batch as a scan wants; a marker's has 78 to 96

cdef struct Transactions:
    AbortedTxn *aborted      # ascending by marker; by first offset, once scanned
    int64_t count
    int64_t capacity
    int64_t next             # of a walk: those before it were met
    IdMap open               # of a scan: producer id -> first offset
    IdMap ongoing            # of a walk: producer id -> OngoingBits, and above them which aborted one it is
    TxnIndex *cleaned        # of a walk that copies: what stays; else NULL

cdef void txns_init(Transactions *t) noexcept nogil
cdef void txns_free(Transactions *t) noexcept nogil
# In order of offsets. `batch` is a header, or of a control batch its first MARKER_BYTES_MAX bytes. Without `begins` a batch
# opens no transaction: only the end of those is looked for that are open.
cdef int txns_scan(Transactions *t, const uint8_t *batch, int64_t available, bint begins) noexcept nogil
cdef int64_t txns_first_open(const Transactions *t) noexcept nogil               # the offset where one began; -1: none is open
cdef void txns_scanned(Transactions *t) noexcept nogil
cdef void txns_begin_walk(Transactions *t) noexcept nogil
# In order of offsets, from anywhere. 1: the batch belongs to an aborted transaction; 0, -ENOMEM.
cdef int txns_on_batch(Transactions *t, const uint8_t *batch) noexcept nogil
# 1: no batch of the marker's transaction was met, so the marker is no longer needed; 0, -ENOMEM.
cdef int txns_on_marker(Transactions *t, const uint8_t *batch) noexcept nogil
