from typing import NamedTuple

from typing_extensions import Buffer

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

def check(data: Buffer) -> int:
    """Structure only: bounds, magic, checksum. 0 or 2 (CORRUPT_MESSAGE)."""

def validate(
    data: bytes,
    now_ms: int,
    *,
    origin: int = 0,
    max_message_bytes: int = 1048588,
    log_append_time: bool = False,
    keys_required: bool = False,
    target_codec: int = -1,
    target_level: int = 0,
    timestamp_before_max_ms: int = ...,
    timestamp_after_max_ms: int = 3_600_000,
    inflated: bytes | int | None = None,
    disabled_codecs: int = 0,
) -> Validated:
    """A produced partition's bytes, judged as on the append path; the bytes given are left alone.

    `inflated` is what the fallback worker made of a compressed batch: the records, or a CodecError's code.
    """
