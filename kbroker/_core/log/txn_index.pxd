# txn_index: the aborted transactions whose marker stands in one segment, as Kafka's .txnindex holds them.
# Owns        the entries in memory; the file is opened for the moment it is read or written.
# Called by   segment (its life), log/append and log/replay (entries), log/aborted (look-ups), log/transactions (what stays).
# Threads     under the log's lock; of a segment that is being compacted: its cleaner's.
# Returns     0 or -errno. -EINVAL: the file is none of this segment's, to be made anew from the log.
# Invariants  ascending by last offset; written <= count. Without an aborted transaction there is no file.
#
# An entry, 34 bytes, with no checksum:
# at size field                          at size field
#  0   2  version = 0                    18   8  last offset: the marker's
#  2   8  producer id                    26   8  last stable offset once the marker was there: of the oldest transaction
# 10   8  first offset                           still open then, else the marker's + 1
from libc.stdint cimport int32_t, int64_t

cdef enum:
    TXN_ENTRY_BYTES = 34
    NOT_READ = -1            # of count: look into the file first

cdef struct AbortedTxn:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset

cdef struct TxnIndex:
    AbortedTxn *entries
    int32_t count
    int32_t written
    int32_t capacity

cdef void txn_index_reset(TxnIndex *x) noexcept nogil             # none, whatever the file holds
cdef void txn_index_rest(TxnIndex *x) noexcept nogil              # gives back the memory of what the file holds
# A segment that ends at `next_offset`. `directory` NULL: there is no file.
cdef int txn_index_read(TxnIndex *x, const char *directory, int64_t base_offset, int64_t next_offset) noexcept nogil
cdef bint txn_index_add(TxnIndex *x, const AbortedTxn *txn) noexcept nogil
# Brings the file up to date and to its size. `ending`: behind the suffix, "" or .cleaned.
cdef int txn_index_write(TxnIndex *x, const char *directory, int64_t base_offset, const char *ending) noexcept nogil
cdef void txn_index_cut(TxnIndex *x, int64_t offset) noexcept nogil      # transactions that end there or later; to be written
# Those of which something lies in [from_offset, upper_bound) are added to `out`. True: no later segment can hold another.
cdef bint txn_index_collect(const TxnIndex *x, int64_t from_offset, int64_t upper_bound, TxnIndex *out, bint *no_memory) noexcept nogil
