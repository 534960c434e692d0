"""ListOffsets and OffsetForLeaderEpoch, on logs that answer from a list."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from kbroker._core.log.partition_log import Found, LogError
from kbroker.protocol.messages import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kbroker.tests.unit.api.desk import Desk, FakePartition


@dataclass
class Log:
    """Offsets 2..7 are kept, 7 is not yet stable; timestamps are 10 times the offset and the greatest is at 5."""

    log_start_offset: int = 2
    last_stable_offset: int = 6
    high_watermark: int = 7
    log_end_offset: int = 9
    timestamps: dict[int, int] = field(default_factory=lambda: {2: 20, 3: 30, 4: 40, 5: 90, 6: 60, 7: 70, 8: 80})

    def epochs(self) -> list[tuple[int, int]]:
        return [(1, 0), (3, 5)]

    def offset_for_timestamp(self, timestamp: int) -> Found | None:
        found = (Found(offset, at, 1 if offset < 5 else 3) for offset, at in self.timestamps.items() if at >= timestamp)
        return next(found, None)

    def offset_of_max_timestamp(self) -> Found | None:
        return Found(5, 90, 3)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return {1: (1, 5), 3: (3, 9)}.get(epoch, (-1, -1))


def desk_with_log(**partition: Any) -> Desk:
    desk = Desk()
    desk.replicas.partitions["t", 0] = FakePartition(Log(), leader_epoch=3, **partition)
    return desk


def list_offsets(
    desk: Desk, timestamp: int, version: int = 11, *, topic: str = "t", index: int = 0, **more: Any
) -> Any:
    epoch = more.pop("epoch", -1)
    one = ListOffsetsRequest.ListOffsetsPartition(
        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
    )
    asked = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[one])
    (answer,) = desk.ask(ListOffsetsRequest(replica_id=more.pop("replica", -1), topics=[asked], **more), version).topics
    (partition,) = answer.partitions
    return partition


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, (7, -1, 3)),
        (-2, (2, -1, 1)),
        (-3, (5, 90, 3)),
        (-4, (2, -1, 1)),
        (-5, (-1, -1, -1)),
        (-6, (-1, -1, -1)),
        (0, (2, 20, 1)),
        (41, (5, 90, 3)),
        (91, (-1, -1, -1)),
    ],
)
def test_every_timestamp_finds_its_offset(timestamp: int, expected: tuple[int, int, int]) -> None:
    found = list_offsets(desk_with_log(), timestamp)
    assert (found.error_code, (found.offset, found.timestamp, found.leader_epoch)) == (0, expected)


class UnreadableLog(Log):
    """Its index cannot be read."""

    def offset_for_timestamp(self, timestamp: int) -> Found | None:
        raise LogError(56)


def test_a_log_that_cannot_be_read_costs_only_its_own_answer() -> None:
    desk = desk_with_log()
    desk.replicas.partitions["t", 1] = FakePartition(UnreadableLog(), leader_epoch=3)
    both = [ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=41) for index in (0, 1)]
    asked = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=both)
    (answer,) = desk.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 11).topics
    assert [(one.error_code, one.offset) for one in answer.partitions] == [(0, 5), (56, -1)]


@pytest.mark.parametrize(("timestamp", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_special_timestamp_is_unsupported_before_its_version(timestamp: int, since: int) -> None:
    desk = desk_with_log()
    for version in range(1, 12):
        assert list_offsets(desk, timestamp, version).error_code == (0 if version >= since else 35), version


def test_timestamps_below_all_special_ones_are_unsupported() -> None:
    assert list_offsets(desk_with_log(), -7).error_code == 35


def test_latest_is_the_last_stable_offset_for_read_committed_and_the_end_for_a_replica() -> None:
    desk = desk_with_log()
    assert list_offsets(desk, -1, isolation_level=1).offset == 6
    assert list_offsets(desk, -1, replica=2).offset == 9


def test_a_record_that_may_not_be_read_yet_is_not_found_by_its_time() -> None:
    desk = desk_with_log()
    desk.replicas.partitions["t", 0].log.timestamps = {7: 70}
    assert list_offsets(desk, 65).offset == -1
    assert list_offsets(desk, 65, replica=2).offset == 7


def test_an_unknown_isolation_level_is_an_unknown_server_error() -> None:
    assert list_offsets(desk_with_log(), -1, isolation_level=7).error_code == -1


def test_unknown_partitions_and_wrong_epochs_are_told() -> None:
    desk = desk_with_log()
    assert list_offsets(desk, -1, topic="nope").error_code == 3
    assert list_offsets(desk, -1, index=5).error_code == 3
    assert list_offsets(desk, -1, epoch=4).error_code == 75
    assert list_offsets(desk, -1, epoch=2).error_code == 74
    assert list_offsets(desk, -1, epoch=3).error_code == 0


def test_a_follower_sends_clients_to_the_leader_and_answers_a_debugging_one() -> None:
    desk = desk_with_log(is_leader=False)
    assert list_offsets(desk, -1).error_code == 6
    assert list_offsets(desk, -1, replica=-2).error_code == 0


def test_a_partition_asked_for_twice_is_an_invalid_request() -> None:
    one = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[one, one])
    (answer,) = desk_with_log().ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 11).topics
    assert [one.error_code for one in answer.partitions] == [42]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_for_leader_epoch_tells_where_an_epoch_ended(version: int) -> None:
    desk = desk_with_log()
    ask = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    asked = [
        ask(partition=0, leader_epoch=1),
        ask(partition=0, leader_epoch=3),
        ask(partition=0, leader_epoch=9),
        ask(partition=0, leader_epoch=1, current_leader_epoch=9),
        ask(partition=4, leader_epoch=1),
    ]
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=asked)
    (answer,) = desk.ask(OffsetForLeaderEpochRequest(topics=[topic]), version).topics
    found = [(one.error_code, one.leader_epoch, one.end_offset) for one in answer.partitions]
    assert found == [(0, 1, 5), (0, 3, 9), (0, -1, -1), (75, -1, -1), (3, -1, -1)]
