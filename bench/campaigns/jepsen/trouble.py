"""What goes wrong in a run, and when: everything from the seed."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

CALM_S = 2.0  # at the beginning, when every client has come up

# How often each comes, and for how long, in seconds.
KINDS: dict[str, tuple[int, float, float]] = {
    "kill broker": (5, 0.0, 1.0),
    "pause broker": (3, 0.2, 8.0),
    "cut": (4, 0.0, 0.0),
    "slow": (2, 1.0, 4.0),
    "block": (2, 0.5, 8.0),
    "kill client": (5, 0.0, 1.0),
    "pause client": (3, 1.0, 10.0),  # its transaction may time out
    "replace client": (3, 1.0, 6.0),  # another takes its name while it is paused: it comes back fenced
}


@dataclass(frozen=True, slots=True)
class Trouble:
    at_s: float
    kind: str
    for_s: float
    chance: float  # which client, how slow

    def __str__(self) -> str:
        return f"{self.kind}, {self.for_s:.1f} s" if self.for_s else self.kind


def troubles(seed: int, seconds: float, spared: Collection[str] = ()) -> Iterator[Trouble]:
    """`spared` kinds do not come, and change nothing about the others."""
    chance = random.Random(f"trouble-{seed}")
    at = CALM_S
    while True:
        (kind,) = chance.choices([*KINDS], [weight for weight, _, _ in KINDS.values()])
        _, shortest, longest = KINDS[kind]
        lasts = chance.uniform(shortest, longest)
        if at + lasts > seconds:
            return
        trouble = Trouble(at, kind, lasts, chance.random())
        if kind not in spared:
            yield trouble
        at += lasts + chance.uniform(0.3, 3.0)
