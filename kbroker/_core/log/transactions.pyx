# Aborted transactions by scanning headers, then the walk that Kafka's cleaner makes.
from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memset

from kbroker._core.log.id_map cimport IdSlot, ids_clear, ids_find, ids_put, ids_remove
from kbroker._core.log.txn_index cimport txn_index_add
from kbroker._core.record.batch cimport (
    ATTR_CODEC, ATTR_CONTROL, ATTR_TRANSACTIONAL, BATCH_HEADER_BYTES, batch_attributes, batch_base_offset,
    batch_has_producer_id, batch_last_offset, batch_producer_id, batch_records_count, batch_size_bytes,
)
from kbroker._core.record.record_view cimport RECORD_FINE, RecordView, read_record
from kbroker._core.wire.cursor cimport load_be16

cdef enum OngoingBits:
    COMMITTED = 1            # a batch was met that no aborted transaction claims
    ABORTED = 2
    OBSERVED = 4             # and a batch of the aborted transaction was met
    ALL_BITS = 7
    INDEX_SHIFT = 3          # above them: its place among the aborted ones


cdef int by_first_offset(const void *a, const void *b) noexcept nogil:
    cdef int64_t x = (<const AbortedTxn *> a).first_offset
    cdef int64_t y = (<const AbortedTxn *> b).first_offset
    return (x > y) - (x < y)


cdef Marker marker_of(const uint8_t *batch, int64_t available) noexcept nogil:
    cdef RecordView record
    cdef const uint8_t *at = batch + BATCH_HEADER_BYTES
    cdef int kind
    if batch_records_count(batch) == 0:
        return MARKER_EMPTY
    if batch_attributes(batch) & ATTR_CODEC or read_record(&at, batch + available, &record) != RECORD_FINE:
        return MARKER_OTHER
    if record.key_length < 4:
        return MARKER_OTHER
    kind = load_be16(record.key + 2)
    return <Marker> kind if kind == MARKER_ABORT or kind == MARKER_COMMIT else MARKER_OTHER


cdef void txns_init(Transactions *t) noexcept nogil:
    memset(t, 0, sizeof(Transactions))


cdef void txns_free(Transactions *t) noexcept nogil:
    free(t.aborted)
    ids_clear(&t.open)
    ids_clear(&t.ongoing)
    txns_init(t)


cdef int add_aborted(Transactions *t, int64_t producer_id, int64_t first_offset, int64_t marker_offset) noexcept nogil:
    # Its own transaction is open no more.
    cdef int64_t capacity
    cdef void *moved
    if t.count == t.capacity:
        capacity = 2 * t.capacity if t.capacity > 0 else 64
        moved = realloc(t.aborted, capacity * sizeof(AbortedTxn))
        if moved == NULL:
            return -ENOMEM
        t.aborted = <AbortedTxn *> moved
        t.capacity = capacity
    t.aborted[t.count].producer_id = producer_id
    t.aborted[t.count].first_offset = first_offset
    t.aborted[t.count].last_offset = marker_offset
    t.aborted[t.count].last_stable_offset = txns_first_open(t)
    if t.aborted[t.count].last_stable_offset < 0:
        t.aborted[t.count].last_stable_offset = marker_offset + 1
    t.count += 1
    return 0


cdef int txns_scan(Transactions *t, const uint8_t *batch, int64_t available, bint begins) noexcept nogil:
    cdef IdSlot *slot
    cdef Marker marker
    cdef int64_t first_offset
    cdef int rc = 0
    if not batch_has_producer_id(batch):
        return 0
    slot = ids_find(&t.open, batch_producer_id(batch))
    if batch_attributes(batch) & ATTR_CONTROL:
        marker = marker_of(batch, available)
        if slot != NULL and (marker == MARKER_ABORT or marker == MARKER_COMMIT):
            first_offset = slot.value
            ids_remove(&t.open, slot)
            if marker == MARKER_ABORT:
                rc = add_aborted(t, batch_producer_id(batch), first_offset, batch_last_offset(batch))
    elif begins and slot == NULL and batch_attributes(batch) & ATTR_TRANSACTIONAL:
        rc = 0 if ids_put(&t.open, batch_producer_id(batch), batch_base_offset(batch)) else -ENOMEM
    return rc


cdef int64_t txns_first_open(const Transactions *t) noexcept nogil:
    cdef int64_t first = -1
    cdef int64_t i
    if t.open.count > 0:
        for i in range(t.open.mask + 1):
            if t.open.slots[i].id >= 0 and (first < 0 or t.open.slots[i].value < first):
                first = t.open.slots[i].value
    return first


cdef void txns_scanned(Transactions *t) noexcept nogil:
    ids_clear(&t.open)
    if t.count > 0:
        qsort(t.aborted, t.count, sizeof(AbortedTxn), by_first_offset)


cdef void txns_begin_walk(Transactions *t) noexcept nogil:
    t.next = 0
    ids_clear(&t.ongoing)


cdef bint mark(Transactions *t, int64_t producer_id, int64_t bits) noexcept nogil:
    cdef IdSlot *slot = ids_find(&t.ongoing, producer_id)
    if slot == NULL:
        return ids_put(&t.ongoing, producer_id, bits)
    slot.value |= bits
    return True


cdef bint begin_aborted(Transactions *t, int64_t index) noexcept nogil:
    cdef IdSlot *slot = ids_find(&t.ongoing, t.aborted[index].producer_id)
    if slot == NULL:
        return ids_put(&t.ongoing, t.aborted[index].producer_id, index << INDEX_SHIFT | ABORTED)
    slot.value = index << INDEX_SHIFT | (slot.value & ALL_BITS) | ABORTED
    return True


cdef bint meet_aborted(Transactions *t, const uint8_t *batch) noexcept nogil:
    # Those that begin up to here, unless they ended before the walk began.
    cdef AbortedTxn *txn
    while t.next < t.count and t.aborted[t.next].first_offset <= batch_last_offset(batch):
        txn = &t.aborted[t.next]
        t.next += 1
        if txn.last_offset >= batch_base_offset(batch) and not begin_aborted(t, t.next - 1):
            return False
    return True


cdef int txns_on_batch(Transactions *t, const uint8_t *batch) noexcept nogil:
    cdef IdSlot *slot
    if not meet_aborted(t, batch):
        return -ENOMEM
    if not batch_attributes(batch) & ATTR_TRANSACTIONAL or not batch_has_producer_id(batch):
        return 0
    slot = ids_find(&t.ongoing, batch_producer_id(batch))
    if slot != NULL and slot.value & ABORTED:
        slot.value |= OBSERVED
        return 1
    return 0 if mark(t, batch_producer_id(batch), COMMITTED) else -ENOMEM


cdef int txns_on_marker(Transactions *t, const uint8_t *batch) noexcept nogil:
    cdef Marker marker = marker_of(batch, batch_size_bytes(batch))
    cdef IdSlot *slot
    cdef bint met
    if not meet_aborted(t, batch):
        return -ENOMEM
    if marker == MARKER_EMPTY:
        return 1
    if marker == MARKER_OTHER:
        return 0
    slot = ids_find(&t.ongoing, batch_producer_id(batch)) if batch_has_producer_id(batch) else NULL
    if slot == NULL:
        return 1
    if marker == MARKER_ABORT:
        met = slot.value & OBSERVED != 0
        if met and t.cleaned != NULL and not txn_index_add(t.cleaned, &t.aborted[slot.value >> INDEX_SHIFT]):
            return -ENOMEM
        slot.value &= COMMITTED
    else:
        met = slot.value & COMMITTED != 0
        slot.value &= ~<int64_t> COMMITTED
    if slot.value & ALL_BITS == 0:
        ids_remove(&t.ongoing, slot)
    return 0 if met else 1
