"""The command: runs the cycles, tells of each in a line, and of all in a table."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from bench.campaigns.crash import tripwire, verdict
from bench.campaigns.crash.era import Era
from bench.campaigns.crash.events import EXPECTED, Events
from bench.campaigns.crash.plan import ERA, plan_of

LONG = 200  # from here on every kind of event must have happened


class Campaign:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.seed: int = arguments.seed
        self.cycles: int = arguments.cycles
        self.only: int | None = arguments.cycle
        self.home = arguments.keep or Path(tempfile.mkdtemp(prefix="kbroker-crash-"))
        self.events = Events()
        self.judged = self.acknowledged = self.dumped = 0
        self.no_dump = verdict.is_possible() if arguments.dump else "not asked for"
        self._began = time.monotonic()

    def run(self) -> int:
        library = tripwire.build()
        first, last = 1, self.cycles
        if self.only is not None:
            first, last = (self.only - 1) // ERA * ERA + 1, self.only
        try:
            for number in range((first - 1) // ERA, (last - 1) // ERA + 1):
                begin = number * ERA + 1
                if not self._run_era(number, range(begin, min(begin + ERA, last + 1)), library):
                    return 1
        finally:
            shutil.rmtree(library.parent)
        return self._sum_up(last - first + 1)

    def _run_era(self, number: int, cycles: range, library: Path) -> bool:
        home = self.home / f"era-{number}"
        home.mkdir(parents=True)
        era = Era(number, self.seed, home, library, self.events)
        cycle = cycles[0]
        try:
            era.begin()
            for cycle in cycles:
                plan = plan_of(self.seed, cycle)
                judged, began = era.judged, time.monotonic()
                era.live(plan)
                self._tell(cycle, str(plan), era, era.judged - judged, time.monotonic() - began)
            era.finish()
            if not self.no_dump and (self.cycles >= LONG or cycles[-1] == self.cycles):
                self.dumped += era.dump()
        except BaseException as problem:
            era.close()
            self._tell_failure(cycle, home, problem)
            if not isinstance(problem, Exception):
                raise
            return False
        self.judged += era.judged
        self.acknowledged += era.ledger.acknowledged
        shutil.rmtree(home)
        return True

    def _tell(self, cycle: int, how: str, era: Era, judged: int, seconds: float) -> None:
        print(
            f"crash: {cycle:4}/{self.cycles}  {seconds:4.1f} s  {judged:6} records judged, "
            f"{era.ledger.acknowledged:6} owed  {how}",
            flush=True,
        )

    def _tell_failure(self, cycle: int, home: Path, problem: BaseException) -> None:
        traceback.print_exception(problem)
        print(f"\ncrash: cycle {cycle} of seed {self.seed}: {problem}", file=sys.stderr)
        print(
            f"crash: what the last kill left is in {home / 'left'}, what is there now in {home / 'data'}",
            file=sys.stderr,
        )
        print(f"crash: python -m bench.campaigns.crash --seed {self.seed} --cycle {cycle}", file=sys.stderr, flush=True)

    def _sum_up(self, cycles: int) -> int:
        shutil.rmtree(self.home, ignore_errors=True)
        counts = self.events.counts
        for kind in (*EXPECTED, *sorted(counts.keys() - set(EXPECTED))):
            print(f"  {kind:<32} {counts[kind]:7}")
        print(f"  {'records judged':<32} {self.judged:7}\n  {'records acknowledged or seen':<32} {self.acknowledged:7}")
        print(f"  {'files read by kafka-dump-log':<32} {self.dumped:7}{f' ({self.no_dump})' if self.no_dump else ''}")
        if self.cycles >= LONG and self.only is None and (never := self.events.missing()):
            print(f"crash: seed {self.seed}: never happened: {', '.join(never)}", file=sys.stderr)
            return 1
        seconds = time.monotonic() - self._began
        print(
            f"crash: {cycles} cycles of seed {self.seed} in {seconds:.0f} s: "
            "nothing lost, nothing twice, nothing out of order, nothing invented"
        )
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.campaigns.crash", description="kill -9, again and again")
    parser.add_argument("--cycles", type=int, default=LONG)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--cycle", type=int, help="only this one, and those of its era before it")
    parser.add_argument("--keep", type=Path, help="work in this directory; a failure leaves it there")
    parser.add_argument("--no-dump", dest="dump", action="store_false", help="without Apache's kafka-dump-log")
    arguments = parser.parse_args()
    print(f"crash: {arguments.cycles} cycles, seed {arguments.seed}", flush=True)
    sys.exit(Campaign(arguments).run())


if __name__ == "__main__":
    main()
