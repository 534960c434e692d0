# aborted: which transactions of a log were aborted, by its transaction indexes.
# Called by   the door; Fetch at isolation level read_committed; log/cleaner.
# Threads     any; the log's lock is taken for one segment at a time.
# Returns     0 or -errno.
from libc.stdint cimport int64_t
from kbroker._core.log.segment cimport Segment
from kbroker._core.log.state cimport Log, ReadPlan
from kbroker._core.log.transactions cimport Transactions
from kbroker._core.log.txn_index cimport TxnIndex

# Every aborted transaction that has something in [from_offset, upper_bound), in the order of their markers. A marker stands
# in the segment of `from_offset` or behind, so the look-up begins there, and ends at the first entry whose last stable offset
# reaches the bound: whatever was aborted later began behind it.
cdef int log_collect_aborted(Log *log, int64_t from_offset, int64_t upper_bound, TxnIndex *out) noexcept nogil
# Those that a reader of a planned slice, who asked for `from_offset`, must know of. As in Kafka the offset index tells how far
# the slice goes, so that a few that begin shortly behind it may be among them.
cdef int log_collect_of_slice(Log *log, int64_t from_offset, const ReadPlan *plan, TxnIndex *out) noexcept nogil
# What a scan of the batches found, as the indexes tell it: a transaction may have begun before the log's start. Before
# txns_scanned.
cdef int log_confirm_aborted(Log *log, Transactions *t) noexcept nogil
