from typing_extensions import Buffer

def blocks(data: Buffer) -> list[tuple[bytes, bool]] | None:
    """The blocks of a frame and whether each is compressed, checksums verified; None when Kafka would not read it.

    Each block inflates to at most 4 MiB (65536 in frames written here).
    """

def frame(pieces: list[tuple[bytes, bool]]) -> bytes:
    """A frame of the given blocks, each of at most 64 KiB once inflated: (bytes, compressed)."""
