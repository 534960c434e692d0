# batch_filter: what compaction leaves of one batch (KIP-58, KIP-98, KIP-534).
# Owns        its working memory.
# Called by   log/cleaner, which brings the map and the transactions.
# Threads     one at a time. Never takes the GIL.
# Fails by    -errno, with a sentence in `reason` when it is the batch's fault.
#
# - A record stays if the map knows no later one of its key. A record without a key goes. What lies behind the map stays.
# - A record without a value (a tombstone) also goes, once the batch's delete horizon has passed. The first cleaning that
#   meets one sets that horizon: attribute bit 6, and base_timestamp is now + delete.retention.ms; the records' deltas are
#   written against it, so they may be negative.
# - Records of an aborted transaction go at once; its marker, as that of a committed one, when none of its batches is left
#   and the horizon it was given then has passed.
# - The last batch of a known producer stays, if need be without records, so that its sequence and epoch survive; so does
#   the last batch of the cleaned range, so that its end does.
# - What changes keeps base offset, last offset delta, offset deltas, producer fields, leader epoch, codec and kind of
#   timestamp. What does not change keeps its bytes.
from libc.stdint cimport int64_t, uint8_t
from kbroker._core.log.id_map cimport IdMap
from kbroker._core.log.offset_map cimport OffsetMap
from kbroker._core.log.transactions cimport Transactions
from kbroker._core.record.compression cimport Scratch

cdef struct BatchFilter:
    const OffsetMap *map
    Transactions *txns
    int64_t latest_offset        # the map knows every key up to here
    int64_t end_offset           # of the range that is cleaned
    int64_t now_ms
    int64_t delete_retention_ms
    IdMap last_of_producers      # producer id -> last offset of its last batch, or -2 - epoch: only a marker is known
    int64_t records_read
    int64_t records_kept
    const char *reason           # static text
    Scratch inflated
    Scratch kept                 # a byte a record
    Scratch encoded
    Scratch rewritten

cdef void filter_free(BatchFilter *f) noexcept nogil
# The size of what remains, which stands in *out: `batch` itself, or written anew. 0: nothing remains. `batch` is whole and
# its checksum was found good.
cdef int64_t filter_batch(BatchFilter *f, const uint8_t *batch, const uint8_t **out) noexcept nogil
