"""One scenario, two brokers, one comparison; and the table of what came out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from compat_tests.accepted import reason_for


class Broker(Protocol):
    name: str
    bootstrap: str


@dataclass(frozen=True, slots=True)
class Row:
    client: str
    scenario: str
    verdict: str  # same | differs | skipped
    reason: str = ""


@dataclass(slots=True)
class Results:
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    client_versions: dict[str, str] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        self.rows[row.client, row.scenario] = row

    def taken(self) -> Results:
        """What there was; nothing is left."""
        taken = Results(self.rows, self.client_versions)
        self.rows, self.client_versions = {}, {}
        return taken


class DiffersError(AssertionError):
    """The brokers gave two answers."""


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where two outcomes part, one line each: path, kbroker's value, Apache's value."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in [*theirs, *(k for k in ours if k not in theirs)]:
            yield from differences(
                ours.get(key, "absent"), theirs.get(key, "absent"), f"{path}.{key}" if path else str(key)
            )
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: kbroker {_short(ours)}, apache {_short(theirs)}"


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 600 else f"{text[:600]}… ({len(text)} characters)"


def compare(
    results: Results,
    client: str,
    scenario: str,
    brokers: dict[str, Broker],
    run: Callable[[Broker], Any],
    *,
    together: bool = False,
) -> None:
    """Apache is looked at first: if the scenario fails there, the scenario is wrong, whatever kbroker did.

    `together` runs both at once, for scenarios that mostly wait.
    """
    outcomes = {}
    with ThreadPoolExecutor(2) as pool:
        begun = {name: pool.submit(run, brokers[name]) for name in brokers} if together else {}
        if "apache" in brokers:
            outcomes["apache"] = _plain(begun["apache"].result() if together else run(brokers["apache"]))
        if "kbroker" in brokers:
            try:
                outcomes["kbroker"] = _plain(begun["kbroker"].result() if together else run(brokers["kbroker"]))
            except Exception as error:
                results.add(Row(client, scenario, "differs", f"kbroker: {type(error).__name__}"))
                raise
    if len(outcomes) < 2:
        return
    found = list(differences(outcomes["kbroker"], outcomes["apache"]))
    if not found:
        results.add(Row(client, scenario, "same"))
        return
    unexplained = [line for line in found if reason_for(client, scenario, line) is None]
    reasons = sorted({reason for line in found if (reason := reason_for(client, scenario, line)) is not None})
    if unexplained:
        results.add(Row(client, scenario, "differs", unexplained[0].split(":")[0]))
        raise DiffersError(f"{client}, {scenario}:\n  " + "\n  ".join(unexplained[:40]))
    results.add(Row(client, scenario, "differs", "; ".join(reasons)))


def _plain(outcome: Any) -> Any:
    """As JSON has it: tuples are lists, keys are strings."""
    return json.loads(json.dumps(outcome, default=str))
