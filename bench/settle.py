"""Memory for the race to write into: pages that the machine has already, not pages it must ask its host for.

A page that a virtual machine has never touched, or has given back (free-page reporting), is fetched from the host when
it is first written: 8 µs for 4 KiB were seen, four times what a broker needs for them, and the same for both brokers. A
machine that has been in use for a while has its free memory in the page cache and takes new pages from there. `settle`
brings that about: it reads files of holes, which cost no disk, until little memory is free.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
LEFT_FREE_BYTES = 256 << 20
WORTH_IT_BYTES = 64 << 20
CHUNK_BYTES = 2 << 20


class Ballast:
    """Files of holes whose zeros fill the page cache; the system drops them again as soon as it needs the memory."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="kbroker-ballast-"))
        self._files = 0

    def settle(self) -> dict[str, float]:
        """Returns when what a work will write into is the machine's already. Elsewhere than Linux: at once.

        Where holes do not stay in the page cache (tmpfs, a control group's limit) it is given up after one try.
        """
        while (missing := free_bytes() - LEFT_FREE_BYTES) > WORTH_IT_BYTES:
            self._read_holes(missing)
            if free_bytes() - LEFT_FREE_BYTES > missing // 2:
                break
        return {}

    def _read_holes(self, length: int) -> None:
        self._files += 1
        chunk = bytearray(CHUNK_BYTES)
        with open(self._directory / str(self._files), "w+b", buffering=0) as file:
            file.truncate(length)
            while file.readinto(chunk):
                pass

    def drop(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def free_bytes() -> int:
    """Memory that nothing uses, not even the page cache."""
    if not MEMINFO.exists():
        return 0
    found = re.search(r"MemFree:\s+(\d+) kB", MEMINFO.read_text())
    return int(found.group(1)) * 1024 if found else 0
