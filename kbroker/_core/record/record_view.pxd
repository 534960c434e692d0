# record_view: one record of a v2 batch, read where it lies.
# Owns        nothing; a RecordView points into the caller's bytes (uncompressed, or a Scratch).
# Called by   record/batch (validation), record/records (Python door, nogil iterators), log/transactions, log/batch_filter.
# Threads     any. Never raises, never allocates, never takes the GIL.
# Fails by    a RecordFault. Nothing is read at or past `end`, whatever a length claims.
#
# Record: varint length, int8 attributes, varlong timestamp_delta, varint offset_delta, varint key length (-1 null), key,
# varint value length (-1 null), value, varint header count, headers {varint key length, key, varint value length
# (-1 null), value}. Varints are zigzag. As in Kafka every negative key or value length reads as null, and a varint's
# last byte may carry bits that do not fit: they are dropped (the wire's cursor is stricter).
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum RecordFault:
    RECORD_FINE = 0
    RECORD_BROKEN = 1          # truncated, overlong, or its length does not match its fields
    RECORD_LENGTH_ENDLESS = 2  # the leading varint has five bytes and no end: Kafka's parser answers -1 to this one

cdef struct RecordView:
    int8_t attributes
    int64_t timestamp_delta
    int32_t offset_delta
    const uint8_t *tail        # the key's length and all that follows, up to `end`
    const uint8_t *key         # NULL: null
    int32_t key_length         # -1: null
    const uint8_t *value
    int32_t value_length
    int32_t header_count
    const uint8_t *headers     # header_count headers, bounds already checked
    const uint8_t *end


cdef inline int32_t unzigzag(uint32_t raw) noexcept nogil:
    return <int32_t> ((raw >> 1) ^ (0 - (raw & 1)))


cdef inline int64_t unzigzag_long(uint64_t raw) noexcept nogil:
    return <int64_t> ((raw >> 1) ^ (0 - (raw & 1)))


cdef inline const uint8_t *read_long_form(const uint8_t *p, const uint8_t *end, int shift_max, uint64_t *raw) noexcept nogil:
    # Any varint, whose last byte may stand at `shift_max`: the byte after it, or NULL.
    cdef uint64_t byte
    cdef int shift = 0
    raw[0] = 0
    while p < end and shift <= shift_max:
        byte = p[0]
        p += 1
        raw[0] |= (byte & 0x7f) << shift
        if byte < 0x80:
            return p
        shift += 7
    return NULL


cdef inline const uint8_t *read_varint(const uint8_t *p, const uint8_t *end, int32_t *value) noexcept nogil:
    # The byte after the varint, or NULL. One and two bytes are what nearly every field takes.
    cdef uint64_t raw
    if p < end and p[0] < 0x80:
        value[0] = unzigzag(p[0])
        return p + 1
    if end - p >= 2 and p[1] < 0x80:
        value[0] = unzigzag((p[0] & 0x7f) | <uint32_t> p[1] << 7)
        return p + 2
    p = read_long_form(p, end, 28, &raw)
    value[0] = unzigzag(<uint32_t> raw)
    return p


cdef inline const uint8_t *read_varlong(const uint8_t *p, const uint8_t *end, int64_t *value) noexcept nogil:
    cdef uint64_t raw
    if p < end and p[0] < 0x80:
        value[0] = unzigzag_long(p[0])
        return p + 1
    if end - p >= 2 and p[1] < 0x80:
        value[0] = unzigzag_long((p[0] & 0x7f) | <uint64_t> p[1] << 7)
        return p + 2
    p = read_long_form(p, end, 63, &raw)
    value[0] = unzigzag_long(raw)
    return p


cdef inline const uint8_t *skip_nullable(const uint8_t *p, const uint8_t *end, int32_t *length) noexcept nogil:
    # A length and that many bytes; the byte after them, or NULL. Any negative length is null.
    p = read_varint(p, end, length)
    if p == NULL:
        return NULL
    if length[0] < 0:
        length[0] = -1
        return p
    if length[0] > end - p:
        return NULL
    return p + length[0]


cdef inline const uint8_t *skip_headers(const uint8_t *p, const uint8_t *end, int32_t count) noexcept nogil:
    cdef int32_t length = 0
    while count > 0:
        p = skip_nullable(p, end, &length)
        if p == NULL or length < 0:     # a header's key is never null
            return NULL
        p = skip_nullable(p, end, &length)
        if p == NULL:
            return NULL
        count -= 1
    return p


cdef inline RecordFault read_record(const uint8_t **at, const uint8_t *end, RecordView *out) noexcept nogil:
    # Reads the record at `at[0]` and moves it behind the record. `out` is only meaningful after RECORD_FINE.
    cdef const uint8_t *p
    cdef int32_t length = 0
    p = read_varint(at[0], end, &length)
    if p == NULL:
        return RECORD_LENGTH_ENDLESS if end - at[0] >= 5 else RECORD_BROKEN
    if length < 1 or length > end - p:
        return RECORD_BROKEN
    end = p + length
    out.attributes = <int8_t> p[0]
    p = read_varlong(p + 1, end, &out.timestamp_delta)
    if p == NULL:
        return RECORD_BROKEN
    p = read_varint(p, end, &out.offset_delta)
    if p == NULL:
        return RECORD_BROKEN
    out.tail = p
    p = skip_nullable(p, end, &out.key_length)
    if p == NULL:
        return RECORD_BROKEN
    out.key = p - out.key_length if out.key_length >= 0 else NULL
    p = skip_nullable(p, end, &out.value_length)
    if p == NULL:
        return RECORD_BROKEN
    out.value = p - out.value_length if out.value_length >= 0 else NULL
    p = read_varint(p, end, &out.header_count)
    if p == NULL or out.header_count < 0 or out.header_count > end - p:
        return RECORD_BROKEN
    out.headers = p
    if out.header_count > 0:
        p = skip_headers(p, end, out.header_count)
    if p != end:
        return RECORD_BROKEN
    out.end = end
    at[0] = end
    return RECORD_FINE


cdef inline int varint_size(int32_t value) noexcept nogil:
    cdef uint32_t raw = (<uint32_t> value << 1) ^ <uint32_t> (value >> 31)
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


cdef inline int varlong_size(int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


cdef inline uint8_t *write_varint(uint8_t *p, int32_t value) noexcept nogil:
    cdef uint32_t raw = (<uint32_t> value << 1) ^ <uint32_t> (value >> 31)
    while raw >= 0x80:
        p[0] = <uint8_t> (raw | 0x80)
        p += 1
        raw >>= 7
    p[0] = <uint8_t> raw
    return p + 1


cdef inline uint8_t *write_varlong(uint8_t *p, int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)
    while raw >= 0x80:
        p[0] = <uint8_t> (raw | 0x80)
        p += 1
        raw >>= 7
    p[0] = <uint8_t> raw
    return p + 1
