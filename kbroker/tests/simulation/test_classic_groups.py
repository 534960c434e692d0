"""A hundred seeds of the simulation; `make groups` runs as many as asked for."""

from __future__ import annotations

import pytest

from kbroker.tests.simulation.classic_groups import run

SEEDS_PER_TEST = 10


@pytest.mark.parametrize("first", range(0, 100, SEEDS_PER_TEST))
def test_groups_hold_under_troubled_clients(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        run(seed)
