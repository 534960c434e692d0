# The Python door to batches and records, and the opening of a batch for nogil readers.
from typing import NamedTuple

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kbroker._core.errors cimport Err
from kbroker._core.limits cimport DECOMPRESSED_BATCH_MAX_BYTES
from kbroker._core.record.batch cimport (
    ATTR_CODEC, ATTR_CONTROL, ATTR_DELETE_HORIZON, ATTR_LOG_APPEND_TIME, ATTR_TRANSACTIONAL, BATCH_HEADER_BYTES,
    BATCH_PREFIX_BYTES, batch_attributes, batch_base_offset, batch_base_sequence, batch_base_timestamp, batch_codec,
    batch_crc, batch_last_offset_delta, batch_leader_epoch, batch_magic, batch_max_timestamp, batch_producer_epoch,
    batch_producer_id, batch_records_count, batch_size_bytes, check_batch,
)
from kbroker._core.record.compression cimport (
    CODEC_NONE, CODEC_ZSTD, NO_ENGINE, OVER_CAP, Scratch, decompress, empty_scratch, scratch_free,
    scratch_reserve,
)
from kbroker._core.record.crc32c cimport crc32c
from kbroker._core.record.record_view cimport (
    RECORD_FINE, RecordView, read_varint, varint_size, varlong_size, write_varint, write_varlong,
)
from kbroker._core.wire.cursor cimport load_be32, store_be16, store_be32, store_be64


class BrokenRecords(ValueError):
    """Bytes that are not record batches, or a batch that does not hold what its header says."""


class Record(NamedTuple):
    """One record. An offset of -1 means "the next one" to build_batch."""

    offset: int = -1
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class BatchHeader(NamedTuple):
    """The header of a batch that starts at `position` and is `size` bytes long, prefix included."""

    position: int
    size: int
    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & ATTR_CODEC

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & ATTR_LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & ATTR_TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & ATTR_CONTROL)

    @property
    def delete_horizon(self) -> bool:
        return bool(self.attributes & ATTR_DELETE_HORIZON)


cdef object new_tuple = tuple.__new__    # Record(...) takes four times as long: its __new__ is Python


cdef void begin_walk(const uint8_t *batch, const uint8_t *records, int64_t length, RecordWalk *walk) noexcept nogil:
    walk.at = records
    walk.end = records + length
    walk.left = batch_records_count(batch)
    walk.base_offset = batch_base_offset(batch)
    walk.base_timestamp = batch_base_timestamp(batch)
    walk.log_append_time = (batch_attributes(batch) & ATTR_LOG_APPEND_TIME) != 0
    walk.max_timestamp = batch_max_timestamp(batch)


cdef int open_records(const uint8_t *batch, Scratch *scratch, int64_t cap_bytes, RecordWalk *walk) noexcept nogil:
    cdef int64_t length = batch_size_bytes(batch) - BATCH_HEADER_BYTES
    cdef int64_t inflated
    if batch_codec(batch) == CODEC_NONE:
        begin_walk(batch, batch + BATCH_HEADER_BYTES, length, walk)
        return 0
    inflated = decompress(batch_codec(batch), batch + BATCH_HEADER_BYTES, length, scratch, cap_bytes)
    if inflated < 0:
        return <int> inflated
    begin_walk(batch, scratch.data, inflated, walk)
    return 0


cdef object bytes_or_none(const uint8_t *data, int32_t length):
    return None if length < 0 else PyBytes_FromStringAndSize(<const char *> data, length)


cdef tuple read_headers(const RecordView *record):
    # Bounds were checked when the record was read.
    cdef const uint8_t *p = record.headers
    cdef int32_t length = 0
    cdef int32_t i
    cdef list found = []
    for i in range(record.header_count):
        p = read_varint(p, record.end, &length)
        key = (<const char *> p)[:length].decode("utf-8", "replace")
        p += length
        p = read_varint(p, record.end, &length)
        found.append((key, bytes_or_none(p, length)))
        if length > 0:
            p += length
    return tuple(found)


cdef int collect(RecordWalk *walk, list into) except -1:
    cdef RecordView record
    cdef int64_t offset = 0
    cdef int64_t timestamp = 0
    while walk.left > 0:
        visit(walk, &record, &offset, &timestamp)
        headers = read_headers(&record) if record.header_count > 0 else ()
        into.append(new_tuple(Record, (offset, timestamp, bytes_or_none(record.key, record.key_length),
                                       bytes_or_none(record.value, record.value_length), headers)))
    return 0


cdef bytes open_batch(const uint8_t *batch, int64_t available, Scratch *scratch, RecordWalk *walk):
    cdef int failure
    cdef bytes inflated
    if check_batch(batch, available) != Err.NONE:
        raise BrokenRecords("a batch is corrupt: its length, magic or checksum is wrong")
    failure = open_records(batch, scratch, DECOMPRESSED_BATCH_MAX_BYTES, walk)
    if failure == NO_ENGINE and batch_codec(batch) <= CODEC_ZSTD:
        from kbroker._core.record.codecs import CodecError, decompress_fallback
        payload = (<const char *> batch)[BATCH_HEADER_BYTES:batch_size_bytes(batch)]
        try:
            inflated = decompress_fallback(batch_codec(batch), payload, DECOMPRESSED_BATCH_MAX_BYTES)
        except CodecError as e:
            raise BrokenRecords(f"the batch at offset {batch_base_offset(batch)} cannot be decompressed: {e}") from e
        begin_walk(batch, inflated, len(inflated), walk)
        return inflated
    if failure != 0:
        why = "is too large" if failure == OVER_CAP else "cannot be decompressed"
        raise BrokenRecords(f"the batch at offset {batch_base_offset(batch)} {why}")
    return None


cdef int visit(RecordWalk *walk, RecordView *record, int64_t *offset, int64_t *timestamp) except -1:
    if next_record(walk, record, offset, timestamp) != RECORD_FINE:
        raise BrokenRecords(f"the batch at offset {walk.base_offset} does not hold the records its header counts")
    return 0


cdef int64_t whole_batch(const uint8_t *data, int64_t at, int64_t length) except -1:
    cdef const uint8_t *b = data + at
    cdef int64_t size = BATCH_HEADER_BYTES
    if length - at >= BATCH_HEADER_BYTES:
        size = <int64_t> <int32_t> load_be32(b + 8) + BATCH_PREFIX_BYTES
    if size < BATCH_HEADER_BYTES:
        raise BrokenRecords(f"the batch at byte {at} claims to be shorter than its header")
    if size > length - at:
        return CUT_SHORT
    if batch_magic(b) != 2:
        raise BrokenRecords(f"the batch at byte {at} has magic {batch_magic(b)}")
    return size


def batches(const uint8_t[::1] data not None, *, partial_tail: bool = False) -> list[BatchHeader]:
    """The headers of the batches in `data`, one after the other; checksums are not looked at.

    Raises BrokenRecords. `partial_tail` lets the last batch be cut short, as a fetch or a torn file may leave it.
    """
    cdef int64_t length = data.shape[0]
    cdef int64_t at = 0
    cdef int64_t size
    cdef const uint8_t *b
    cdef list found = []
    while at < length:
        size = whole_batch(&data[0], at, length)
        if size == CUT_SHORT:
            if partial_tail:
                break
            raise BrokenRecords(f"the batch at byte {at} is cut short")
        b = &data[at]
        found.append(BatchHeader(
            at, size, batch_base_offset(b), batch_leader_epoch(b), batch_magic(b), batch_crc(b), batch_attributes(b),
            batch_last_offset_delta(b), batch_base_timestamp(b), batch_max_timestamp(b), batch_producer_id(b),
            batch_producer_epoch(b), batch_base_sequence(b), batch_records_count(b)))
        at += size
    return found


def iterate(const uint8_t[::1] data not None, *, control: bool = True, partial_tail: bool = False,
            disabled_codecs: int = 0) -> list[Record]:
    """Every record of every batch in `data`, checksums checked. `control=False` leaves control batches out.

    Raises BrokenRecords and nothing else, whatever the bytes are.
    """
    cdef Scratch scratch
    cdef list found = []
    cdef int64_t length = data.shape[0]
    cdef int64_t position
    cdef RecordWalk walk
    scratch = empty_scratch()
    scratch.disabled_codecs = disabled_codecs
    try:
        for header in batches(data, partial_tail=partial_tail):
            if control or not header.control:
                position = header.position
                inflated = open_batch(&data[position], length - position, &scratch, &walk)
                collect(&walk, found)
    finally:
        scratch_free(&scratch)
    return found


cdef int64_t record_size(int64_t timestamp_delta, int32_t offset_delta, key, value, headers) except -1:
    # The body's size; the length in front is not counted.
    cdef int64_t size = 1 + varlong_size(timestamp_delta) + varint_size(offset_delta)
    size += varint_size(len(<bytes> key)) + len(<bytes> key) if key is not None else 1
    size += varint_size(len(<bytes> value)) + len(<bytes> value) if value is not None else 1
    size += varint_size(len(headers))
    for name, content in headers:
        encoded = (<str> name).encode()
        size += varint_size(len(encoded)) + len(encoded)
        size += varint_size(len(<bytes> content)) + len(<bytes> content) if content is not None else 1
    if size > INT32_MAX:
        raise ValueError("a record of more than 2 GiB")
    return size


cdef uint8_t *write_nullable(uint8_t *to, content) except NULL:
    cdef bytes raw
    if content is None:
        return write_varint(to, -1)
    raw = content
    to = write_varint(to, <int32_t> len(raw))
    memcpy(to, <const uint8_t *> raw, len(raw))
    return to + len(raw)


cdef int64_t append_record(Scratch *out, int64_t used, int64_t timestamp_delta, int32_t offset_delta, record) except -1:
    # Writes one record behind `used` bytes; the new length. Geometric growth keeps this linear.
    cdef int64_t body = record_size(timestamp_delta, offset_delta, record.key, record.value, record.headers)
    cdef uint8_t *to
    if out.capacity - used < body + 5 and not scratch_reserve(out, 2 * out.capacity + body + 512):
        raise MemoryError
    to = write_varint(out.data + used, <int32_t> body)
    to[0] = 0
    to = write_varlong(to + 1, timestamp_delta)
    to = write_varint(to, offset_delta)
    to = write_nullable(to, record.key)
    to = write_nullable(to, record.value)
    to = write_varint(to, <int32_t> len(record.headers))
    for name, content in record.headers:
        to = write_nullable(to, (<str> name).encode())
        to = write_nullable(to, content)
    return to - out.data


cdef bytes compressed(int codec, int level, const uint8_t *data, int64_t length):
    from kbroker._core.record.codecs import compress
    return compress(codec, (<const char *> data)[:length], level)


def build_batch(
    records,
    *,
    base_offset: int = 0,
    codec: int = 0,
    level: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    control: bool = False,
    transactional: bool = False,
    leader_epoch: int = -1,
    append_time_ms: int | None = None,
    last_offset: int | None = None,
) -> bytes:
    """A v2 batch of `records`, ready for the wire or a segment.

    Records without an offset follow one another from `base_offset`; given offsets may leave gaps, as compaction does,
    and `last_offset` may lie behind the last record. `append_time_ms` makes it a log-append-time batch.
    """
    cdef Scratch body
    cdef int64_t used = 0
    cdef int64_t base_timestamp = -1
    cdef int64_t max_timestamp = -1
    cdef int64_t next_delta = 0
    cdef int64_t last_delta
    cdef int64_t delta
    cdef int32_t count = 0
    cdef int16_t attributes = codec & ATTR_CODEC
    cdef bytes payload
    if not 0 <= codec <= CODEC_ZSTD:
        raise ValueError(f"no codec {codec}")
    body = empty_scratch()
    try:
        for record in records:
            delta = next_delta if record.offset < 0 else record.offset - base_offset
            if not next_delta <= delta <= INT32_MAX:
                raise ValueError(f"offset {record.offset} does not fit a batch from {base_offset}, record {count}")
            if count == 0:
                base_timestamp = record.timestamp
            max_timestamp = max(max_timestamp, <int64_t> record.timestamp)
            used = append_record(&body, used, record.timestamp - base_timestamp, <int32_t> delta, record)
            next_delta = delta + 1
            count += 1
        payload = (<const char *> body.data)[:used] if codec == CODEC_NONE else compressed(codec, level, body.data, used)
    finally:
        scratch_free(&body)
    last_delta = next_delta - 1 if last_offset is None else last_offset - base_offset
    if last_delta < next_delta - 1 or not 0 <= last_delta <= INT32_MAX:
        raise ValueError(f"the last offset {last_offset} lies before the records of a batch from {base_offset}")
    if append_time_ms is not None:
        attributes |= ATTR_LOG_APPEND_TIME
        max_timestamp = append_time_ms
    attributes |= ATTR_TRANSACTIONAL if transactional else 0
    attributes |= ATTR_CONTROL if control else 0
    return with_header(payload, base_offset, leader_epoch, attributes, <int32_t> last_delta, base_timestamp,
                       max_timestamp, producer_id, producer_epoch, base_sequence, count)


def build_plain_batch(list pairs not None, int64_t timestamp):
    """A v2 batch of (key, value or None) pairs that all have one timestamp: what a coordinator writes.

    The same bytes as build_batch() would make of them, without an object for each record.
    """
    cdef Scratch body
    cdef int64_t used = 0
    cdef int64_t size
    cdef int32_t delta = 0
    cdef uint8_t *to
    cdef tuple pair
    cdef bytes key, value, payload
    body = empty_scratch()
    try:
        for pair in pairs:
            key, value = pair
            size = record_size(0, delta, key, value, ())
            if body.capacity - used < size + 5 and not scratch_reserve(&body, 2 * body.capacity + size + 512):
                raise MemoryError
            to = write_varint(body.data + used, <int32_t> size)
            to[0] = 0
            to = write_varlong(to + 1, 0)
            to = write_varint(to, delta)
            to = write_nullable(to, key)
            to = write_nullable(to, value)
            to = write_varint(to, 0)
            used = to - body.data
            delta += 1
        payload = (<const char *> body.data)[:used]
    finally:
        scratch_free(&body)
    if delta == 0:
        raise ValueError("a batch has records")
    return with_header(payload, 0, -1, 0, delta - 1, timestamp, timestamp, -1, -1, -1, delta)


cdef bytes with_header(bytes payload, int64_t base_offset, int32_t leader_epoch, int16_t attributes,
                       int32_t last_offset_delta, int64_t base_timestamp, int64_t max_timestamp, int64_t producer_id,
                       int16_t producer_epoch, int32_t base_sequence, int32_t count):
    cdef int64_t size = BATCH_HEADER_BYTES + len(payload)
    cdef bytes batch
    cdef uint8_t *b
    if size - BATCH_PREFIX_BYTES > INT32_MAX:
        raise ValueError("a batch of more than 2 GiB")
    batch = PyBytes_FromStringAndSize(NULL, size)
    b = <uint8_t *> <char *> batch
    store_be64(b, base_offset)
    store_be32(b + 8, size - BATCH_PREFIX_BYTES)
    store_be32(b + 12, leader_epoch)
    b[16] = 2
    store_be16(b + 21, attributes)
    store_be32(b + 23, last_offset_delta)
    store_be64(b + 27, base_timestamp)
    store_be64(b + 35, max_timestamp)
    store_be64(b + 43, producer_id)
    store_be16(b + 51, producer_epoch)
    store_be32(b + 53, base_sequence)
    store_be32(b + 57, count)
    memcpy(b + BATCH_HEADER_BYTES, <const uint8_t *> payload, len(payload))
    store_be32(b + 17, crc32c(b + 21, size - 21))
    return batch
