class CodecError(ValueError):
    """Bytes that a codec refuses. `code` is the DecompressError: -1 undecodable, -2 over the cap, -3 no engine here."""

    code: int

    def __init__(self, code: int, what: str) -> None: ...

def engines() -> dict[str, str]:
    """The native engine of each codec, "zstd": "libzstd.so.1 1.5.4"; "cramjam" where there is none."""

def native(codec: int) -> bool:
    """Whether this machine inflates `codec` without the GIL."""

def compress_bytes(codec: int, data: bytes, level: int = 0, *, disabled_codecs: int = 0) -> bytes:
    """`data` by the native engine, in the shape Kafka's broker writes; raises CodecError."""

def decompress_bytes(codec: int, data: bytes, cap: int, *, disabled_codecs: int = 0) -> bytes:
    """What the native engine makes of `data`, at most `cap` bytes; raises CodecError."""
