"""The first batch of a transaction: its coordinator is asked before it is appended; markers, and who is told."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker._core.errors import Err
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.partitions import PartitionHandle
from kbroker._core.record.records import Record, batches, build_batch, iterate
from kbroker.coordinator.later import Later
from kbroker.protocol.messages import (
    CreateTopicsRequest,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProduceRequest,
    ProduceResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kbroker.storage.markers import Markers
from kbroker.tests.unit.api.desk import Desk

NOW = 1_700_000_000_000
VERIFYING = {"transaction.partition.verification.enable": True}
Key = tuple[str, int]


class Coordinator:
    """Says what it was told to say; `meanwhile` happens while it is asked, `before` while it is waited for."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.errors: dict[Key, int] = {}
        self.asked: list[tuple[str, int, int, list[Key], bool]] = []
        self.meanwhile: Callable[[], Any] = lambda: None
        self.before: Callable[[], Any] = lambda: None

    def append_decided(self) -> None:
        """It decides nothing."""

    def last_one_ended(self, transactional_id: str) -> Later:
        return self._later(self.before, object())

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: list[Key], *, add: bool
    ) -> Later:
        self.asked.append((transactional_id, producer_id, producer_epoch, partitions, add))
        return self._later(self.meanwhile, self.errors)

    def _later(self, first: Callable[[], Any], answer: Any) -> Later:
        later = Later()

        async def settle() -> None:
            first()
            later.settle(answer)

        self._desk.spawn(settle())
        return later


class Place:
    def __init__(self, directory: Path) -> None:
        self.desk = Desk()
        self.coordinator = Coordinator(self.desk)
        self.desk.rooms.transactions = self.coordinator
        clock = self.desk.clock
        clock.hold(NOW)
        self.desk.ask(
            CreateTopicsRequest(
                topics=[CreateTopicsRequest.CreatableTopic(name="t", num_partitions=2, replication_factor=1)]
            ),
            7,
        )
        self.handles = []
        for index in range(2):
            handle = PartitionHandle(index, PartitionLog.open(directory / f"t-{index}", clock, VERIFYING))
            handle.lead(1, 0, 1, 1)
            self.desk.replicas.partitions["t", index] = handle
            self.handles.append(handle)

    def log(self, index: int = 0) -> PartitionLog:
        log = self.handles[index].log
        assert log is not None
        return log

    def produce(
        self, *parts: tuple[int, bytes], version: int = 11, acks: int = -1
    ) -> list[ProduceResponse.PartitionProduceResponse]:
        data = [ProduceRequest.PartitionProduceData(index=index, records=records) for index, records in parts]
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=data)
        request = ProduceRequest(transactional_id="tx", acks=acks, timeout_ms=1000, topic_data=[topic])
        response: ProduceResponse = self.desk.ask(request, version)
        return response.responses[0].partition_responses

    def end(self, **how: Any) -> int:
        marker = {"producer_id": 7, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0, **how}
        topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
        request = WriteTxnMarkersRequest(markers=[WriteTxnMarkersRequest.WritableTxnMarker(topics=[topic], **marker)])
        response: WriteTxnMarkersResponse = self.desk.ask(request, 2)
        return response.markers[0].topics[0].partitions[0].error_code


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def tx(sequence: int, value: bytes = b"v", *, producer: int = 7, epoch: int = 0, codec: int = 0) -> bytes:
    return build_batch(
        [Record(timestamp=NOW, key=b"k", value=value)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
        codec=codec,
    )


@pytest.mark.parametrize(("version", "adds"), [(9, False), (11, False), (12, True)])
@pytest.mark.parametrize("size", [1, 100_000, 300_000])
@pytest.mark.parametrize("codec", [0, 1])
def test_a_known_partition_is_appended_to(place: Place, version: int, adds: bool, size: int, codec: int) -> None:
    answers = place.produce((0, tx(0, b"x" * size, codec=codec)), (1, tx(0)), version=version)
    assert [(one.error_code, one.base_offset) for one in answers] == [(0, 0), (0, 0)]
    assert place.coordinator.asked == [("tx", 7, 0, [("t", 0), ("t", 1)], adds)]
    (record,) = iterate(place.log().read(0))
    assert record.value == b"x" * size
    assert place.log().last_stable_offset == 0


def test_the_next_transaction_begins_behind_the_last_ones_markers(place: Place) -> None:
    """A client that is told of the end before the markers are written may send at once."""
    assert place.produce((0, tx(0)), version=12)[0].error_code == 0

    def marker() -> None:
        place.desk.rooms.markers.write_marker("t", 0, 7, 1, commit=True, coordinator_epoch=0, transaction_version=2)

    place.coordinator.before = marker
    (answer,) = place.produce((0, tx(0, epoch=1)), version=12)
    assert (answer.error_code, answer.base_offset) == (0, 2)


def test_what_has_begun_is_not_asked_about_again(place: Place) -> None:
    place.produce((0, tx(0)))
    answers = place.produce((0, tx(1)), (1, tx(0)))
    assert [one.error_code for one in answers] == [0, 0]
    assert place.coordinator.asked[-1][3] == [("t", 1)]


@pytest.mark.parametrize(
    ("told", "version", "error", "words"),
    [
        (Err.TRANSACTION_ABORTABLE, 10, Err.INVALID_TXN_STATE, True),
        (Err.TRANSACTION_ABORTABLE, 11, Err.TRANSACTION_ABORTABLE, False),
        (Err.INVALID_TXN_STATE, 12, Err.INVALID_TXN_STATE, True),
        (Err.PRODUCER_FENCED, 9, Err.INVALID_PRODUCER_EPOCH, False),
        (Err.INVALID_PRODUCER_EPOCH, 12, Err.INVALID_PRODUCER_EPOCH, False),
        (Err.INVALID_PRODUCER_ID_MAPPING, 12, Err.INVALID_PRODUCER_ID_MAPPING, False),
        (Err.CONCURRENT_TRANSACTIONS, 11, Err.NOT_ENOUGH_REPLICAS, True),
        (Err.CONCURRENT_TRANSACTIONS, 12, Err.CONCURRENT_TRANSACTIONS, False),
        (Err.NOT_COORDINATOR, 12, Err.NOT_ENOUGH_REPLICAS, True),
        (Err.COORDINATOR_LOAD_IN_PROGRESS, 9, Err.NOT_ENOUGH_REPLICAS, True),
        (Err.COORDINATOR_NOT_AVAILABLE, 12, Err.NOT_ENOUGH_REPLICAS, True),
    ],
)
def test_what_the_coordinator_answers_reaches_the_producer(
    place: Place, told: int, version: int, error: int, words: bool
) -> None:
    place.coordinator.errors = {("t", 0): told}
    first, second = place.produce((0, tx(0)), (1, tx(0)), version=version)
    assert (first.error_code, first.error_message is not None, first.base_offset) == (error, words, -1)
    assert (second.error_code, second.base_offset) == (0, 0)
    assert place.log().log_end_offset == 0


def test_a_marker_that_comes_meanwhile_wins(place: Place) -> None:
    def abort() -> None:
        place.desk.rooms.markers.write_marker("t", 0, 7, 0, commit=False, coordinator_epoch=0, transaction_version=1)

    place.coordinator.meanwhile = abort
    (answer,) = place.produce((0, tx(0)))
    assert answer.error_code == Err.INVALID_TXN_STATE
    assert place.log().log_end_offset == 1  # the marker alone
    place.coordinator.meanwhile = lambda: None
    (answer,) = place.produce((0, tx(0)))
    assert (answer.error_code, answer.base_offset) == (0, 1)


def test_a_fence_that_comes_meanwhile_wins(place: Place) -> None:
    def fence() -> None:
        place.desk.rooms.markers.write_marker("t", 0, 7, 1, commit=False, coordinator_epoch=0, transaction_version=2)

    place.produce((0, tx(0)))
    assert place.end() == 0
    place.coordinator.meanwhile = fence
    (answer,) = place.produce((0, tx(1)))
    assert answer.error_code == Err.INVALID_TXN_STATE
    place.coordinator.meanwhile = lambda: None
    (answer,) = place.produce((0, tx(1)))
    assert answer.error_code == Err.INVALID_PRODUCER_EPOCH


def test_a_topic_that_goes_meanwhile(place: Place) -> None:
    place.coordinator.meanwhile = place.handles[0].retire
    (answer,) = place.produce((0, tx(0)))
    assert answer.error_code == Err.UNKNOWN_TOPIC_OR_PARTITION


def test_a_silent_producer_is_hung_up_on_when_it_is_refused(place: Place) -> None:
    place.coordinator.errors = {("t", 0): Err.TRANSACTION_ABORTABLE}
    with pytest.raises(AssertionError, match="acks=0"):
        place.produce((0, tx(0)), acks=0)


def test_two_producers_in_one_request(place: Place) -> None:
    answers = place.produce((0, tx(0)), (1, tx(0, producer=8)))
    assert [one.error_code for one in answers] == [49, 49]
    assert place.coordinator.asked == []


# ---- markers ----


class Keeper:
    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.error = Err.NONE

    def before_marker(self, partition: int) -> int:
        self.heard.append(("before", partition))
        return self.error

    def after_marker(self, partition: int, producer_id: int, *, commit: bool) -> None:
        self.heard.append(("after", partition, producer_id, commit))


def test_a_marker_in_kafkas_bytes(place: Place) -> None:
    assert place.end(transaction_result=True, coordinator_epoch=3) == 0
    data = place.log().read(0)
    (header,) = batches(data)
    assert (header.attributes, header.producer_id, header.producer_epoch, header.base_sequence) == (0x30, 7, 0, -1)
    (record,) = iterate(data)
    assert (record.key, record.value) == (b"\0\0\0\1", b"\0\0\0\0\0\3")
    assert len(data) == 78


def test_epochs_of_markers_are_the_logs_affair(place: Place) -> None:
    assert place.end(producer_epoch=3, coordinator_epoch=2) == 0
    assert place.end(producer_epoch=2, coordinator_epoch=2) == Err.INVALID_PRODUCER_EPOCH
    assert place.end(producer_epoch=3, coordinator_epoch=1) == Err.TRANSACTION_COORDINATOR_FENCED
    assert place.log().log_end_offset == 1


def test_a_marker_for_nobody(place: Place) -> None:
    del place.desk.replicas.partitions["t", 0]
    assert place.end() == Err.UNKNOWN_TOPIC_OR_PARTITION
    place.desk.replicas.partitions["t", 0] = place.handles[0]
    place.handles[0].follow(2, 1)
    assert place.end() == Err.NOT_LEADER_OR_FOLLOWER


def test_whose_state_lies_in_the_partition_is_told(place: Place) -> None:
    keeper = Keeper()
    place.desk.rooms.markers.tell("t", keeper)
    assert place.end(transaction_result=True) == 0
    assert keeper.heard == [("before", 0), ("after", 0, 7, True)]
    keeper.error = Err.NOT_LEADER_OR_FOLLOWER
    assert place.end() == Err.NOT_LEADER_OR_FOLLOWER
    assert keeper.heard[2:] == [("before", 0)]
    keeper.error = Err.NONE
    assert place.end(coordinator_epoch=-1) == Err.TRANSACTION_COORDINATOR_FENCED  # no marker, nothing to tell
    assert keeper.heard[3:] == [("before", 0)]


def test_a_marker_is_told_when_the_replicas_have_it(place: Place) -> None:
    place.handles[0].lead(1, 1, 2, 1, (2,))

    async def write() -> list[Any]:
        markers = Markers(place.desk.replicas.find, place.desk.clock)
        told = markers.write_marker("t", 0, 7, 0, commit=True, coordinator_epoch=0, transaction_version=1)
        await asyncio.sleep(0)
        seen: list[Any] = [told.done(), place.log().log_end_offset]
        place.handles[0].follower_fetched(2, 1)
        return [*seen, await told]

    assert asyncio.run(write()) == [False, 1, 0]


def test_producers_are_described(place: Place) -> None:
    place.produce((0, tx(0)))
    topics = [
        DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 1, 5]),
        DescribeProducersRequest.TopicRequest(name="u", partition_indexes=[0]),
    ]
    response: DescribeProducersResponse = place.desk.ask(DescribeProducersRequest(topics=topics), 0)
    found, empty, missing = response.topics[0].partitions
    (state,) = found.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (7, 0, 0)
    assert (state.last_timestamp, state.coordinator_epoch, state.current_txn_start_offset) == (NOW, -1, 0)
    assert (empty.error_code, empty.active_producers) == (0, [])
    assert (missing.error_code, response.topics[1].partitions[0].error_code) == (3, 3)
    assert place.end() == 0
    response = place.desk.ask(DescribeProducersRequest(topics=topics), 0)
    (state,) = response.topics[0].partitions[0].active_producers
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (0, -1)
