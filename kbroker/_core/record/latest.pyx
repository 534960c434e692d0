# What still counts of a log whose keys replace one another, without an object for each record that was replaced.
from operator import itemgetter

from libc.stdint cimport int64_t, uint8_t

from kbroker._core.record.batch cimport (
    ATTR_CONTROL, ATTR_TRANSACTIONAL, batch_attributes, batch_base_offset, batch_last_offset_delta, batch_producer_id,
)
from kbroker._core.record.compression cimport Scratch, empty_scratch, scratch_free
from kbroker._core.record.record_view cimport RecordView
from kbroker._core.record.records cimport CUT_SHORT, RecordWalk, bytes_or_none, open_batch, visit, whole_batch

from kbroker._core.record.records import BrokenRecords

cdef enum:
    NO_PRODUCER = -1
    COMMIT_MARKER = 1


cdef class Latest:
    """The last record of each key, of batches that are given in the order of their log.

    What belongs to a transaction is kept whole, and so is what ends one: whether it counts is not decided here.
    """

    cdef readonly int64_t next_offset
    cdef dict _by_key
    cdef list _in_transactions

    def __init__(self, start_offset: int):
        self.next_offset = start_offset
        self._by_key = {}
        self._in_transactions = []

    def take(self, const uint8_t[::1] data not None):
        """More batches; records below `next_offset` are passed over. Raises BrokenRecords: up to there all was good."""
        cdef Scratch scratch = empty_scratch()
        cdef int64_t length = data.shape[0]
        cdef int64_t at = 0
        cdef int64_t size
        try:
            while at < length:
                size = whole_batch(&data[0], at, length)
                if size == CUT_SHORT:
                    raise BrokenRecords(f"the batch at byte {at} is cut short")
                self._take_batch(&data[at], size, &scratch)
                at += size
        finally:
            scratch_free(&scratch)

    cdef int _take_batch(self, const uint8_t *batch, int64_t size, Scratch *scratch) except -1:
        cdef RecordWalk walk
        cdef RecordView record
        cdef int64_t offset = 0
        cdef int64_t timestamp = 0
        cdef int64_t next_offset = batch_base_offset(batch) + batch_last_offset_delta(batch) + 1
        cdef int64_t producer_id = NO_PRODUCER
        cdef bint commits = False
        inflated = open_batch(batch, size, scratch, &walk)
        if batch_attributes(batch) & (ATTR_CONTROL | ATTR_TRANSACTIONAL):
            producer_id = batch_producer_id(batch)
        if batch_attributes(batch) & ATTR_CONTROL:
            if walk.left > 0:
                visit(&walk, &record, &offset, &timestamp)
                commits = record.key_length >= 4 and (record.key[2] << 8 | record.key[3]) == COMMIT_MARKER
            self._in_transactions.append((next_offset - 1, producer_id, None, commits))
        else:
            while walk.left > 0:
                visit(&walk, &record, &offset, &timestamp)
                if offset < self.next_offset:
                    continue
                key = bytes_or_none(record.key, max(record.key_length, 0))
                entry = (offset, producer_id, key, bytes_or_none(record.value, record.value_length))
                if producer_id == NO_PRODUCER:
                    self._by_key[key] = entry
                else:
                    self._in_transactions.append(entry)
        self.next_offset = max(self.next_offset, next_offset)
        return 0

    def entries(self) -> list:
        """(offset, producer id, key, value) in the log's order; what ends a transaction has no key, and as its value
        whether it commits. A producer id of -1 is a record outside of transactions."""
        return sorted([*self._by_key.values(), *self._in_transactions], key=itemgetter(0))
