# The settings of a topic that its log obeys, by Kafka's names.
from libc.stdint cimport int32_t, int64_t

CODECS = {"producer": -1, "uncompressed": 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


cdef object first_of(object config, str name, object default):
    value = config.get(name)
    return default if value is None else value


cdef int64_t number(object config, str name, int64_t default, int64_t least, int64_t most) except? -1:
    cdef object value = int(first_of(config, name, default))
    if not least <= value <= most:
        raise ValueError(f"{name} must be between {least} and {most}, not {value}")
    return value


cdef bint truth(object config, str name) except -1:
    return str(first_of(config, name, False)).lower() == "true"


cdef int read_config(object config, LogConfig *out) except -1:
    """Reads the settings a log obeys, by Kafka's names; the others of a topic belong to other rooms."""
    cdef int64_t most = 0x7fffffffffffffff
    codec = str(first_of(config, "compression.type", "producer"))
    if codec not in CODECS:
        raise ValueError(f"compression.type: {codec!r} is not one of {', '.join(CODECS)}")
    policy = first_of(config, "cleanup.policy", "delete")
    policies = [part.strip() for part in policy.split(",")] if isinstance(policy, str) else list(policy)
    kind = str(first_of(config, "message.timestamp.type", "CreateTime"))
    if kind not in ("CreateTime", "LogAppendTime"):
        raise ValueError(f"message.timestamp.type: {kind!r} is neither CreateTime nor LogAppendTime")
    out.rules.max_message_bytes = <int32_t> number(config, "max.message.bytes", 1048588, 0, 0x7fffffff)
    out.rules.log_append_time = kind == "LogAppendTime"
    out.rules.keys_required = "compact" in policies
    out.rules.target_codec = CODECS[codec]
    out.rules.target_level = 0
    if codec in ("gzip", "lz4", "zstd"):
        out.rules.target_level = <int32_t> number(config, f"compression.{codec}.level", 0, -0x7fffffff, 0x7fffffff)
    out.rules.timestamp_before_max_ms = number(config, "message.timestamp.before.max.ms", most, 0, most)
    out.rules.timestamp_after_max_ms = number(config, "message.timestamp.after.max.ms", 3600000, 0, most)
    out.segment_bytes = <int32_t> number(config, "segment.bytes", 1073741824, 14, 0x7fffffff)
    out.segment_index_bytes = <int32_t> number(config, "segment.index.bytes", 10485760, 4, 0x7fffffff)
    out.index_interval_bytes = <int32_t> number(config, "index.interval.bytes", 4096, 0, 0x7fffffff)
    out.segment_ms = number(config, "segment.ms", 604800000, 1, most)
    if out.rules.keys_required:              # what must be compacted in time must leave the active segment in time
        out.segment_ms = min(out.segment_ms, number(config, "max.compaction.lag.ms", most, 1, most))
    out.segment_jitter_ms = number(config, "segment.jitter.ms", 0, 0, most)
    out.producer_id_expiration_ms = number(config, "producer.id.expiration.ms", 86400000, 1, most)
    out.verifies_transactions = truth(config, "transaction.partition.verification.enable")
    out.delete_old = "delete" in policies
    out.retention_ms = number(config, "retention.ms", 604800000, -1, most)
    out.retention_bytes = number(config, "retention.bytes", -1, -most - 1, most)
    out.file_delete_delay_ms = number(config, "file.delete.delay.ms", 60000, 0, most)
    out.flush_messages = number(config, "flush.messages", most, 1, most)
    out.flush_ms = number(config, "flush.ms", most, 0, most)
    out.preallocate = truth(config, "preallocate")
    return 0
