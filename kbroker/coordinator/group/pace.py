"""How soon a member of the consumer protocol shall be heard again (ADR 0011).

Members learn of a new target, and that others let go, only by their own heartbeats. So while a group moves they are
asked to come soon, and the longer nothing has happened, the later. What is configured is the pace of a group at rest.
"""

from __future__ import annotations

SOON_MS = 200
UNSETTLED_MS = 1_000  # at most, for whoever has not got what it shall have


def interval_ms(configured_ms: int, age_ms: int, *, settled: bool) -> int:
    """`age_ms`: how long ago the target was made. Each wait is as long as all before it, so a change costs few."""
    most_ms = configured_ms if settled else min(configured_ms, UNSETTLED_MS)
    return min(most_ms, max(SOON_MS, age_ms))
