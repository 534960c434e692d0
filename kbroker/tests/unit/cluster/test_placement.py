from collections import Counter
from random import Random

import pytest

from kbroker.cluster.placement import Candidate, place
from kbroker.errors import InvalidReplicationFactorError


def test_leaders_and_replicas_spread_evenly_over_brokers() -> None:
    brokers = [Candidate(number, None, False) for number in range(4)]
    placed = place(brokers, 40, 3, Random(1).shuffle)
    assert all(len(set(replicas)) == 3 for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}


def test_replicas_spread_over_racks() -> None:
    brokers = [Candidate(number, f"rack{number % 3}", False) for number in range(6)]
    for replicas in place(brokers, 30, 3, Random(2).shuffle):
        assert {number % 3 for number in replicas} == {0, 1, 2}


def test_a_fenced_broker_is_never_the_first_replica() -> None:
    brokers = [Candidate(0, "a", True), Candidate(1, "b", False), Candidate(2, "b", True)]
    for replicas in place(brokers, 20, 3, Random(3).shuffle):
        assert replicas[0] == 1
        assert sorted(replicas) == [0, 1, 2]


def test_one_broker_holds_everything() -> None:
    assert place([Candidate(1, None, False)], 3, 1, Random(4).shuffle) == [[1], [1], [1]]


def test_fenced_brokers_alone_can_hold_nothing_new() -> None:
    with pytest.raises(InvalidReplicationFactorError, match="All brokers are currently fenced"):
        place([Candidate(1, None, True)], 1, 1, Random(5).shuffle)
