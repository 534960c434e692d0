# Idempotent producers of one partition (KIP-98): sequence check, five-batch memory, snapshots.
from libc.errno cimport EINVAL, ENOMEM
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove, memset

from kbroker._core.errors cimport (
    INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, NONE, OUT_OF_ORDER_SEQUENCE_NUMBER, TRANSACTION_COORDINATOR_FENCED,
)
from kbroker._core.limits cimport PRODUCER_BATCHES_KEPT, PRODUCERS_PER_LOG_MAX
from kbroker._core.log.files cimport PATH_BYTES, path_of_segment, read_whole, replace_file
from kbroker._core.record.batch cimport (
    ATTR_CODEC, ATTR_CONTROL, ATTR_TRANSACTIONAL, BATCH_HEADER_BYTES, batch_attributes, batch_base_offset,
    batch_base_sequence, batch_last_offset, batch_last_offset_delta, batch_max_timestamp, batch_producer_epoch,
    batch_producer_id,
)
from kbroker._core.record.crc32c cimport crc32c
from kbroker._core.wire.cursor cimport (
    Cursor, cursor_over, load_be16, load_be32, load_be64, store_be16, store_be32, store_be64, take_int8, take_int16,
    take_int32, take_varint, take_varlong,
)

cdef enum:
    SNAPSHOT_VERSION = 1
    SNAPSHOT_HEADER_BYTES = 10
    SNAPSHOT_ENTRY_BYTES = 46
    SNAPSHOT_MAX_BYTES = 1073741824
    SEQUENCE_MAX = 0x7fffffff
    MARKER_ABORT = 0
    MARKER_COMMIT = 1


cdef void producers_init(ProducerTable *t) noexcept nogil:
    memset(t, 0, sizeof(ProducerTable))
    t.slot_mask = -1
    t.oldest = -1
    t.newest = -1
    t.first_open_txn_offset = -1
    t.first_ended_txn_offset = -1
    t.snapshot_offset = -1


cdef void producers_free(ProducerTable *t) noexcept nogil:
    free(t.producers)
    free(t.slots)
    free(t.ended)
    producers_init(t)


cdef void producers_clear(ProducerTable *t) noexcept nogil:
    cdef int64_t snapshot_offset = t.snapshot_offset
    producers_free(t)
    t.snapshot_offset = snapshot_offset


cdef inline uint32_t hash_of(int64_t producer_id) noexcept nogil:
    return <uint32_t> ((<uint64_t> producer_id * 0x9e3779b97f4a7c15ULL) >> 32)


cdef int32_t slot_of(const ProducerTable *t, int64_t producer_id) noexcept nogil:
    # The slot that names this producer, or the empty one where it belongs.
    cdef int32_t slot = <int32_t> (hash_of(producer_id) & <uint32_t> t.slot_mask)
    while t.slots[slot] >= 0 and t.producers[t.slots[slot]].producer_id != producer_id:
        slot = (slot + 1) & t.slot_mask
    return slot


cdef Producer *find(const ProducerTable *t, int64_t producer_id) noexcept nogil:
    cdef int32_t index
    if t.slots == NULL:
        return NULL
    index = t.slots[slot_of(t, producer_id)]
    return &t.producers[index] if index >= 0 else NULL


cdef void unlink(ProducerTable *t, int32_t index) noexcept nogil:
    cdef Producer *p = &t.producers[index]
    if p.earlier >= 0:
        t.producers[p.earlier].later = p.later
    else:
        t.oldest = p.later
    if p.later >= 0:
        t.producers[p.later].earlier = p.earlier
    else:
        t.newest = p.earlier


cdef void link_newest(ProducerTable *t, int32_t index) noexcept nogil:
    cdef Producer *p = &t.producers[index]
    p.earlier = t.newest
    p.later = -1
    if t.newest >= 0:
        t.producers[t.newest].later = index
    else:
        t.oldest = index
    t.newest = index


cdef void rehash(ProducerTable *t) noexcept nogil:
    cdef int32_t i
    for i in range(t.slot_mask + 1):
        t.slots[i] = -1
    for i in range(t.count):
        t.slots[slot_of(t, t.producers[i].producer_id)] = i


cdef bint grow(ProducerTable *t) noexcept nogil:
    cdef int32_t capacity = t.capacity * 2 if t.capacity > 0 else 4
    cdef void *producers = realloc(t.producers, capacity * sizeof(Producer))
    cdef void *slots
    if producers == NULL:
        return False
    t.producers = <Producer *> producers
    slots = realloc(t.slots, 2 * capacity * sizeof(int32_t))
    if slots == NULL:
        return False
    t.slots = <int32_t *> slots
    t.capacity = capacity
    t.slot_mask = 2 * capacity - 1
    rehash(t)
    return True


cdef void close_gap(ProducerTable *t, int32_t slot) noexcept nogil:
    # Linear probing without tombstones: whoever was pushed past the freed slot moves back.
    cdef int32_t next_slot = slot
    cdef int32_t home
    t.slots[slot] = -1
    while True:
        next_slot = (next_slot + 1) & t.slot_mask
        if t.slots[next_slot] < 0:
            return
        home = <int32_t> (hash_of(t.producers[t.slots[next_slot]].producer_id) & <uint32_t> t.slot_mask)
        if ((next_slot - home) & t.slot_mask) >= ((next_slot - slot) & t.slot_mask):
            t.slots[slot] = t.slots[next_slot]
            t.slots[next_slot] = -1
            slot = next_slot


cdef void remove(ProducerTable *t, int32_t index) noexcept nogil:
    # The last producer of the array takes the place that becomes free.
    cdef int32_t last = t.count - 1
    cdef Producer *p
    unlink(t, index)
    close_gap(t, slot_of(t, t.producers[index].producer_id))
    if index != last:
        t.slots[slot_of(t, t.producers[last].producer_id)] = index
        t.producers[index] = t.producers[last]
        p = &t.producers[index]
        if p.earlier >= 0:
            t.producers[p.earlier].later = index
        else:
            t.oldest = index
        if p.later >= 0:
            t.producers[p.later].earlier = index
        else:
            t.newest = index
    t.count = last


cdef void find_first_open(ProducerTable *t) noexcept nogil:
    cdef int64_t first = -1
    cdef int64_t offset
    cdef int32_t i
    for i in range(t.count):
        offset = t.producers[i].txn_first_offset
        if offset >= 0 and (first < 0 or offset < first):
            first = offset
    t.first_open_txn_offset = first


cdef void make_room(ProducerTable *t) noexcept nogil:
    cdef int32_t i = t.oldest
    while i >= 0 and t.producers[i].txn_first_offset >= 0:
        i = t.producers[i].later
    if i >= 0:
        remove(t, i)                 # else every one of them has a transaction open: to forget it would end it


cdef Producer *insert(ProducerTable *t, int64_t producer_id, int16_t producer_epoch) noexcept nogil:
    cdef Producer *p
    cdef int32_t index
    if t.count >= PRODUCERS_PER_LOG_MAX:
        make_room(t)
    if t.count == t.capacity and not grow(t):
        return NULL
    index = t.count
    t.slots[slot_of(t, producer_id)] = index
    t.count += 1
    p = &t.producers[index]
    memset(p, 0, sizeof(Producer))
    p.producer_id = producer_id
    p.producer_epoch = producer_epoch
    p.coordinator_epoch = -1
    p.last_timestamp = -1
    p.txn_first_offset = -1
    link_newest(t, index)
    return p


cdef inline int32_t sequence_plus(int32_t sequence, int32_t delta) noexcept nogil:
    # After 2147483647 comes 0.
    return <int32_t> ((<uint32_t> sequence + <uint32_t> delta) & 0x7fffffff)


cdef inline int32_t sequence_minus(int32_t sequence, int32_t delta) noexcept nogil:
    return <int32_t> ((<uint32_t> sequence - <uint32_t> delta) & 0x7fffffff)


cdef bint producers_in_transaction(const ProducerTable *t, int64_t producer_id, int16_t producer_epoch) noexcept nogil:
    cdef Producer *p = find(t, producer_id)
    return p != NULL and p.txn_first_offset >= 0 and p.producer_epoch == producer_epoch


cdef int16_t check_sequence(const Producer *p, int16_t epoch, int32_t first, const Verification *pending) noexcept nogil:
    if pending != NULL:              # nothing may come before the batch that asked first
        if pending.adds and first != 0 and (p == NULL or p.batch_count == 0):
            return OUT_OF_ORDER_SEQUENCE_NUMBER
        if first > pending.lowest_sequence:
            return OUT_OF_ORDER_SEQUENCE_NUMBER
    if p == NULL:
        return NONE                  # forgotten or new: any first sequence will do
    if epoch > p.producer_epoch or p.batch_count == 0:       # or only a marker is known of this epoch
        return NONE if first == 0 else OUT_OF_ORDER_SEQUENCE_NUMBER
    return NONE if first == sequence_plus(p.batches[p.newest].last_sequence, 1) else OUT_OF_ORDER_SEQUENCE_NUMBER


cdef int16_t producers_check(const ProducerTable *t, const uint8_t *batch, Check check, const Verification *pending,
                             bint verified, ProducerBatch **duplicate) noexcept nogil:
    cdef Producer *p = find(t, batch_producer_id(batch))
    cdef int16_t epoch = batch_producer_epoch(batch)
    cdef int32_t first = batch_base_sequence(batch)
    cdef int32_t last = sequence_plus(first, batch_last_offset_delta(batch))
    cdef bint transactional = (batch_attributes(batch) & ATTR_TRANSACTIONAL) != 0
    cdef bint open_ = p != NULL and p.txn_first_offset >= 0
    cdef int16_t error = NONE
    cdef ProducerBatch *b
    cdef int i
    duplicate[0] = NULL
    if check == CHECK_SEQUENCE and p != NULL and epoch == p.producer_epoch:
        for i in range(p.batch_count):
            b = &p.batches[(p.newest - i + PRODUCER_BATCHES_KEPT) % PRODUCER_BATCHES_KEPT]
            if b.last_sequence == last and sequence_minus(b.last_sequence, b.offset_delta) == first:
                duplicate[0] = b
                return NONE
    if transactional and not verified and not (open_ and p.producer_epoch == epoch):
        return INVALID_TXN_STATE
    if p != NULL and epoch < p.producer_epoch:
        return INVALID_PRODUCER_EPOCH
    if check == CHECK_SEQUENCE:
        error = check_sequence(p, epoch, first, pending)
    if error == NONE and open_ and not transactional:
        return INVALID_TXN_STATE
    return error


cdef int16_t producers_check_marker(const ProducerTable *t, const uint8_t *batch, int64_t size_bytes,
                                    int16_t transaction_version) noexcept nogil:
    cdef Producer *p = find(t, batch_producer_id(batch))
    cdef int16_t epoch = batch_producer_epoch(batch)
    cdef int32_t coordinator_epoch = -1
    cdef int16_t kind = MARKER_COMMIT
    if p == NULL or not read_marker(batch, size_bytes, &kind, &coordinator_epoch):
        return NONE
    if epoch < p.producer_epoch or \
            (transaction_version >= 2 and epoch == p.producer_epoch and p.txn_first_offset >= 0):
        return INVALID_PRODUCER_EPOCH
    return TRANSACTION_COORDINATOR_FENCED if p.coordinator_epoch > coordinator_epoch else NONE


cdef bint read_marker(const uint8_t *batch, int64_t size_bytes, int16_t *kind, int32_t *coordinator_epoch) noexcept nogil:
    # A transaction's end: key {int16 version, int16 type 0 abort or 1 commit}, value {int16 version, int32 coordinator epoch}.
    cdef Cursor c = cursor_over(batch + BATCH_HEADER_BYTES, size_bytes - BATCH_HEADER_BYTES)
    if batch_attributes(batch) & ATTR_CODEC:
        return False
    take_varint(&c)                  # length
    take_int8(&c)
    take_varlong(&c)
    take_varint(&c)                  # offset delta
    if take_varint(&c) < 4:
        return False
    take_int16(&c)
    kind[0] = take_int16(&c)
    if kind[0] != MARKER_ABORT and kind[0] != MARKER_COMMIT:
        return False
    take_varint(&c)                  # value length
    take_int16(&c)
    coordinator_epoch[0] = take_int32(&c)
    return not c.truncated


cdef bint add_ended(ProducerTable *t, int64_t first_offset, int64_t marker_offset) noexcept nogil:
    cdef int32_t capacity
    cdef void *moved
    if t.ended_count == t.ended_capacity:
        capacity = 2 * t.ended_capacity if t.ended_capacity > 0 else 4
        moved = realloc(t.ended, capacity * sizeof(EndedTxn))
        if moved == NULL:
            return False
        t.ended = <EndedTxn *> moved
        t.ended_capacity = capacity
    t.ended[t.ended_count].first_offset = first_offset
    t.ended[t.ended_count].marker_offset = marker_offset
    t.ended_count += 1
    if t.first_ended_txn_offset < 0 or first_offset < t.first_ended_txn_offset:
        t.first_ended_txn_offset = first_offset
    return True


cdef void producers_replicated(ProducerTable *t, int64_t high_watermark) noexcept nogil:
    cdef int32_t gone = 0
    cdef int32_t i
    while gone < t.ended_count and t.ended[gone].marker_offset < high_watermark:
        gone += 1
    if gone == 0:
        return
    t.ended_count -= gone
    memmove(t.ended, t.ended + gone, t.ended_count * sizeof(EndedTxn))
    t.first_ended_txn_offset = -1
    for i in range(t.ended_count):
        if t.first_ended_txn_offset < 0 or t.ended[i].first_offset < t.first_ended_txn_offset:
            t.first_ended_txn_offset = t.ended[i].first_offset


cdef bint note_marker(ProducerTable *t, Producer *p, const uint8_t *batch, int64_t size_bytes, AbortedTxn *aborted) noexcept nogil:
    # A marker that ends nothing (its transaction wrote nothing here) changes neither the last stable offset nor the index.
    cdef int32_t coordinator_epoch = -1
    cdef int16_t kind = MARKER_COMMIT
    cdef int64_t ended = p.txn_first_offset
    if not read_marker(batch, size_bytes, &kind, &coordinator_epoch):
        return True
    p.coordinator_epoch = coordinator_epoch
    p.txn_first_offset = -1
    if ended < 0:
        return True
    if ended == t.first_open_txn_offset:
        find_first_open(t)
    if kind == MARKER_ABORT:
        aborted.producer_id = p.producer_id
        aborted.first_offset = ended
        aborted.last_offset = batch_last_offset(batch)
        aborted.last_stable_offset = t.first_open_txn_offset if t.first_open_txn_offset >= 0 else aborted.last_offset + 1
    return add_ended(t, ended, batch_last_offset(batch))


cdef bint producers_note(ProducerTable *t, const uint8_t *batch, int64_t size_bytes, AbortedTxn *aborted) noexcept nogil:
    cdef Producer *p = find(t, batch_producer_id(batch))
    cdef int16_t epoch = batch_producer_epoch(batch)
    cdef int16_t attributes = batch_attributes(batch)
    cdef ProducerBatch *b
    cdef int32_t index
    aborted.producer_id = -1
    if p == NULL:
        p = insert(t, batch_producer_id(batch), epoch)
        if p == NULL:
            return False
    else:
        index = <int32_t> (p - t.producers)
        unlink(t, index)
        link_newest(t, index)
    if p.producer_epoch != epoch:
        p.producer_epoch = epoch
        p.batch_count = 0
    p.last_timestamp = batch_max_timestamp(batch)
    if attributes & ATTR_CONTROL:
        return note_marker(t, p, batch, size_bytes, aborted)
    p.newest = (p.newest + 1) % PRODUCER_BATCHES_KEPT if p.batch_count > 0 else 0
    if p.batch_count < PRODUCER_BATCHES_KEPT:
        p.batch_count += 1
    b = &p.batches[p.newest]
    b.offset_delta = batch_last_offset_delta(batch)
    b.last_sequence = sequence_plus(batch_base_sequence(batch), b.offset_delta)
    b.last_offset = batch_last_offset(batch)
    b.timestamp = batch_max_timestamp(batch)
    if attributes & ATTR_TRANSACTIONAL and p.txn_first_offset < 0:
        p.txn_first_offset = batch_base_offset(batch)
        if t.first_open_txn_offset < 0:
            t.first_open_txn_offset = p.txn_first_offset
    return True


cdef void producers_expire(ProducerTable *t, int64_t now_ms, int64_t expiration_ms) noexcept nogil:
    cdef int32_t i = 0
    t.swept_ms = now_ms
    while i < t.count:
        if t.producers[i].txn_first_offset < 0 and now_ms - t.producers[i].last_timestamp >= expiration_ms:
            remove(t, i)             # the last one is now here: look again
        else:
            i += 1


cdef void encode(const Producer *p, uint8_t *out) noexcept nogil:
    cdef const ProducerBatch *b = &p.batches[p.newest]
    cdef bint known = p.batch_count > 0
    store_be64(out, <uint64_t> p.producer_id)
    store_be16(out + 8, p.producer_epoch)
    store_be32(out + 10, b.last_sequence if known else -1)
    store_be64(out + 14, <uint64_t> b.last_offset if known else <uint64_t> -1)
    store_be32(out + 22, b.offset_delta if known else 0)
    store_be64(out + 26, <uint64_t> p.last_timestamp)
    store_be32(out + 34, p.coordinator_epoch)
    store_be64(out + 38, <uint64_t> p.txn_first_offset)


cdef int producers_write_snapshot(ProducerTable *t, const char *directory, int64_t offset) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef int64_t length = SNAPSHOT_HEADER_BYTES + <int64_t> t.count * SNAPSHOT_ENTRY_BYTES
    cdef uint8_t *data
    cdef int32_t i
    cdef int rc
    if directory == NULL or t.snapshot_offset == offset:
        return 0
    rc = path_of_segment(path, directory, offset, ".snapshot")
    if rc != 0:
        return rc
    data = <uint8_t *> malloc(length)
    if data == NULL:
        return -ENOMEM
    store_be16(data, SNAPSHOT_VERSION)
    store_be32(data + 6, t.count)
    for i in range(t.count):
        encode(&t.producers[i], data + SNAPSHOT_HEADER_BYTES + <int64_t> i * SNAPSHOT_ENTRY_BYTES)
    store_be32(data + 2, crc32c(data + 6, length - 6))
    rc = replace_file(path, data, length)
    free(data)
    if rc == 0:
        t.snapshot_offset = offset
    return rc


cdef bint decode(ProducerTable *t, const uint8_t *at, int64_t now_ms, int64_t expiration_ms) noexcept nogil:
    cdef int64_t timestamp = <int64_t> load_be64(at + 26)
    cdef int64_t txn_first_offset = <int64_t> load_be64(at + 38)
    cdef int64_t last_offset = <int64_t> load_be64(at + 14)
    cdef Producer *p
    if txn_first_offset < 0 and now_ms - timestamp >= expiration_ms:
        return True
    p = find(t, <int64_t> load_be64(at))
    if p == NULL:
        p = insert(t, <int64_t> load_be64(at), <int16_t> load_be16(at + 8))
    if p == NULL:
        return False
    p.last_timestamp = timestamp
    p.coordinator_epoch = <int32_t> load_be32(at + 34)
    p.txn_first_offset = txn_first_offset
    if last_offset >= 0:
        p.batch_count = 1
        p.newest = 0
        p.batches[0].last_sequence = <int32_t> load_be32(at + 10)
        p.batches[0].last_offset = last_offset
        p.batches[0].offset_delta = <int32_t> load_be32(at + 22)
        p.batches[0].timestamp = timestamp
    return True


cdef int producers_read_snapshot(ProducerTable *t, const char *directory, int64_t offset,
                                 int64_t now_ms, int64_t expiration_ms) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef int64_t length = 0
    cdef uint8_t *data
    cdef int64_t i, count
    cdef int rc = path_of_segment(path, directory, offset, ".snapshot")
    if rc != 0:
        return rc
    data = read_whole(path, SNAPSHOT_MAX_BYTES, &length)
    if data == NULL:
        return <int> length
    rc = -EINVAL
    if (length >= SNAPSHOT_HEADER_BYTES and <int16_t> load_be16(data) == SNAPSHOT_VERSION
            and load_be32(data + 2) == crc32c(data + 6, length - 6)):
        count = <int32_t> load_be32(data + 6)
        if count >= 0 and length == SNAPSHOT_HEADER_BYTES + count * SNAPSHOT_ENTRY_BYTES:
            rc = 0
            for i in range(count):
                if not decode(t, data + SNAPSHOT_HEADER_BYTES + i * SNAPSHOT_ENTRY_BYTES, now_ms, expiration_ms):
                    rc = -ENOMEM
                    break
    free(data)
    find_first_open(t)
    if rc == 0:
        t.snapshot_offset = offset
    return rc
