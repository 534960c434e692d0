"""The registry of wire cases: for an API and a range of versions, a function that holds a talk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from compat_tests.raw.connection import versions_of
from compat_tests.raw.talk import Run


@dataclass(frozen=True)
class Case:
    api: str
    name: str
    versions: frozenset[int]
    run: Run


CASES: list[Case] = []


def case(api: str, versions: Iterable[int] | None = None) -> Callable[[Run], Run]:
    """Registers a case for the given versions of an API; for all of them unless told otherwise."""

    def register(run: Run) -> Run:
        chosen = frozenset(versions_of(api) if versions is None else versions)
        CASES.append(Case(api, run.__name__.replace("_", " "), chosen, run))
        return run

    return register


def table(api: str, name: str, versions: Iterable[int], run: Run) -> None:
    CASES.append(Case(api, name, frozenset(versions), run))
