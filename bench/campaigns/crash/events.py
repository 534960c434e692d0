"""What really happened, counted from what the broker did to its files and from what the kills left."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from bench.campaigns.crash.topics import MAYFLIES, TOPICS

_SEGMENT = re.compile(r"([\w.-]+)-\d+/(\d{20})\.log$")
_COMPACTED = {topic.name for topic in TOPICS if topic.compacted}

# Kinds that a long run must have seen, each at least once.
EXPECTED = (
    "rolls",
    "compaction swaps",
    "retention deletes",
    "files removed",
    "topics deleted",
    "kills by the clock",
    "kills inside a call",
    "torn writes",
    "kills while recovering",
    "kills while stopping",
    "clean stops",
    "copies under way at a kill",
    "swaps under way at a kill",
    "swaps finished by a start",
    "retired files at a kill",
    "torn tails cut",
    "indexes harmed",
    "indexes made anew",
    "snapshots harmed",
    "transactions committed",
    "transactions aborted",
    "transactions walked away from",
    "transactions open at a kill",
    "commits unanswered at a kill",
    "deletions of records",
    "partitions moved",
    "moves under way at a kill",
    "settings changed",
    "batches sent twice, kept once",
)


class Events:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._harmed: set[Path] = set()

    def note(self, kind: str, count: int = 1) -> None:
        self.counts[kind] += count

    def read(self, told: list[str], *, starting: bool) -> None:
        """What the shim has told; `starting`: before the broker was ready."""
        begun: set[str] = set()  # swaps: one that a start finishes was begun in an earlier life
        for line in told:
            what, *paths = line.split()
            if what == "create" and (made := _SEGMENT.search(paths[0])) and int(made.group(2)) > 0:
                self.note("rolls")
            elif what == "rename":
                if paths[1].endswith(".log.swap"):
                    begun.add(paths[1])
                self._renamed(*paths, left=starting and paths[0] not in begun, starting=starting)
            elif what == "unlink" and ".deleted" in paths[0]:
                self.note("files removed")
            elif what == "cut" and starting and paths[0].endswith(".log"):
                self.note("torn tails cut")
            elif what == "died":
                self.note("kills inside a call")
                self.note("torn writes", paths[0] == "torn")

    def _renamed(self, old: str, new: str, *, left: bool, starting: bool) -> None:
        if old.endswith(".log.swap"):
            self.note("swaps finished by a start" if left else "compaction swaps")
        elif new.endswith(".log.deleted") and old.rpartition("/")[0].rpartition("-")[0] not in _COMPACTED:
            self.note("retention deletes")
        elif new.endswith("-delete") and new.rpartition("/")[2].startswith(MAYFLIES):
            self.note("topics deleted")
        elif old.endswith("-future") and not new.endswith(("-delete", "-stray")):
            self.note("moves finished by a start" if starting else "partitions moved")

    def look(self, data: Path) -> None:
        """At what a kill has left."""
        names = [path.name for path in data.glob("*/*-*/*")]
        self.note("moves under way at a kill", any(data.glob("*/*-future")))
        self.note("copies under way at a kill", any(name.endswith(".cleaned") for name in names))
        self.note("swaps under way at a kill", any(name.endswith(".swap") for name in names))
        self.note("retired files at a kill", any(name.endswith(".deleted") for name in names))

    def harmed(self, paths: list[Path]) -> None:
        for path in paths:
            snapshot = path.suffix == ".snapshot"
            self.note("snapshots harmed" if snapshot else "indexes harmed")
            if not snapshot and not path.exists():
                self._harmed.add(path)

    def look_for_healed(self) -> None:
        """After a judgement has read everything: an index that was removed is there again."""
        self.note("indexes made anew", sum(path.exists() for path in self._harmed))
        self._harmed.clear()

    def missing(self) -> list[str]:
        return [kind for kind in EXPECTED if not self.counts[kind]]
