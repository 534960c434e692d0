# Validation of one record batch, in the order in which Kafka 4.3 looks at it: the request's own checks (single_batch),
# the log's analysis (base offset, size, crc), then the validator's (batch fields, every record, timestamps, codec).
from typing import NamedTuple

from libc.stdint cimport INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kbroker._core.errors cimport Err
from kbroker._core.limits cimport DECOMPRESSED_BATCH_MAX_BYTES, RECORD_ERRORS_MAX
from kbroker._core.record.compression cimport (
    CODEC_NONE, CODEC_ZSTD, NO_ENGINE, OVER_CAP, Scratch, compress_behind, decompress, empty_scratch,
    scratch_free, scratch_reserve, scratch_swap,
)
from kbroker._core.record.crc32c cimport crc32c
from kbroker._core.record.record_view cimport (
    RECORD_BROKEN, RECORD_FINE, RECORD_LENGTH_ENDLESS, RecordFault, RecordView, read_record, varint_size, varlong_size,
    write_varint, write_varlong,
)
from kbroker._core.wire.cursor cimport load_be32, store_be16, store_be32, store_be64

cdef enum:
    CRC_FROM = 21                    # the crc covers everything from the attributes on
    UP_TO_MAGIC = 17                 # what must be there before a batch's size is believed
    LEGACY_MIN_LENGTH = 14           # no batch of any magic has a smaller batch_length
    ATTR_KNOWN = 0x77                # what survives when the broker writes attributes: all known bits but bit 3
    ENCODED_SPARE_BYTES = 20         # how much longer a record can get when its two deltas and length are written anew
    NO_TIMESTAMP = -1


# What one pass over the records found.
cdef struct Visit:
    int64_t max_timestamp
    int32_t max_timestamp_offset_delta
    int32_t missing_keys
    int32_t bad_timestamps
    bint in_order                    # offset deltas run 0, 1, 2, ...
    bint as_built                    # and attributes are 0 and the first record carries base_timestamp


cdef inline void refuse(Verdict *out, int16_t error, const char *message) noexcept nogil:
    out.error = error
    out.message = message


cdef inline void seal(uint8_t *b, int64_t size) noexcept nogil:
    store_be32(b + 17, crc32c(b + CRC_FROM, size - CRC_FROM))


cdef int16_t check_batch(const uint8_t *b, int64_t available) noexcept nogil:
    cdef int64_t size
    if available < BATCH_HEADER_BYTES:
        return Err.CORRUPT_MESSAGE
    size = <int64_t> <int32_t> load_be32(b + 8) + BATCH_PREFIX_BYTES
    if size < BATCH_HEADER_BYTES or size > available or batch_magic(b) != 2:
        return Err.CORRUPT_MESSAGE
    if batch_records_count(b) < 0 or batch_crc(b) != crc32c(b + CRC_FROM, size - CRC_FROM):
        return Err.CORRUPT_MESSAGE
    return Err.NONE


cdef int16_t next_batch(const uint8_t *records, int64_t length, int64_t *size, const char **message) noexcept nogil:
    cdef int64_t claimed
    size[0] = 0
    if length < BATCH_PREFIX_BYTES:
        return Err.NONE
    claimed = <int32_t> load_be32(records + 8)
    if claimed < LEGACY_MIN_LENGTH:
        message[0] = b"Record size is less than the minimum record overhead"
        return Err.CORRUPT_MESSAGE
    if length < UP_TO_MAGIC:
        return Err.NONE
    if records[16] > 2:
        message[0] = b"Invalid magic found in record"
        return Err.CORRUPT_MESSAGE
    if claimed + BATCH_PREFIX_BYTES > INT32_MAX:
        message[0] = b"Record size exceeds what a batch can have"
        return Err.UNKNOWN_SERVER_ERROR
    if claimed + BATCH_PREFIX_BYTES <= length:
        size[0] = claimed + BATCH_PREFIX_BYTES
    return Err.NONE


cdef int16_t single_batch(const uint8_t *records, int64_t length, int32_t *batch_length,
                          const char **message) noexcept nogil:
    cdef int64_t size
    cdef int64_t second
    cdef int16_t error
    batch_length[0] = 0
    message[0] = NULL
    error = next_batch(records, length, &size, message)
    if error != Err.NONE:
        return error
    if size == 0:
        message[0] = b"Produce requests must have at least one record batch per partition"
        return Err.INVALID_RECORD
    if batch_magic(records) != 2:
        message[0] = b"Produce requests are only allowed to contain record batches with magic version 2"
        return Err.INVALID_RECORD
    error = next_batch(records + size, length - size, &second, message)
    if error != Err.NONE:
        return error
    if second > 0:
        message[0] = b"Produce requests are only allowed to contain exactly one record batch per partition"
        return Err.INVALID_RECORD
    batch_length[0] = <int32_t> size
    return Err.NONE


cdef bint check_client_fields(const uint8_t *b, Verdict *out) noexcept nogil:
    # What only clients are held to, once the crc is known to be good.
    cdef int64_t count = batch_records_count(b)
    cdef int64_t delta = batch_last_offset_delta(b)
    if delta < 0:
        refuse(out, Err.INVALID_RECORD, b"Batch has an invalid offset range")
    elif count <= 0:
        refuse(out, Err.INVALID_RECORD, b"Invalid reported count for record batch")
    elif delta + 1 != count:
        refuse(out, Err.INVALID_RECORD, b"Inconsistent batch offset range and count of records")
    elif batch_attributes(b) & ATTR_CONTROL:
        refuse(out, Err.INVALID_RECORD, b"Clients are not allowed to write control records")
    elif batch_has_producer_id(b) and batch_base_sequence(b) < 0:
        refuse(out, Err.INVALID_RECORD, b"Invalid sequence number in record batch with a producer id")
    return out.error == Err.NONE


cdef inline bint out_of_range(int64_t timestamp, int64_t oldest, int64_t newest, int64_t now_ms) noexcept nogil:
    # Differences wrap around, as they do on the JVM.
    cdef int64_t age = <int64_t> (<uint64_t> now_ms - <uint64_t> timestamp)
    return age > oldest or <int64_t> (0 - <uint64_t> age) > newest


cdef inline void note_record_error(Verdict *out, int32_t index) noexcept nogil:
    if out.record_error_count < RECORD_ERRORS_MAX:
        out.record_errors[out.record_error_count] = index
        out.record_error_count += 1


cdef RecordFault visit_records(const uint8_t *b, const uint8_t *at, const uint8_t *end, const BatchRules *rules,
                               int64_t now_ms, Visit *visit, Verdict *out) noexcept nogil:
    # The hot loop: a few nanoseconds a record.
    cdef RecordView record
    cdef RecordFault fault
    cdef int32_t index
    cdef int32_t count = batch_records_count(b)
    cdef uint64_t base_timestamp = <uint64_t> batch_base_timestamp(b)
    cdef bint flagged = (batch_attributes(b) & ATTR_LOG_APPEND_TIME) != 0
    cdef int64_t flagged_timestamp = batch_max_timestamp(b)
    cdef int64_t timestamp
    cdef bint create_time = not rules.log_append_time
    cdef bint keys_required = rules.keys_required
    cdef int64_t oldest = rules.timestamp_before_max_ms
    cdef int64_t newest = rules.timestamp_after_max_ms
    cdef int64_t max_timestamp = NO_TIMESTAMP
    cdef int32_t max_timestamp_at = -1
    cdef int32_t odd = 0             # not 0: attributes are set, or the first timestamp is not the base
    cdef int32_t disorder = 0        # not 0: some offset delta is not its record's index
    for index in range(count):
        fault = read_record(&at, end, &record)
        if fault != RECORD_FINE:
            return fault
        disorder |= record.offset_delta ^ index
        odd |= record.attributes
        if index == 0:
            odd |= 1 if record.timestamp_delta != 0 else 0
        timestamp = flagged_timestamp if flagged else <int64_t> (base_timestamp + <uint64_t> record.timestamp_delta)
        if keys_required and record.key_length < 0:
            visit.missing_keys += 1
            note_record_error(out, index)
        elif create_time and timestamp != NO_TIMESTAMP:
            if out_of_range(timestamp, oldest, newest, now_ms):
                visit.bad_timestamps += 1
                note_record_error(out, index)
        elif flagged:
            visit.bad_timestamps += 1
            note_record_error(out, index)
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            max_timestamp_at = index
    visit.max_timestamp = max_timestamp
    visit.max_timestamp_offset_delta = max_timestamp_at
    visit.in_order = disorder == 0
    visit.as_built = not flagged and disorder == 0 and odd == 0
    return RECORD_FINE if at == end or count <= 0 else RECORD_BROKEN


cdef bint judge_records(const uint8_t *b, const uint8_t *records, int64_t length, const BatchRules *rules,
                        int64_t now_ms, Visit *visit, Verdict *out) noexcept nogil:
    cdef RecordFault fault
    memset(visit, 0, sizeof(Visit))
    fault = visit_records(b, records, records + length, rules, now_ms, visit, out)
    if fault != RECORD_FINE:
        out.record_error_count = 0
        if fault == RECORD_LENGTH_ENDLESS and batch_codec(b) == CODEC_NONE:
            refuse(out, Err.UNKNOWN_SERVER_ERROR, b"Varint is too long")
        else:
            refuse(out, Err.INVALID_RECORD, b"Found invalid record structure")
    elif visit.bad_timestamps > 0:
        refuse(out, Err.INVALID_TIMESTAMP, b"One or more records have been rejected due to invalid timestamp")
        out.record_message = b"Timestamp of the record is out of range, or its batch claims log append time"
    elif visit.missing_keys > 0:
        refuse(out, Err.INVALID_RECORD, b"One or more records have been rejected due to a missing key")
        out.record_message = b"Compacted topic cannot accept message without key"
    return out.error == Err.NONE


cdef const uint8_t *inflate(const uint8_t *b, int32_t length, const uint8_t *inflated, int64_t *inflated_length,
                            Scratch *scratch, Verdict *out) noexcept nogil:
    # The records in the clear, or NULL with the verdict passed.
    cdef int codec = batch_codec(b)
    if codec == CODEC_NONE:
        inflated_length[0] = length - BATCH_HEADER_BYTES
        return b + BATCH_HEADER_BYTES
    if inflated == NULL:
        inflated_length[0] = decompress(codec, b + BATCH_HEADER_BYTES, length - BATCH_HEADER_BYTES, scratch,
                                        DECOMPRESSED_BATCH_MAX_BYTES)
        inflated = scratch.data
    if inflated_length[0] >= 0:
        return inflated
    if inflated_length[0] == NO_ENGINE:
        out.needs_fallback = True
    elif inflated_length[0] == OVER_CAP:
        refuse(out, Err.MESSAGE_TOO_LARGE, b"The records of the batch are too large once decompressed")
    else:
        refuse(out, Err.UNKNOWN_SERVER_ERROR, b"Failed to decompress record stream")
    return NULL


cdef void settle_timestamps(uint8_t *b, int64_t size, const BatchRules *rules, int64_t now_ms,
                            Verdict *out) noexcept nogil:
    # max_timestamp and its type become the broker's word; the crc is redone only when one of them changes.
    cdef int16_t kind = ATTR_LOG_APPEND_TIME if rules.log_append_time else 0
    if rules.log_append_time:
        out.max_timestamp = now_ms
        out.max_timestamp_offset_delta = 0
    if (batch_attributes(b) & ATTR_LOG_APPEND_TIME) == kind and batch_max_timestamp(b) == out.max_timestamp:
        return
    store_be16(b + 21, (batch_attributes(b) & ATTR_KNOWN) | kind)
    store_be64(b + 35, <uint64_t> out.max_timestamp)
    seal(b, size)


cdef int64_t encode_anew(const uint8_t *b, const uint8_t *at, const uint8_t *end, int64_t base_timestamp,
                         uint8_t *to) noexcept nogil:
    # Writes the (already judged) records with deltas 0, 1, 2, ... against `base_timestamp`; the bytes written.
    cdef RecordView record
    cdef int32_t index
    cdef int32_t body
    cdef int64_t timestamp_delta
    cdef int64_t tail
    cdef uint8_t *start = to
    cdef bint flagged = (batch_attributes(b) & ATTR_LOG_APPEND_TIME) != 0
    cdef uint64_t shift = <uint64_t> batch_base_timestamp(b) - <uint64_t> base_timestamp
    for index in range(batch_records_count(b)):
        if read_record(&at, end, &record) != RECORD_FINE:
            break
        timestamp_delta = 0 if flagged else <int64_t> (<uint64_t> record.timestamp_delta + shift)
        # Everything from the key's length on is kept as it is.
        tail = record.end - record.tail
        body = <int32_t> (1 + varlong_size(timestamp_delta) + varint_size(index) + tail)
        to = write_varint(to, body)
        to[0] = 0
        to = write_varlong(to + 1, timestamp_delta)
        to = write_varint(to, index)
        memcpy(to, record.tail, tail)
        to += tail
    return to - start


cdef int64_t first_timestamp(const uint8_t *b, const uint8_t *at, const uint8_t *end) noexcept nogil:
    cdef RecordView record
    if batch_attributes(b) & ATTR_LOG_APPEND_TIME:
        return batch_max_timestamp(b)
    if read_record(&at, end, &record) != RECORD_FINE:
        return batch_base_timestamp(b)
    return <int64_t> (<uint64_t> batch_base_timestamp(b) + <uint64_t> record.timestamp_delta)


cdef void write_anew(const uint8_t *b, const uint8_t *records, int64_t length, int codec, const BatchRules *rules,
                     bint as_built, Scratch *scratch, Scratch *rewritten, int32_t *rewritten_length,
                     Verdict *out) noexcept nogil:
    # A new batch of the same records in `rewritten`. `records` may lie in `scratch`.
    cdef int64_t base_timestamp = first_timestamp(b, records, records + length)
    cdef int64_t size
    if not as_built:
        if not scratch_reserve(rewritten, length + <int64_t> batch_records_count(b) * ENCODED_SPARE_BYTES):
            refuse(out, Err.UNKNOWN_SERVER_ERROR, b"Out of memory")
            return
        length = encode_anew(b, records, records + length, base_timestamp, rewritten.data)
        scratch_swap(scratch, rewritten)
        records = scratch.data
    size = compress_behind(codec, rules.target_level, records, length, rewritten, BATCH_HEADER_BYTES)
    if size == NO_ENGINE:
        out.needs_fallback = True
        return
    if size < 0:
        refuse(out, Err.UNKNOWN_SERVER_ERROR, b"Failed to compress record stream")
        return
    size += BATCH_HEADER_BYTES
    if size > rules.max_message_bytes or size > INT32_MAX:
        refuse(out, Err.MESSAGE_TOO_LARGE, b"The record batch is larger than the maximum once compressed anew")
        return
    memcpy(rewritten.data, b, BATCH_HEADER_BYTES)
    store_be32(rewritten.data + 8, <uint32_t> (size - BATCH_PREFIX_BYTES))
    store_be16(rewritten.data + 21, (batch_attributes(b) & (ATTR_TRANSACTIONAL | ATTR_CONTROL)) | codec)
    store_be32(rewritten.data + 23, <uint32_t> (batch_records_count(b) - 1))
    store_be64(rewritten.data + 27, <uint64_t> base_timestamp)
    seal(rewritten.data, size)
    rewritten_length[0] = <int32_t> size


cdef int codec_to_store(const uint8_t *b, const BatchRules *rules) noexcept nogil:
    # Control batches are never compressed behind their writer's back.
    cdef int codec = batch_codec(b)
    if rules.target_codec < 0 or (codec == CODEC_NONE and batch_attributes(b) & ATTR_CONTROL):
        return codec
    return rules.target_codec


cdef bint check_outside(const uint8_t *b, int32_t length, Origin origin, const BatchRules *rules,
                        Verdict *out) noexcept nogil:
    # The log's analysis: what is known without looking at a record.
    if length < BATCH_HEADER_BYTES or <int32_t> load_be32(b + 8) != length - BATCH_PREFIX_BYTES:
        refuse(out, Err.CORRUPT_MESSAGE, b"Record batch is smaller than its overhead or its own length")
    elif batch_magic(b) != 2:
        refuse(out, Err.INVALID_RECORD, b"Only record batches with magic version 2 are allowed")
    elif origin == FROM_CLIENT and batch_base_offset(b) != 0:
        refuse(out, Err.INVALID_RECORD, b"The baseOffset of the record batch should be 0")
    elif length > rules.max_message_bytes and origin != FROM_LEADER:
        refuse(out, Err.MESSAGE_TOO_LARGE, b"The record batch is larger than the maximum of max.message.bytes")
    elif batch_crc(b) != crc32c(b + CRC_FROM, length - CRC_FROM):
        refuse(out, Err.CORRUPT_MESSAGE, b"Record is corrupt (stored crc and computed crc differ)")
    elif batch_codec(b) > CODEC_ZSTD:
        refuse(out, Err.UNKNOWN_SERVER_ERROR, b"Unknown compression type id")
    elif origin == FROM_CLIENT:
        return check_client_fields(b, out)
    elif batch_records_count(b) < 0:
        refuse(out, Err.CORRUPT_MESSAGE, b"Found invalid record count")
    return out.error == Err.NONE


cdef void validate_batch(uint8_t *b, int32_t length, Origin origin, const BatchRules *rules, int64_t now_ms,
                         const uint8_t *inflated, int64_t inflated_length, Scratch *scratch,
                         Scratch *rewritten, int32_t *rewritten_length, Verdict *out) noexcept nogil:
    cdef const uint8_t *records
    cdef Visit visit
    cdef int codec
    out.error = Err.NONE
    out.needs_fallback = False
    out.record_error_count = 0
    out.message = NULL
    out.record_message = NULL
    out.max_timestamp = NO_TIMESTAMP
    out.max_timestamp_offset_delta = -1
    rewritten_length[0] = 0
    rewritten.disabled_codecs = scratch.disabled_codecs
    if not check_outside(b, length, origin, rules, out):
        return
    if origin == FROM_LEADER:
        out.max_timestamp = batch_max_timestamp(b)
        out.max_timestamp_offset_delta = batch_last_offset_delta(b)
        return
    records = inflate(b, length, inflated, &inflated_length, scratch, out)
    if records == NULL or not judge_records(b, records, inflated_length, rules, now_ms, &visit, out):
        return
    out.max_timestamp = visit.max_timestamp
    out.max_timestamp_offset_delta = visit.max_timestamp_offset_delta
    codec = codec_to_store(b, rules)
    if codec != CODEC_NONE and codec == batch_codec(b) and not visit.in_order:
        # Kafka sets out to renumber such records and trips over itself; uncompressed it takes them as they are.
        refuse(out, Err.UNKNOWN_SERVER_ERROR, b"The offset deltas of a compressed batch must be 0, 1, 2, ...")
        return
    if codec != batch_codec(b):
        write_anew(b, records, inflated_length, codec, rules, visit.as_built, scratch, rewritten, rewritten_length, out)
        if rewritten_length[0] > 0:
            settle_timestamps(rewritten.data, rewritten_length[0], rules, now_ms, out)
    else:
        settle_timestamps(b, length, rules, now_ms, out)


class Validated(NamedTuple):
    """What became of a batch: a Kafka error code, or the bytes that would be appended."""

    error: int
    batch: bytes | None
    needs_fallback: bool
    message: str | None
    record_errors: tuple[int, ...]
    record_message: str | None
    max_timestamp: int
    max_timestamp_offset_delta: int


def check(const uint8_t[::1] data not None) -> int:
    """Structure only: bounds, magic, checksum. 0 or 2 (CORRUPT_MESSAGE)."""
    cdef int64_t length = data.shape[0]
    return check_batch(&data[0], length) if length > 0 else Err.CORRUPT_MESSAGE


def validate(
    data: bytes,
    now_ms: int,
    *,
    origin: int = FROM_CLIENT,
    max_message_bytes: int = 1048588,
    log_append_time: bool = False,
    keys_required: bool = False,
    target_codec: int = -1,
    target_level: int = 0,
    timestamp_before_max_ms: int = 2**63 - 1,
    timestamp_after_max_ms: int = 3_600_000,
    inflated: bytes | int | None = None,
    disabled_codecs: int = 0,
) -> Validated:
    """A produced partition's bytes, judged as on the append path; the bytes given are left alone.

    `inflated` is what the fallback worker made of a compressed batch: the records, or a CodecError's code.
    """
    cdef bytearray copy = bytearray(data)
    cdef uint8_t *bytes_at = copy
    cdef const uint8_t *inflated_at = NULL
    cdef int64_t inflated_length = -1
    cdef int64_t length = len(data)
    cdef int64_t now = now_ms
    cdef Origin source = <Origin> <int> origin
    cdef int32_t batch_length = 0
    cdef int32_t rewritten_length = 0
    cdef BatchRules rules
    cdef Scratch scratch
    cdef Scratch rewritten
    cdef Verdict verdict
    scratch = empty_scratch()
    rewritten = empty_scratch()
    memset(&verdict, 0, sizeof(Verdict))
    scratch.disabled_codecs = disabled_codecs
    rules.max_message_bytes = max_message_bytes
    rules.log_append_time = log_append_time
    rules.keys_required = keys_required
    rules.target_codec = target_codec
    rules.target_level = target_level
    rules.timestamp_before_max_ms = timestamp_before_max_ms
    rules.timestamp_after_max_ms = timestamp_after_max_ms
    if isinstance(inflated, int):
        inflated_at = bytes_at
        inflated_length = inflated
    elif inflated is not None:
        inflated_at = inflated
        inflated_length = len(inflated)
    try:
        with nogil:
            verdict.error = single_batch(bytes_at, length, &batch_length, &verdict.message)
            if verdict.error == Err.NONE:
                validate_batch(bytes_at, batch_length, source, &rules, now, inflated_at, inflated_length, &scratch,
                               &rewritten, &rewritten_length, &verdict)
        if verdict.error != Err.NONE or verdict.needs_fallback:
            batch = None
        elif rewritten_length > 0:
            batch = <bytes> rewritten.data[:rewritten_length]
        else:
            batch = <bytes> bytes_at[:batch_length]
    finally:
        scratch_free(&scratch)
        scratch_free(&rewritten)
    return Validated(
        verdict.error,
        batch,
        bool(verdict.needs_fallback),
        verdict.message.decode() if verdict.message != NULL else None,
        tuple(verdict.record_errors[i] for i in range(verdict.record_error_count)),
        verdict.record_message.decode() if verdict.record_message != NULL else None,
        verdict.max_timestamp,
        verdict.max_timestamp_offset_delta,
    )
