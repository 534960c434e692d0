"""What a race found: every round's figures, kept as JSON with machine and commit."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from bench.bars import BARS, Bar

# Figures of which less is better; of all others more is.
LESS_IS_BETTER = ("CPU", "µs", "MiB", "KiB", "seconds", "ms ")


@dataclass(frozen=True)
class Row:
    """One figure of one work, of kbroker and of its rival, a value for each round."""

    work: str
    figure: str
    rival: str
    ours: list[float]
    theirs: list[float]

    @property
    def kbroker(self) -> float:
        return statistics.median(self.ours)

    @property
    def other(self) -> float:
        return statistics.median(self.theirs)

    @property
    def ratio(self) -> float:
        return self.kbroker / self.other if self.other else float("inf")

    @property
    def less_is_better(self) -> bool:
        return any(word in self.figure for word in LESS_IS_BETTER)

    @property
    def bar(self) -> Bar | None:
        return BARS.get(self.work, {}).get(self.figure)

    @property
    def met(self) -> bool | None:
        return None if self.bar is None else self.bar.met(self.kbroker, self.ratio)

    @property
    def ratio_text(self) -> str:
        """As the bars say it: a share where less is better, a multiple otherwise."""
        if self.less_is_better and 0 < self.ratio < 1:
            return f"1/{1 / self.ratio:.1f}" if self.ratio < 1 / 1.5 else f"1/{1 / self.ratio:.2f}"
        return f"{self.ratio:.2f}x"

    @property
    def verdict(self) -> str:
        return {None: "", True: "met", False: "short"}[self.met]


@dataclass(frozen=True)
class Race:
    commit: str
    at: str
    machine: dict[str, str]
    rounds: int
    warm_minutes: float
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def of(cls, rows: list[Row], *, rounds: int, warm_minutes: float) -> Race:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return cls(commit(), now, machine(), rounds, warm_minutes, rows)

    @classmethod
    def load(cls, path: Path) -> Race:
        kept = json.loads(path.read_text())
        rows = [Row(one["work"], one["figure"], one["rival"], one["ours"], one["theirs"]) for one in kept.pop("rows")]
        return cls(**kept, rows=rows)

    def keep(self, directory: Path, kind: str = "race") -> Path:
        directory.mkdir(exist_ok=True)
        path = directory / f"{kind}-{datetime.fromisoformat(self.at):%Y%m%d-%H%M%S}.json"
        kept = {key: value for key, value in vars(self).items() if key != "rows"}
        kept["rows"] = [
            {
                **vars(row),
                "kbroker": row.kbroker,
                "other": row.other,
                "ratio": row.ratio,
                "bar": row.bar.text if row.bar else None,
                "met": row.met,
            }
            for row in self.rows
        ]
        text = json.dumps(kept, indent=1, ensure_ascii=False)
        path.write_text(re.sub(r"\[[^\[\]{}]*\]", lambda found: " ".join(found[0].split()), text) + "\n")
        return path


def commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()

    changed = " and changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed


def machine() -> dict[str, str]:
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{int(memory[1]) / 2**20:.0f} GiB" if memory else "unknown",
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
