"""Both assignors: everything is given out, nothing twice, evenly, and members keep what they can."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.coordinator.group.assignors import ASSIGNORS
from kbroker.coordinator.group.assignors.spec import Partitions, Wish
from kbroker.coordinator.group.member import Assignment

TOPICS = [bytes([index]) * 16 for index in range(1, 6)]


def _assign(name: str, members: Mapping[str, Wish], partitions: Partitions) -> dict[str, Assignment]:
    assigned = ASSIGNORS[name](members, partitions)
    given_out = [(topic_id, one) for share in assigned.values() for topic_id, ones in share.items() for one in ones]
    wanted = {topic_id for wish in members.values() for topic_id in wish.topics if topic_id in partitions}
    assert len(given_out) == len(set(given_out)), "a partition was given out twice"
    assert set(given_out) == {(topic_id, one) for topic_id in wanted for one in range(partitions[topic_id])}
    assert assigned.keys() == members.keys()
    for member_id, share in assigned.items():
        assert share.keys() <= members[member_id].topics
        assert all(share.values()), "an empty share is no share"
    assert ASSIGNORS[name](dict(reversed(members.items())), partitions) == assigned, "the order of members matters"
    return assigned


def _sizes(assigned: Mapping[str, Assignment]) -> list[int]:
    return sorted(sum(len(ones) for ones in share.values()) for share in assigned.values())


def _holding(members: Mapping[str, Wish], assigned: Mapping[str, Assignment]) -> dict[str, Wish]:
    return {member_id: wish._replace(held=assigned.get(member_id, {})) for member_id, wish in members.items()}


partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 20), min_size=1)
member_ids = st.lists(st.text("abcdef0123456789", min_size=1, max_size=6), min_size=1, max_size=12, unique=True)
subscriptions = st.frozensets(st.sampled_from(TOPICS))


@given(partition_counts, member_ids)
def test_uniform_gives_everyone_as_much_and_moves_nothing_without_need(counts: Partitions, ids: list[str]) -> None:
    members = {member_id: Wish(frozenset(counts)) for member_id in ids}
    assigned = _assign("uniform", members, counts)
    assert _sizes(assigned)[-1] - _sizes(assigned)[0] <= 1
    assert _assign("uniform", _holding(members, assigned), counts) == assigned


@given(partition_counts, member_ids, st.data())
def test_uniform_leaves_with_the_others_what_they_had_when_one_goes(
    counts: Partitions, ids: list[str], data: st.DataObject
) -> None:
    members = {member_id: Wish(frozenset(counts)) for member_id in [*ids, "stays"]}
    before = _assign("uniform", members, counts)
    gone = data.draw(st.sampled_from(ids))
    rest = {member_id: wish for member_id, wish in _holding(members, before).items() if member_id != gone}
    after = _assign("uniform", rest, counts)
    for member_id in rest:
        for topic_id, ones in before[member_id].items():
            assert ones <= after[member_id].get(topic_id, frozenset()), "a partition moved from one who stayed"
    assert _sizes(after)[-1] - _sizes(after)[0] <= 1


@given(partition_counts, member_ids)
def test_uniform_takes_for_a_newcomer_only_what_it_gets(counts: Partitions, ids: list[str]) -> None:
    members = {member_id: Wish(frozenset(counts)) for member_id in ids}
    before = _assign("uniform", members, counts)
    after = _assign("uniform", {**_holding(members, before), "newcomer": Wish(frozenset(counts))}, counts)
    moved = sum(
        len(ones - after[one].get(topic, frozenset())) for one in members for topic, ones in before[one].items()
    )
    assert moved == sum(len(ones) for ones in after["newcomer"].values())


@settings(max_examples=200)
@given(
    partition_counts, st.dictionaries(st.text("abcdef", min_size=1, max_size=4), subscriptions, min_size=1, max_size=8)
)
def test_uniform_serves_members_with_different_subscriptions(
    counts: Partitions, wanted: dict[str, frozenset[bytes]]
) -> None:
    members = {member_id: Wish(topics) for member_id, topics in wanted.items()}
    assigned = _assign("uniform", members, counts)
    for topic_id, count in counts.items():
        takers = [one for one in members if topic_id in wanted[one]]
        sizes = {one: sum(len(ones) for ones in assigned[one].values()) for one in takers}
        givers = [sizes[one] for one in takers if assigned[one].get(topic_id)]
        if count and takers:
            assert max(givers) - min(sizes.values()) <= 1, "one move would make it more even"
    assert _assign("uniform", _holding(members, assigned), counts) == assigned


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(counts=partition_counts, held=st.integers(0, 40))
def test_partitions_and_topics_that_are_gone_are_not_given_out(name: str, counts: Partitions, held: int) -> None:
    everything: Assignment = {topic_id: frozenset(range(held)) for topic_id in TOPICS if held}
    members = {"a": Wish(frozenset(TOPICS), everything), "b": Wish(frozenset(TOPICS[:2]))}
    _assign(name, members, counts)


@given(partition_counts, member_ids)
def test_range_gives_runs_and_the_first_members_more(counts: Partitions, ids: list[str]) -> None:
    members = {member_id: Wish(frozenset(counts)) for member_id in ids}
    assigned = _assign("range", members, counts)
    for topic_id, count in counts.items():
        start = 0
        for index, member_id in enumerate(sorted(ids)):
            size = count // len(ids) + (index < count % len(ids))
            assert assigned[member_id].get(topic_id, frozenset()) == frozenset(range(start, start + size))
            start += size


def test_range_puts_static_members_first_by_their_instance_ids() -> None:
    topic = TOPICS[0]
    wish = Wish(frozenset([topic]))
    members = {"a": wish, "z": wish._replace(instance_id="2"), "b": wish._replace(instance_id="1")}
    assert _assign("range", members, {topic: 3}) == {
        "b": {topic: frozenset([0])},
        "z": {topic: frozenset([1])},
        "a": {topic: frozenset([2])},
    }


def test_nobody_gets_nothing() -> None:
    assert all(assign({}, {}) == {} for assign in ASSIGNORS.values())
    assert all(assign({"a": Wish(frozenset())}, {}) == {"a": {}} for assign in ASSIGNORS.values())
