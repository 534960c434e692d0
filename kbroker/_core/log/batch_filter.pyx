# One batch: first it is decided about the whole, then about each record, then what remains is written.
from libc.errno cimport EBADMSG, ENOMEM
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kbroker._core.limits cimport DECOMPRESSED_BATCH_MAX_BYTES
from kbroker._core.log.id_map cimport IdSlot, ids_clear, ids_find
from kbroker._core.log.offset_map cimport KEYS_AT_ONCE, KeyHash, map_get, map_hash
from kbroker._core.log.transactions cimport txns_on_batch, txns_on_marker
from kbroker._core.record.batch cimport (
    ATTR_CODEC, ATTR_CONTROL, ATTR_DELETE_HORIZON, ATTR_LOG_APPEND_TIME, ATTR_TRANSACTIONAL, BATCH_HEADER_BYTES,
    BATCH_PREFIX_BYTES, batch_attributes, batch_base_timestamp, batch_codec, batch_has_producer_id, batch_last_offset,
    batch_max_timestamp, batch_producer_epoch, batch_producer_id, batch_records_count, batch_size_bytes,
)
from kbroker._core.record.compression cimport (
    NO_ENGINE, NO_MEMORY, OVER_CAP, compress_behind, scratch_free, scratch_reserve, scratch_trim,
)
from kbroker._core.record.crc32c cimport crc32c
from kbroker._core.record.record_view cimport (
    RECORD_FINE, RecordView, varint_size, varlong_size, write_varint, write_varlong,
)
from kbroker._core.record.records cimport RecordWalk, next_record, open_records
from kbroker._core.wire.cursor cimport store_be16, store_be32, store_be64

cdef enum:
    RECORD_SPARE_BYTES = 20      # how much longer a record can get when its deltas and its length are written anew
    NO_TIMESTAMP = -1


cdef enum Fate:
    GOES = 0
    STAYS = 1
    ASK_THE_MAP = 2

# A record that is being decided on.
cdef struct Candidate:
    Fate fate
    bint tombstone
    int64_t offset
    int64_t timestamp
    KeyHash key


# What was found out about one batch.
cdef struct Judged:
    bint discard                 # none of its records stays
    bint retain_empty            # the batch stays even so
    bint markers_txn_is_empty    # a marker that is no longer needed
    int32_t kept
    bint tombstones              # among those kept
    int64_t first_timestamp      # of those kept
    int64_t max_timestamp


cdef void filter_free(BatchFilter *f) noexcept nogil:
    ids_clear(&f.last_of_producers)
    scratch_free(&f.inflated)
    scratch_free(&f.kept)
    scratch_free(&f.encoded)
    scratch_free(&f.rewritten)


cdef inline bint has_horizon(const uint8_t *batch) noexcept nogil:
    return batch_attributes(batch) & ATTR_DELETE_HORIZON != 0


cdef bint is_last_of_producer(const BatchFilter *f, const uint8_t *batch) noexcept nogil:
    cdef IdSlot *slot
    if not batch_has_producer_id(batch):
        return False
    slot = ids_find(&f.last_of_producers, batch_producer_id(batch))
    if slot == NULL:
        return False
    if slot.value >= 0:
        return slot.value == batch_last_offset(batch)
    return batch_attributes(batch) & ATTR_CONTROL != 0 and slot.value == -2 - batch_producer_epoch(batch)


cdef int judge_batch(BatchFilter *f, const uint8_t *batch, Judged *out) noexcept nogil:
    cdef bint control = batch_attributes(batch) & ATTR_CONTROL != 0
    cdef int spent = txns_on_marker(f.txns, batch) if control else txns_on_batch(f.txns, batch)
    if spent < 0:
        return spent
    out.discard = spent != 0
    if control:
        out.discard = out.discard and has_horizon(batch) and batch_base_timestamp(batch) <= f.now_ms
    out.markers_txn_is_empty = control and spent != 0
    out.retain_empty = is_last_of_producer(f, batch) or batch_last_offset(batch) + 1 == f.end_offset
    out.kept = 0
    out.tombstones = False
    out.first_timestamp = NO_TIMESTAMP
    out.max_timestamp = NO_TIMESTAMP
    return 0


cdef inline Fate fate_of(const BatchFilter *f, const RecordView *record, int64_t offset, bint control, bint deletes_stay) noexcept nogil:
    if control or offset > f.latest_offset:
        return STAYS
    if record.key_length < 0 or (record.value_length < 0 and not deletes_stay):
        return GOES
    return ASK_THE_MAP


cdef int open_batch(BatchFilter *f, const uint8_t *batch, RecordWalk *walk) noexcept nogil:
    cdef int rc = open_records(batch, &f.inflated, DECOMPRESSED_BATCH_MAX_BYTES, walk)
    if rc == 0 and walk.left <= walk.end - walk.at:
        return 0
    if rc == NO_MEMORY:
        return -ENOMEM
    if rc == NO_ENGINE:
        f.reason = b"the codec of a batch has no native engine on this machine"
    else:
        f.reason = b"a batch is too large once decompressed" if rc == OVER_CAP else b"a batch cannot be read"
    return -EBADMSG


cdef void decide(BatchFilter *f, const Candidate *candidates, int32_t count, int32_t first, Judged *out) noexcept nogil:
    # Records first, first + 1, ... of a batch.
    cdef const Candidate *one
    cdef int32_t i
    for i in range(count):
        one = &candidates[i]
        f.kept.data[first + i] = one.fate == STAYS or (
            one.fate == ASK_THE_MAP and one.offset >= map_get(f.map, &one.key))
        if f.kept.data[first + i]:
            if out.kept == 0:
                out.first_timestamp = one.timestamp
            out.kept += 1
            out.tombstones = out.tombstones or one.tombstone
            out.max_timestamp = max(out.max_timestamp, one.timestamp)


cdef int judge_records(BatchFilter *f, const uint8_t *batch, RecordWalk walk, Judged *out) noexcept nogil:
    cdef RecordView record
    cdef Candidate candidates[KEYS_AT_ONCE]
    cdef Candidate *one
    cdef int32_t count = 0
    cdef int32_t index = 0
    cdef bint control = batch_attributes(batch) & ATTR_CONTROL != 0
    cdef bint deletes_stay = not has_horizon(batch) or f.now_ms < batch_base_timestamp(batch)
    if not scratch_reserve(&f.kept, walk.left):
        return -ENOMEM
    while walk.left > 0:
        one = &candidates[count]
        if next_record(&walk, &record, &one.offset, &one.timestamp) != RECORD_FINE:
            f.reason = b"a batch does not hold the records its header counts"
            return -EBADMSG
        one.fate = fate_of(f, &record, one.offset, control, deletes_stay)
        one.tombstone = record.value_length < 0
        if one.fate == ASK_THE_MAP:
            map_hash(f.map, record.key, record.key_length, &one.key)
        count += 1
        if count == KEYS_AT_ONCE or walk.left == 0:
            decide(f, candidates, count, index, out)
            index += count
            count = 0
    return 0


cdef int64_t encode(BatchFilter *f, RecordWalk walk, int64_t base_timestamp) noexcept nogil:
    # The kept records, in the clear, against another base timestamp; their bytes.
    cdef RecordView record
    cdef int64_t offset = 0
    cdef int64_t timestamp = 0
    cdef int64_t delta, tail
    cdef int32_t index = 0
    cdef uint8_t *to
    if not scratch_reserve(&f.encoded, walk.end - walk.at + <int64_t> walk.left * RECORD_SPARE_BYTES):
        return -ENOMEM
    to = f.encoded.data
    while walk.left > 0:
        next_record(&walk, &record, &offset, &timestamp)
        if f.kept.data[index]:
            delta = <int64_t> (<uint64_t> timestamp - <uint64_t> base_timestamp)
            tail = record.end - record.tail          # from the key's length on nothing changes
            to = write_varint(to, <int32_t> (1 + varlong_size(delta) + varint_size(record.offset_delta) + tail))
            to[0] = 0
            to = write_varlong(to + 1, delta)
            to = write_varint(to, record.offset_delta)
            memcpy(to, record.tail, tail)
            to += tail
        index += 1
    return to - f.encoded.data


cdef void write_header(const uint8_t *batch, uint8_t *out, int64_t size, int16_t attributes, int64_t base_timestamp,
                       int64_t max_timestamp, int32_t count) noexcept nogil:
    memcpy(out, batch, BATCH_HEADER_BYTES)
    store_be32(out + 8, <int32_t> (size - BATCH_PREFIX_BYTES))
    store_be16(out + 21, attributes)
    store_be64(out + 27, <uint64_t> base_timestamp)
    store_be64(out + 35, <uint64_t> max_timestamp)
    store_be32(out + 57, count)
    store_be32(out + 17, crc32c(out + 21, size - 21))


cdef int64_t write_anew(BatchFilter *f, const uint8_t *batch, RecordWalk walk, const Judged *judged, bint set_horizon) noexcept nogil:
    cdef int64_t base_timestamp = judged.first_timestamp
    cdef int64_t max_timestamp = judged.max_timestamp
    cdef int16_t attributes = batch_attributes(batch)
    cdef int64_t length, size
    attributes &= ATTR_CODEC | ATTR_LOG_APPEND_TIME | ATTR_TRANSACTIONAL | ATTR_CONTROL
    if set_horizon or has_horizon(batch):
        attributes |= ATTR_DELETE_HORIZON
        base_timestamp = f.now_ms + f.delete_retention_ms if set_horizon else batch_base_timestamp(batch)
    if attributes & ATTR_LOG_APPEND_TIME:
        max_timestamp = batch_max_timestamp(batch)
    length = encode(f, walk, base_timestamp)
    if length < 0:
        return length
    size = compress_behind(batch_codec(batch), 0, f.encoded.data, length, &f.rewritten, BATCH_HEADER_BYTES)
    if size < 0:
        f.reason = b"a batch cannot be compressed anew"
        return -ENOMEM if size == NO_MEMORY else -EBADMSG
    size += BATCH_HEADER_BYTES
    if size > 0x7fffffff:
        f.reason = b"a batch is too large once written anew"
        return -EBADMSG
    write_header(batch, f.rewritten.data, size, attributes, base_timestamp, max_timestamp, judged.kept)
    return size


cdef int64_t write_empty(BatchFilter *f, const uint8_t *batch) noexcept nogil:
    # Only its offsets and its producer's fields are of use; it has no codec and no horizon.
    if not scratch_reserve(&f.rewritten, BATCH_HEADER_BYTES):
        return -ENOMEM
    write_header(batch, f.rewritten.data, BATCH_HEADER_BYTES,
                 batch_attributes(batch) & (ATTR_LOG_APPEND_TIME | ATTR_TRANSACTIONAL | ATTR_CONTROL), NO_TIMESTAMP,
                 batch_max_timestamp(batch), 0)
    return BATCH_HEADER_BYTES


cdef int64_t filter_batch(BatchFilter *f, const uint8_t *batch, const uint8_t **out) noexcept nogil:
    cdef Judged judged
    cdef RecordWalk walk
    cdef bint set_horizon
    cdef int64_t size
    cdef int rc = judge_batch(f, batch, &judged)
    if rc != 0:
        return rc
    f.records_read += batch_records_count(batch)
    if not judged.discard and batch_records_count(batch) > 0:
        rc = open_batch(f, batch, &walk)
        if rc == 0:
            rc = judge_records(f, batch, walk, &judged)
        if rc != 0:
            return rc
    f.records_kept += judged.kept
    out[0] = f.rewritten.data
    if judged.kept == 0:
        size = write_empty(f, batch) if judged.retain_empty else 0
    else:
        set_horizon = (judged.tombstones or judged.markers_txn_is_empty) and not has_horizon(batch)
        if judged.kept == batch_records_count(batch) and not set_horizon:
            out[0] = batch
            return batch_size_bytes(batch)
        size = write_anew(f, batch, walk, &judged, set_horizon)
    scratch_trim(&f.inflated)
    scratch_trim(&f.encoded)
    out[0] = f.rewritten.data
    return size
