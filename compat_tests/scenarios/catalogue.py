"""The list of scenarios. A scenario is a function of a client and a fresh topic name; its name is the function's.

An outcome is made of JSON values only and holds nothing that may differ between two runs of one broker (ports, clock
readings, ids). A scenario also asserts what must hold on any broker: two equal failures are not a success.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from compat_tests.client import Client

Outcome = Any


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    run: Callable[[Client, str], Outcome]


SCENARIOS: dict[str, Scenario] = {}


def scenario(run: Callable[[Client, str], Outcome]) -> Callable[[Client, str], Outcome]:
    name = run.__name__.replace("_", " ")
    SCENARIOS[name] = Scenario(name, run)
    return run


def _with_value(run: Callable[..., Outcome], value: Any, client: Client, topic: str) -> Outcome:
    return run(client, topic, value)


def scenarios_for(values: tuple[Any, ...], title: str) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """One scenario per value; `title` has a place for it."""

    def register(run: Callable[..., Outcome]) -> Callable[..., Outcome]:
        for value in values:
            name = title.format(value)
            SCENARIOS[name] = Scenario(name, partial(_with_value, run, value))
        return run

    return register


from compat_tests.scenarios import offsets, records, topics  # noqa: E402, F401 - they register themselves
