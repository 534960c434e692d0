from typing_extensions import Buffer

def checksum(data: Buffer, crc: int = 0, *, portable: bool = False) -> int:
    """CRC-32C of `data`, continued from `crc`. `portable` takes the table whatever the machine offers."""

def engine() -> str:
    """What computes checksums here: "sse4.2", "armv8" or "table"."""
