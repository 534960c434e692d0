"""Differences that are meant. Each says for which client and scenario, which part of the answer, and why."""

from __future__ import annotations

import re
from typing import NamedTuple


class Accepted(NamedTuple):
    client: str  # a pattern, as are the next two
    scenario: str
    line: str
    reason: str


ACCEPTED: tuple[Accepted, ...] = ()


def reason_for(client: str, scenario: str, line: str) -> str | None:
    for accepted in ACCEPTED:
        if (
            re.fullmatch(accepted.client, client)
            and re.fullmatch(accepted.scenario, scenario)
            and re.search(accepted.line, line)
        ):
            return accepted.reason
    return None
