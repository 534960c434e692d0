"""The offsets that were sent and acknowledged, by group and partition."""

from __future__ import annotations

from collections import defaultdict

from bench.campaigns.crash.ledger import Broken

Place = tuple[str, int]


class Ledger:
    def __init__(self) -> None:
        self._sent: dict[Place, int] = defaultdict(int)
        self._acknowledged: dict[Place, int] = {}
        self.acknowledgements = 0

    def next(self, group: str, partition: int) -> int:
        self._sent[group, partition] += 1
        return self._sent[group, partition]

    def acknowledge(self, group: str, partition: int, offset: int) -> None:
        self.acknowledgements += 1
        self._acknowledged[group, partition] = max(offset, self._acknowledged.get((group, partition), -1))

    def least(self) -> dict[Place, int]:
        """What must be there from now on."""
        return dict(self._acknowledged)

    def judge(self, group: str, partition: int, stored: int, least: dict[Place, int]) -> None:
        """A commit that was not answered may be there or not; nothing older than an acknowledged one may."""
        owed, last = least.get((group, partition), -1), self._sent[group, partition]
        if not owed <= stored <= last:
            raise Broken(
                f"{group} has committed {stored} of partition {partition}: "
                f"{owed} was acknowledged, {last} was the last one sent"
            )
