"""What one cycle does, drawn from the seed, the era and the cycle: the same numbers, the same decisions."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from bench.campaigns.crash.tripwire import KINDS, Moment

ERA = 20  # cycles on one data directory
ANY = tuple(KINDS)

# Where a kill hurts most: the files of a swap, of retention, of a roll, of the metadata log, of the checkpoints.
_SPOTS: tuple[tuple[tuple[str, ...], str, int], ...] = (
    (("rename",), ".swap", 25),
    (("rename",), ".cleaned", 12),
    (("write", "sync", "create"), ".cleaned", 30),
    (("rename",), ".deleted", 40),
    (("unlink",), ".deleted", 60),
    (("rename", "create"), ".snapshot", 40),
    (("create",), ".log", 25),
    (("write",), ".log", 800),
    (("write", "sync", "create"), "__transaction_state", 150),
    (("write",), "__transaction_state", 60),
    (("write",), "transactions", 200),
    (("write",), "__consumer_offsets", 60),
    (("write", "rename", "create"), ".txnindex", 15),
    (("write",), ".index", 40),
    (("write",), ".timeindex", 40),
    (("sync",), ".log", 150),
    (("rename", "write", "sync"), "checkpoint", 12),
    (("write", "sync", "rename", "create"), "__cluster_metadata", 15),
    (("create", "rename", "unlink"), "mayfly", 30),
    (("rename",), "-future", 8),
    (("write", "sync", "create"), "-future", 60),
    (("rename",), "-delete", 8),
    (("cut",), ".log", 4),
    (ANY, "", 2_500),
)
_STOP_SPOTS: tuple[tuple[tuple[str, ...], str, int], ...] = (
    (ANY, "", 150),
    (("write", "sync"), ".log", 20),
    (("create", "write", "rename", "sync"), ".snapshot", 12),
    (("rename", "write", "sync"), "checkpoint", 5),
    (("create", "rename", "write"), "cleanshutdown", 2),
)
_START_SPOTS: tuple[tuple[tuple[str, ...], str, int], ...] = (
    (ANY, "", 120),
    (("unlink",), "", 40),
    (("rename",), "", 8),
    (("write", "cut", "create"), "index", 40),
    (("unlink", "rename"), ".swap", 3),
    (("unlink",), ".deleted", 10),
    (("write", "rename", "cut"), "-future", 5),
    (("write", "sync"), "__cluster_metadata", 3),
)


@dataclass
class Plan:
    cycle: int
    starts: list[Moment | float] = field(default_factory=list)  # kills before the broker is ready
    load_s: float = 1.0
    moment: Moment | None = None  # in the load; None: by the clock
    stop: str = ""  # "clean", "clock" or "wire": the broker is asked to stop, and killed while it does
    stop_moment: Moment | None = None
    stop_s: float = 0.0
    harm: bool = False

    def __str__(self) -> str:
        end = f"kill {self.moment}" if self.moment else f"kill after {self.load_s:.2f} s"
        if self.stop:
            end = {"clean": "clean stop", "clock": f"kill {self.stop_s:.2f} s into a stop"}.get(
                self.stop, f"kill {self.stop_moment} of a stop"
            )
        return end


def chance_of(seed: int, era: int, cycle: int, who: str = "") -> random.Random:
    return random.Random(f"{seed}/{era}/{cycle}/{who}")


def _moment(spots: tuple[tuple[tuple[str, ...], str, int], ...], chance: random.Random) -> Moment:
    kinds, part, most = chance.choice(spots)
    manner = chance.choice(("before", "after", "torn") if "write" in kinds else ("before", "after"))
    return Moment(kinds, part, 1 + int(most * chance.random() ** 2), manner, chance.randrange(1000))


def plan_of(seed: int, cycle: int) -> Plan:
    era = (cycle - 1) // ERA
    chance = chance_of(seed, era, cycle)
    plan = Plan(cycle, load_s=0.3 + chance.random() * 1.5)
    if (cycle - 1) % ERA:  # the first start of an era has nothing to recover
        while len(plan.starts) < 3 and chance.random() < 0.4:
            plan.starts.append(0.1 + chance.random() * 0.4 if chance.random() < 0.15 else _moment(_START_SPOTS, chance))
        plan.harm = chance.random() < 0.35
    ending = chance.random()
    if ending < 0.55:
        plan.moment = _moment(_SPOTS, chance)
    elif ending > 0.85:
        plan.stop = chance.choice(("clean", "clock", "wire", "wire"))
        plan.stop_moment = _moment(_STOP_SPOTS, chance)
        plan.stop_s = chance.random() * 0.25
    return plan
