"""Who has asked where a group's coordinator is, and so is about to join: a consumer asks before anything else.

The coordinator of a new group that does not wait for members (ADR 0010) can tell by it whether somebody is alone. A
client may ask again on another connection, as librdkafka does some fifty milliseconds later, when it has learned the
broker's name. So those are counted who asked in the same moment.
"""

from __future__ import annotations

from typing import NamedTuple

MOMENT_MS = 20
REMEMBERED_MS = 300
GROUPS_MAX = 1_024  # of which the askers are remembered, and
ASKERS_MAX = 64  # of each the last so many


class Asked(NamedTuple):
    at_ms: int
    who: str  # a connection


class Sought:
    def __init__(self) -> None:
        self._asked: dict[str, list[Asked]] = {}

    def note(self, group_id: str, who: str, now_ms: int) -> None:
        asked = self._recent(group_id, now_ms)
        self._asked.pop(group_id, None)  # whoever was asked for last is remembered longest
        self._asked[group_id] = [*asked[1 - ASKERS_MAX :], Asked(now_ms, who)]
        if len(self._asked) > GROUPS_MAX:
            del self._asked[next(iter(self._asked))]

    def clients(self, group_id: str, now_ms: int) -> int:
        """At least so many want to join."""
        asked = self._recent(group_id, now_ms)
        return max((_together(asked, begin) for begin in range(len(asked))), default=0)

    def _recent(self, group_id: str, now_ms: int) -> list[Asked]:
        return [one for one in self._asked.get(group_id, ()) if 0 <= now_ms - one.at_ms < REMEMBERED_MS]

    def forget(self, group_id: str) -> None:
        self._asked.pop(group_id, None)


def _together(asked: list[Asked], begin: int) -> int:
    until_ms = asked[begin].at_ms + MOMENT_MS
    return len({one.who for one in asked[begin:] if one.at_ms < until_ms})
