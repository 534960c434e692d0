import ctypes
import platform
import random
import sys
from pathlib import Path

import pytest

from kbroker._core.record import crc32c

# RFC 3720 B.4 and the usual check value.
VECTORS = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "expected"), VECTORS)
@pytest.mark.parametrize("portable", [False, True])
def test_known_vectors_come_out_right(data: bytes, expected: int, portable: bool) -> None:
    assert crc32c.checksum(data, portable=portable) == expected


def test_the_machine_agrees_with_the_table_at_every_length_and_alignment() -> None:
    data = random.Random(7).randbytes(3 * 4096 * 2 + 3 * 256 + 40)
    view = memoryview(data)
    for length in [*range(70), 255, 767, 768, 769, 1535, 1536, 3 * 4096 - 1, 3 * 4096, 3 * 4096 + 1, len(data) - 8]:
        for start in (0, 1, 7):
            piece = view[start : start + length]
            assert crc32c.checksum(piece) == crc32c.checksum(piece, portable=True), (start, length)


def test_a_checksum_can_be_continued() -> None:
    data = random.Random(8).randbytes(20_000)
    for cut in (0, 1, 61, 4096, 19_999, 20_000):
        assert crc32c.checksum(data[cut:], crc32c.checksum(data[:cut])) == crc32c.checksum(data)


def cpu_has_crc32c() -> bool:
    if platform.machine() == "x86_64":
        return "sse4_2" in Path("/proc/cpuinfo").read_text().split()
    at_hwcap, hwcap_crc32 = 16, 1 << 7  # of Linux on ARM
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.restype = ctypes.c_ulong
    return bool(getauxval(ctypes.c_ulong(at_hwcap)) & hwcap_crc32)


def test_the_engine_uses_the_instructions_that_the_kernel_reports() -> None:
    name = {"x86_64": "sse4.2", "aarch64": "armv8"}.get(platform.machine(), "table")
    if sys.platform == "linux" and name != "table":
        assert crc32c.engine() == (name if cpu_has_crc32c() else "table")
    else:
        assert crc32c.engine() in {"sse4.2", "armv8", "table"}
