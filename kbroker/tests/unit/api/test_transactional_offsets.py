"""A group's offsets in a transaction: who is asked before, in which order, and what is told."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker._core.errors import Err
from kbroker.coordinator.later import Later
from kbroker.coordinator.placement import OFFSETS_TOPIC
from kbroker.errors import NotCoordinatorError
from kbroker.protocol import codec
from kbroker.protocol.messages import CreateTopicsRequest, TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kbroker.tests.unit.api.desk import Desk

Topic = TxnOffsetCommitRequest.Topic
Partition = TxnOffsetCommitRequest.Partition


def settled(answer: Any) -> Later:
    later = Later()
    later.settle(answer)
    return later


class Coordinators:
    """Of the group and of the transaction, both in one: what they are asked is noted."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.ended = settled(object())
        self.code = int(Err.NONE)
        self.guard = 5
        self.coordinates = True

    def append_decided(self) -> None: ...

    def partition_of(self, group_id: str) -> int:
        return 0

    def last_one_ended(self, transactional_id: str) -> Later:
        self.asked.append("ended")
        return self.ended

    def begin_verification(self, group_id: str, producer_id: int, producer_epoch: int, *, adds: bool) -> int:
        self.asked.append("begin")
        if not self.coordinates:
            raise NotCoordinatorError()
        return self.guard

    def verify(self, transactional_id: str, *who: Any, add: bool) -> Later:
        self.asked.append("verify")
        return settled({(OFFSETS_TOPIC, 0): self.code})

    def submit(self, group_id: str, event: Any) -> Later:
        self.asked.append("commit")
        part = TxnOffsetCommitResponse.Partition(partition_index=0, error_code=0)
        return settled(TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponse.Topic(name="t", partitions=[part])]))


@pytest.fixture
def place() -> tuple[Desk, Coordinators]:
    desk, both = Desk(), Coordinators()
    desk.ask(
        CreateTopicsRequest(
            topics=[CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
        ),
        7,
    )
    desk.rooms.groups = desk.rooms.transactions = both
    return desk, both


def request(topic: str = "t") -> TxnOffsetCommitRequest:
    part = Partition(partition_index=0, committed_offset=3, committed_metadata="")
    return TxnOffsetCommitRequest(
        transactional_id="tx", group_id="g", member_id="", topics=[Topic(name=topic, partitions=[part])]
    )


def commit(desk: Desk, version: int, topic: str = "t") -> int:
    response: TxnOffsetCommitResponse = desk.ask(request(topic), version)
    return response.topics[0].partitions[0].error_code


def test_offsets_come_behind_the_markers_of_the_transaction_before(place: tuple[Desk, Coordinators]) -> None:
    desk, both = place
    both.ended = Later()
    token = desk.begin(codec.encode_request(request(), 5, 77, "a-client"))
    assert both.asked == ["ended"]
    both.ended.settle(object())
    assert both.asked == ["ended", "begin", "verify", "commit"]
    assert token in desk.mailbox.replies


def test_older_clients_have_added_the_group_before(place: tuple[Desk, Coordinators]) -> None:
    desk, both = place
    assert commit(desk, 3) == Err.NONE
    assert both.asked == ["begin", "verify", "commit"]


def test_a_transaction_that_has_begun_in_the_group_is_not_asked_about(place: tuple[Desk, Coordinators]) -> None:
    desk, both = place
    both.guard = 0
    assert commit(desk, 5) == Err.NONE
    assert both.asked == ["ended", "begin", "commit"]


def test_for_no_topic_that_there_is_nobody_is_asked(place: tuple[Desk, Coordinators]) -> None:
    desk, both = place
    commit(desk, 5, "unknown")
    assert both.asked == ["commit"]


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (Err.PRODUCER_FENCED, 5, Err.INVALID_PRODUCER_EPOCH),
        (Err.TRANSACTION_ABORTABLE, 3, Err.INVALID_TXN_STATE),
        (Err.TRANSACTION_ABORTABLE, 4, Err.TRANSACTION_ABORTABLE),
        (Err.NOT_COORDINATOR, 5, Err.COORDINATOR_LOAD_IN_PROGRESS),
        (Err.CONCURRENT_TRANSACTIONS, 5, Err.CONCURRENT_TRANSACTIONS),
    ],
)
def test_what_the_transactions_coordinator_answers_is_told(
    place: tuple[Desk, Coordinators], code: int, version: int, told: int
) -> None:
    desk, both = place
    both.code = int(code)
    assert commit(desk, version) == told
    assert "commit" not in both.asked


def test_a_group_that_another_node_coordinates(place: tuple[Desk, Coordinators]) -> None:
    desk, both = place
    both.coordinates = False
    assert commit(desk, 5) == Err.NOT_COORDINATOR
    assert commit(desk, 3) == Err.NOT_COORDINATOR
