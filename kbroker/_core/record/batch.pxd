# batch: the v2 record batch: header view, validation as Kafka's LogValidator does it, stamping.
# Owns        nothing; works in place on the caller's bytes.
# Called by   log/partition_log (append), log/recovery (scan), api/fetch never (it reads headers through segment).
# Threads     any.
# Fails by    an Err code in Verdict. Never raises, never takes the GIL.
#
# RecordBatch v2. crc covers 21..end. The broker stamps only the two fields marked `broker`, which lie before it,
# so the crc stands; LogAppendTime is the exception: it rewrites attributes and max_timestamp, and the crc is made anew.
# at size field                          at size field
#  0   8  base_offset       broker       27   8  base_timestamp
#  8   4  batch_length                   35   8  max_timestamp
# 12   4  partition_leader_epoch broker  43   8  producer_id
# 16   1  magic = 2                      51   2  producer_epoch
# 17   4  crc (crc32c)                   53   4  base_sequence
# 21   2  attributes                     57   4  records_count
# 23   4  last_offset_delta              61   .  records
# attributes: 0-2 codec, 3 timestamp type (1 = log append), 4 transactional, 5 control, 6 delete horizon
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from kbroker._core.limits cimport RECORD_ERRORS_MAX
from kbroker._core.record.compression cimport Scratch
from kbroker._core.wire.cursor cimport load_be16, load_be32, load_be64, store_be16, store_be32, store_be64

cdef enum:
    BATCH_HEADER_BYTES = 61
    BATCH_PREFIX_BYTES = 12          # base_offset and batch_length: what batch_length does not count
    BATCH_MIN_LENGTH = 49            # the smallest batch_length of a v2 batch
    ATTR_CODEC = 0x07
    ATTR_LOG_APPEND_TIME = 0x08
    ATTR_TRANSACTIONAL = 0x10
    ATTR_CONTROL = 0x20
    ATTR_DELETE_HORIZON = 0x40

cdef enum Origin:
    FROM_CLIENT = 0        # everything is checked, offsets are assigned
    FROM_COORDINATOR = 1   # our own records: offsets assigned, control batches allowed
    FROM_LEADER = 2        # replica fetch: offsets and epochs kept, crc and bounds checked
    FROM_QUORUM = 3        # metadata log: as coordinator, epoch given by the caller

# What the topic demands of a batch. Part of LogConfig; copied, never shared.
cdef struct BatchRules:
    int32_t max_message_bytes
    int8_t log_append_time          # message.timestamp.type
    int8_t keys_required            # cleanup.policy contains compact
    int8_t target_codec             # compression.type: -1 = producer (keep the batch as it came)
    int32_t target_level            # compression.<codec>.level; 0 = Kafka's default for the codec
    int64_t timestamp_before_max_ms
    int64_t timestamp_after_max_ms

cdef struct Verdict:
    int16_t error                   # Err
    bint needs_fallback             # the codec has no native engine: nothing was decided
    int32_t record_error_count      # offending record indexes, at most RECORD_ERRORS_MAX
    int32_t record_errors[100]
    const char *message             # static text for the partition's ErrorMessage, or NULL
    const char *record_message      # static text for every BatchIndexErrorMessage, or NULL when there are no record errors
    int64_t max_timestamp           # after validation (log append time applied)
    int64_t max_timestamp_offset_delta   # delta of the first record that carries it

cdef inline int64_t batch_base_offset(const uint8_t *b) noexcept nogil:
    return <int64_t> load_be64(b)

cdef inline int32_t batch_size_bytes(const uint8_t *b) noexcept nogil:
    # Whole size, prefix included. Only meaningful once batch_length has been checked.
    return <int32_t> load_be32(b + 8) + BATCH_PREFIX_BYTES

cdef inline int32_t batch_leader_epoch(const uint8_t *b) noexcept nogil:
    return <int32_t> load_be32(b + 12)

cdef inline int8_t batch_magic(const uint8_t *b) noexcept nogil:
    return <int8_t> b[16]

cdef inline uint32_t batch_crc(const uint8_t *b) noexcept nogil:
    return load_be32(b + 17)

cdef inline int16_t batch_attributes(const uint8_t *b) noexcept nogil:
    return <int16_t> load_be16(b + 21)

cdef inline int32_t batch_last_offset_delta(const uint8_t *b) noexcept nogil:
    return <int32_t> load_be32(b + 23)

cdef inline int64_t batch_base_timestamp(const uint8_t *b) noexcept nogil:
    return <int64_t> load_be64(b + 27)

cdef inline int64_t batch_max_timestamp(const uint8_t *b) noexcept nogil:
    return <int64_t> load_be64(b + 35)

cdef inline int64_t batch_producer_id(const uint8_t *b) noexcept nogil:
    return <int64_t> load_be64(b + 43)

cdef inline int16_t batch_producer_epoch(const uint8_t *b) noexcept nogil:
    return <int16_t> load_be16(b + 51)

cdef inline int32_t batch_base_sequence(const uint8_t *b) noexcept nogil:
    return <int32_t> load_be32(b + 53)

cdef inline int32_t batch_records_count(const uint8_t *b) noexcept nogil:
    return <int32_t> load_be32(b + 57)

cdef inline int batch_codec(const uint8_t *b) noexcept nogil:
    return b[22] & ATTR_CODEC

cdef inline bint batch_has_producer_id(const uint8_t *b) noexcept nogil:
    return batch_producer_id(b) > -1

cdef inline int64_t batch_last_offset(const uint8_t *b) noexcept nogil:
    return batch_base_offset(b) + batch_last_offset_delta(b)

cdef inline void stamp_batch(uint8_t *b, int64_t base_offset, int32_t leader_epoch) noexcept nogil:
    store_be64(b, base_offset)
    store_be32(b + 12, leader_epoch)

# Structure only (bounds, magic, crc, count >= 0): what recovery and FROM_LEADER need. NONE or CORRUPT_MESSAGE.
cdef int16_t check_batch(const uint8_t *b, int64_t available) noexcept nogil

# The whole size of the batch at `records`, of any magic; 0 when no whole one is there. NONE, CORRUPT_MESSAGE (a size or a
# magic that no batch can have) or UNKNOWN_SERVER_ERROR (a length that overflows). `message` gets static text on error.
cdef int16_t next_batch(const uint8_t *records, int64_t length, int64_t *size, const char **message) noexcept nogil

# What a produced partition's bytes are held to before any batch is looked into: exactly one whole batch of magic 2.
# Sets *batch_length to the whole size of that batch; bytes behind it that make no further whole batch are dropped, as
# Kafka drops them. NONE, INVALID_RECORD (none, several, magic 0/1), CORRUPT_MESSAGE (too short, unknown magic) or
# UNKNOWN_SERVER_ERROR (a length that overflows).
# `message` gets static text on error.
cdef int16_t single_batch(const uint8_t *records, int64_t length, int32_t *batch_length,
                          const char **message) noexcept nogil

# Everything one batch is held to, in LogValidator's order; `length` is its whole size (from single_batch or
# batch_size_bytes). May rewrite attributes, max_timestamp and crc in place: log append time, or a max_timestamp that is
# not the records' own.
# FROM_CLIENT: all checks. FROM_COORDINATOR, FROM_QUORUM: all but the client-only ones (base offset, count, control, sequence).
# FROM_LEADER: check_batch alone; records are not visited and max_timestamp_offset_delta is the last one.
# `inflated`/`inflated_length`: the decompressed records when the caller already has them (fallback worker), else NULL, -1.
# A worker that failed says so by a DecompressError in `inflated_length`, with any `inflated` that is not NULL.
# When rules.target_codec asks for another codec the batch is written anew, deltas 0, 1, 2, ..., into `rewritten` and
# *rewritten_length is set (> 0); the caller appends that one.
# Where Kafka 4.3 accepts a compressed record whose length contradicts its fields, which no consumer can read, it is
# INVALID_RECORD here, as it is there for uncompressed ones.
# needs_fallback: no native engine for the codec of the batch (`inflated` is wanted) or for the target; nothing was
# changed. `scratch` and `rewritten` must be different buffers. Both are left grown; see scratch_trim.
cdef void validate_batch(uint8_t *b, int32_t length, Origin origin, const BatchRules *rules, int64_t now_ms,
                         const uint8_t *inflated, int64_t inflated_length, Scratch *scratch,
                         Scratch *rewritten, int32_t *rewritten_length, Verdict *out) noexcept nogil
