"""Counting votes and positions: what a majority of the voters has said or holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def majority_of(voters: Iterable[int]) -> int:
    return len(set(voters)) // 2 + 1


class Tally:
    """The votes of one round. A voter counts once; who is no voter does not count."""

    __slots__ = ("granted", "rejected", "voters")

    def __init__(self, voters: frozenset[int]) -> None:
        self.voters = voters
        self.granted: set[int] = set()
        self.rejected: set[int] = set()

    def count(self, voter_id: int, granted: bool) -> None:
        if voter_id in self.voters and voter_id not in self.granted | self.rejected:
            (self.granted if granted else self.rejected).add(voter_id)

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= majority_of(self.voters)

    @property
    def is_lost(self) -> bool:
        return len(self.voters) - len(self.rejected) < majority_of(self.voters)


def held_by_majority(voters: Iterable[int], end_offsets: Mapping[int, int]) -> int:
    """The highest offset below which a majority of the voters holds everything; one never heard of holds nothing."""
    held = sorted((end_offsets.get(voter, 0) for voter in set(voters)), reverse=True)
    return held[majority_of(voters) - 1]
