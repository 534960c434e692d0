from __future__ import annotations

import pytest

from kbroker.tests.simulation.consumer_groups import Simulation
from kbroker.tests.simulation.mixed_groups import MixedSimulation

SEEDS, AT_ONCE = 100, 10


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_a_partition_never_has_two_owners_and_everyone_arrives(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        Simulation(seed).run()


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_members_of_both_protocols_never_share_a_partition_and_all_arrive(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        MixedSimulation(seed).run()
