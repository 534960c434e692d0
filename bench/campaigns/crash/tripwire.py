"""The moment of a kill, inside the broker: at the n-th call of some kinds on some files. See shim.c."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

KINDS = {"write": 1, "sync": 2, "rename": 4, "unlink": 8, "cut": 16, "create": 32}
MANNERS = {"before": 0, "after": 1, "torn": 2}
_WIRE = struct.Struct("=iiii112s")
_SHIM = Path(__file__).with_name("shim.c")


@dataclass(frozen=True)
class Moment:
    """The `count`-th call of `kinds` on a path that contains `part`, and whether it is done, not done or half done."""

    kinds: tuple[str, ...]
    part: str
    count: int
    manner: str = "after"
    permille: int = 500

    def __str__(self) -> str:
        what = "/".join(self.kinds) if len(self.kinds) < len(KINDS) else "call"
        return f"{self.manner} {what} {self.count}{f' of *{self.part}*' if self.part else ''}"


class Tripwire:
    """Built once; armed and disarmed at any time, while its broker runs."""

    def __init__(self, directory: Path) -> None:
        self.told = directory / "told"
        self._path = directory / "wire"
        self._path.write_bytes(bytes(_WIRE.size))
        with self._path.open("r+b") as file:
            self._wire = mmap.mmap(file.fileno(), _WIRE.size)

    def environment(self, library: Path, data: Path) -> dict[str, str]:
        return {
            **os.environ,
            "LD_PRELOAD": str(library),
            "KBROKER_CRASH_DATA": str(data),
            "KBROKER_CRASH_WIRE": str(self._path),
            "KBROKER_CRASH_TOLD": str(self.told),
        }

    def arm(self, moment: Moment) -> None:
        manner = MANNERS[moment.manner]
        self.disarm()
        self._wire[4:] = _WIRE.pack(0, moment.count, manner, moment.permille, moment.part.encode())[4:]
        self._wire[:4] = struct.pack("=i", sum(KINDS[kind] for kind in moment.kinds))

    def disarm(self) -> None:
        self._wire[:4] = bytes(4)

    def take_told(self) -> list[str]:
        """What the broker did to names since this was last asked."""
        if not self.told.exists():
            return []
        lines = self.told.read_text().splitlines()
        self.told.write_text("")
        return lines


def build() -> Path:
    """The shim, compiled; the caller removes its directory."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise SystemExit("crash: a C compiler is needed: install one, or name it in CC.")
    built = Path(tempfile.mkdtemp(prefix="kbroker-crash-shim-")) / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(built), str(_SHIM), "-ldl"], check=True)
    return built
