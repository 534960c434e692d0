from __future__ import annotations

from pathlib import Path

import pytest

from kbroker._core.errors import Err
from kbroker._core.partitions import PartitionHandle
from kbroker.protocol.messages.k01_fetch import FetchRequest, FetchResponse
from kbroker.tests.unit.core.api.given import (
    Node,
    ask,
    batch,
    fetch_reply,
    fetch_request,
    measures_memory,
    of,
    only,
    resident_bytes,
    topic_id,
    values_of,
)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.topic("t", partitions=2)
    return node


def offsets(partition: FetchResponse.PartitionData) -> tuple[int, int, int]:
    return partition.high_watermark, partition.last_stable_offset, partition.log_start_offset


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads_what_was_produced(node: Node, version: int) -> None:
    node.produce([(0, batch(b"a", b"b")), (1, batch(b"c"))])
    response = node.fetch([of("t", ask(0), ask(1))], version)
    assert (response.throttle_time_ms, response.error_code, response.session_id) == (0, 0, 0)
    (topic,) = response.responses
    assert topic.topic == ("t" if version < 13 else "")
    assert topic.topic_id == (topic_id("t") if version >= 13 else bytes(16))
    assert [values_of(p.records) for p in topic.partitions] == [[b"a", b"b"], [b"c"]]
    first = topic.partitions[0]
    assert (first.error_code, first.high_watermark, first.last_stable_offset) == (0, 2, 2)
    assert first.log_start_offset == (0 if version >= 5 else -1)
    assert (first.aborted_transactions, first.preferred_read_replica) == (None, -1)
    assert response.node_endpoints == []


def test_whole_batches_from_the_one_that_holds_the_offset(node: Node) -> None:
    node.produce([(0, batch(b"a", b"b"))])
    node.produce([(0, batch(b"c", b"d"))])
    assert values_of(only(node.fetch([of("t", ask(offset=1))])).records) == [b"a", b"b", b"c", b"d"]
    assert values_of(only(node.fetch([of("t", ask(offset=2))])).records) == [b"c", b"d"]


def test_the_end_of_the_log_is_empty_and_no_error(node: Node) -> None:
    node.produce([(0, batch(b"a"))])
    partition = only(node.fetch([of("t", ask(offset=1))]))
    assert (partition.error_code, partition.records, offsets(partition)) == (0, b"", (1, 1, 0))


@pytest.mark.parametrize("offset", [2, 99, -1, -5])
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_outside_the_log_is_out_of_range_without_offsets(node: Node, offset: int, isolation_level: int) -> None:
    node.produce([(0, batch(b"a"))])
    partition = only(node.fetch([of("t", ask(offset=offset))], isolation_level=isolation_level, max_wait_ms=500))
    assert (partition.error_code, offsets(partition)) == (Err.OFFSET_OUT_OF_RANGE, (-1, -1, -1))
    assert (partition.records, partition.aborted_transactions) == (b"", None)


def test_unknown_topics_and_partitions(node: Node) -> None:
    by_name = node.fetch([of("x", ask()), of("t", ask(7))], 12)
    assert [t.partitions[0].error_code for t in by_name.responses] == [3, 3]
    by_id = node.fetch([of("x", ask()), of("t", ask(7))], 13)
    assert [t.partitions[0].error_code for t in by_id.responses] == [100, 3]
    partition = by_id.responses[0].partitions[0]
    assert (offsets(partition), partition.aborted_transactions, partition.records) == ((-1, -1, -1), [], b"")


def test_at_least_one_batch_comes_however_small_the_limits(node: Node) -> None:
    node.produce([(0, batch(b"a")), (1, batch(b"b"))])
    node.produce([(0, batch(b"c"))])
    response = node.fetch([of("t", ask(0, max_bytes=1), ask(1, max_bytes=1))], max_bytes=1)
    assert [values_of(p.records) for p in response.responses[0].partitions] == [[b"a"], []]
    assert offsets(response.responses[0].partitions[1]) == (1, 1, 0)


def test_the_favour_goes_to_the_first_partition_with_records(node: Node) -> None:
    node.produce([(1, batch(b"b"))])
    response = node.fetch([of("t", ask(0, max_bytes=1), ask(1, max_bytes=1))], max_bytes=1)
    assert [values_of(p.records) for p in response.responses[0].partitions] == [[], [b"b"]]


def test_max_bytes_is_shared_by_the_partitions(node: Node) -> None:
    records = batch(b"x" * 100)
    node.produce([(0, records), (1, records)])
    response = node.fetch([of("t", ask(0), ask(1))], max_bytes=len(records) + 10)
    assert [len(p.records or b"") for p in response.responses[0].partitions] == [len(records), 0]


def test_the_brokers_own_limit_caps_max_bytes(tmp_path: Path) -> None:
    node = Node(tmp_path, fetch_max_bytes=1)
    node.topic("t")
    node.produce([(0, batch(b"a"))])
    node.produce([(0, batch(b"b"))])
    assert values_of(only(node.fetch([of("t", ask())])).records) == [b"a"]


@pytest.mark.parametrize("fields", [{"max_bytes": -1}, {}])
def test_negative_limits_are_the_servers_error(node: Node, fields: dict[str, int]) -> None:
    limit = 1 << 20 if fields else -1
    assert only(node.fetch([of("t", ask(max_bytes=limit))], **fields)).error_code == -1


@pytest.mark.parametrize(("epoch", "error"), [(-1, 0), (-5, 0), (3, 0), (2, 74), (4, 75)])
@pytest.mark.parametrize("version", [9, 12, 16, 18])
def test_the_current_leader_epoch_is_checked(node: Node, version: int, epoch: int, error: int) -> None:
    node.topics["t"][0].lead(1, 3, 1, 1)
    response = node.fetch([of("t", ask(current_leader_epoch=epoch))], version)
    partition = only(response)
    assert partition.error_code == error
    points = version >= 16 and error == Err.FENCED_LEADER_EPOCH
    leader = partition.current_leader
    assert (leader.leader_id, leader.leader_epoch) == ((1, 3) if points else (-1, -1))
    assert [e.host for e in response.node_endpoints] == (["here"] if points else [])


@pytest.mark.parametrize(("version", "error"), [(10, 6), (11, 0), (12, 0)])
def test_a_follower_answers_consumers_that_know_about_it(node: Node, version: int, error: int) -> None:
    node.produce([(0, batch(b"a"))])
    node.topics["t"][0].follow(2, 1)
    assert only(node.fetch([of("t", ask())], version)).error_code == error


def test_a_partition_without_a_replica_here_points_at_its_leader(node: Node) -> None:
    handle = PartitionHandle(0)
    handle.follow(2, 4)
    node.topics["u"] = [handle]
    node.publish()
    response = node.fetch([of("u", ask())], 16, max_wait_ms=500)
    partition = only(response)
    assert (partition.error_code, partition.current_leader.leader_id) == (Err.NOT_LEADER_OR_FOLLOWER, 2)
    assert [e.host for e in response.node_endpoints] == ["there"]


def test_a_last_fetched_epoch_that_goes_on_elsewhere_diverges(node: Node) -> None:
    partition = node.topics["t"][0]
    node.produce([(0, batch(b"a", b"b"))])
    partition.lead(1, 2, 1, 1)
    node.produce([(0, batch(b"c"))])
    agreed = only(node.fetch([of("t", ask(offset=2, last_fetched_epoch=0))]))
    assert (agreed.diverging_epoch.epoch, values_of(agreed.records)) == (-1, [b"c"])
    diverged = only(node.fetch([of("t", ask(offset=3, last_fetched_epoch=0))], max_wait_ms=500))
    assert (diverged.error_code, diverged.records, diverged.aborted_transactions) == (0, b"", None)
    assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (0, 2)
    assert offsets(diverged) == (3, 3, 0)
    unknown = only(node.fetch([of("t", ask(offset=1, last_fetched_epoch=9))]))
    assert unknown.error_code == Err.OFFSET_OUT_OF_RANGE


def test_read_committed_has_a_list_of_aborted_transactions(node: Node) -> None:
    node.produce([(0, batch(b"a"))])
    partition = only(node.fetch([of("t", ask())], isolation_level=1))
    assert (values_of(partition.records), partition.aborted_transactions) == ([b"a"], [])


@pytest.mark.parametrize("version", [4, 12])
def test_another_isolation_level_is_the_servers_error(node: Node, version: int) -> None:
    response = node.fetch([of("t", ask())], version, isolation_level=7, max_wait_ms=500)
    assert response.error_code == (-1 if version >= 7 else 0)
    assert only(response).error_code == -1


@pytest.mark.parametrize(("epoch", "error"), [(-1, 6), (0, 75), (5, 75)])
@pytest.mark.parametrize("version", [11, 17])
def test_a_broker_that_is_no_replica_is_turned_away(node: Node, version: int, epoch: int, error: int) -> None:
    state = FetchRequest.ReplicaState(replica_id=5, replica_epoch=1) if version >= 15 else FetchRequest.ReplicaState()
    who = {"replica_state": state} if version >= 15 else {"replica_id": 5}
    node.produce([(0, batch(b"a"))])
    partition = only(node.fetch([of("t", ask(current_leader_epoch=epoch))], version, max_wait_ms=500, **who))
    assert (partition.error_code, partition.records) == (error, b"")


@pytest.mark.parametrize("version", [4, 12, 13])
def test_a_topic_may_come_in_several_pieces(node: Node, version: int) -> None:
    node.topic("u")
    node.produce([(0, batch(b"a")), (1, batch(b"b"))])
    response = node.fetch([of("t", ask(0)), of("u", ask(0)), of("t", ask(1)), of("x", ask(0), ask(1))], version)
    assert [[p.partition_index for p in t.partitions] for t in response.responses] == [[0], [0], [1], [0, 1]]


def test_a_partition_named_twice_counts_once_as_named_last(node: Node) -> None:
    node.produce([(0, batch(b"a"))])
    node.produce([(0, batch(b"b"))])
    response = node.fetch([of("t", ask(0, 0), ask(1), ask(0, 1))])
    assert [(p.partition_index, values_of(p.records)) for p in response.responses[0].partitions] == [
        (0, [b"b"]),
        (1, []),
    ]


def test_counters_count(node: Node) -> None:
    records = batch(b"a", b"b")
    node.produce([(0, records)])
    node.fetch([of("t", ask())])
    assert node.topics["t"][0].counters == (len(records), len(records), 2)


class TestLongPolls:
    def park(self, node: Node, slot: int = 0, version: int = 12, **fields: object) -> None:
        settings: dict[str, object] = {"max_wait_ms": 500, "topics": [of("t", ask(0), ask(1))], **fields}
        topics = settings.pop("topics")
        assert isinstance(topics, list)
        assert node.send(fetch_request(topics, **settings), version, slot)[0] == "PARKED"

    def collect(self, node: Node, version: int = 12) -> tuple[int, FetchResponse]:
        found = node.calls.collect()
        assert found is not None
        return found[0], fetch_reply(found[1], version)

    @pytest.mark.parametrize("version", range(4, 19))
    def test_an_append_wakes_it(self, node: Node, version: int) -> None:
        self.park(node, 3, version)
        assert node.calls.collect() is None
        node.produce([(1, batch(b"a"))])
        slot, response = self.collect(node, version)
        assert slot == 3
        assert [values_of(p.records) for p in response.responses[0].partitions] == [[], [b"a"]]
        assert node.calls.parked == 0
        assert node.calls.wakes == 1

    def test_time_runs_out_and_it_is_answered_with_nothing(self, node: Node) -> None:
        self.park(node)
        node.clock.advance(499)
        assert node.calls.collect() is None
        node.clock.advance(1)
        _, response = self.collect(node)
        assert [p.error_code for p in response.responses[0].partitions] == [0, 0]

    def test_deadlines_are_answered_in_their_order(self, node: Node) -> None:
        for slot, wait in enumerate([300, 100, 500, 200, 400]):
            self.park(node, slot, max_wait_ms=wait)
        start = node.clock.monotonic_ms()
        for slot in [1, 3, 0, 4, 2]:
            node.clock.advance(node.calls.next_deadline_ms - node.clock.monotonic_ms())
            assert self.collect(node)[0] == slot
        assert node.clock.monotonic_ms() - start == 500
        assert node.calls.next_deadline_ms == -1

    def test_fewer_bytes_than_asked_for_do_not_wake_it(self, node: Node) -> None:
        records = batch(b"x" * 100)
        self.park(node, min_bytes=2 * len(records) + 1)
        node.produce([(0, records)])
        node.produce([(1, records)])
        assert node.calls.wakes == 0
        node.produce([(0, records)])
        assert node.calls.wakes == 1
        _, response = self.collect(node)
        assert [len(p.records or b"") for p in response.responses[0].partitions] == [2 * len(records), len(records)]

    def test_it_waits_on_when_its_own_limits_keep_the_bytes_away(self, node: Node) -> None:
        records = batch(b"x" * 100)
        topics = [of("t", ask(0, max_bytes=len(records)))]
        self.park(node, topics=topics, min_bytes=2 * len(records))
        node.produce([(0, records)])
        node.produce([(0, records)])
        assert node.calls.collect() is None
        assert node.calls.parked == 1
        node.clock.advance(500)
        _, response = self.collect(node)
        assert len(only(response).records or b"") == len(records)

    def test_one_append_wakes_all(self, node: Node) -> None:
        for slot in range(50):
            self.park(node, slot)
        node.produce([(0, batch(b"a"))])
        assert sorted(self.collect(node)[0] for _ in range(50)) == list(range(50))
        assert node.calls.collect() is None
        assert node.calls.wakes == 1

    def test_a_connection_that_went_away_is_forgotten(self, node: Node) -> None:
        self.park(node, 1)
        self.park(node, 2)
        node.calls.forget(1, generation=99)
        assert node.calls.parked == 2
        node.calls.forget(1)
        node.calls.forget(77)
        assert node.calls.parked == 1
        node.produce([(0, batch(b"a"))])
        assert self.collect(node)[0] == 2
        assert node.calls.collect() is None

    def test_a_woken_one_may_still_be_forgotten(self, node: Node) -> None:
        self.park(node, 1)
        node.produce([(0, batch(b"a"))])
        node.calls.forget(1)
        assert node.calls.collect() is None

    @pytest.mark.parametrize(("change", "error"), [("follow", 6), ("go_offline", 56), ("retire", 3)])
    def test_a_change_of_the_partition_ends_it(self, node: Node, change: str, error: int) -> None:
        self.park(node, version=10)
        partition = node.topics["t"][0]
        partition.follow(2, 1) if change == "follow" else getattr(partition, change)()
        _, response = self.collect(node, 10)
        assert response.responses[0].partitions[0].error_code == error

    def test_an_unknown_partition_beside_a_known_one_does_not_end_it(self, node: Node) -> None:
        self.park(node, topics=[of("nosuch", ask()), of("t", ask(0), ask(9))])
        node.produce([(0, batch(b"a"))])
        _, response = self.collect(node)
        assert [(t.topic, [p.error_code for p in t.partitions]) for t in response.responses] == [
            ("nosuch", [3]),
            ("t", [0, 3]),
        ]

    @pytest.mark.parametrize(
        "fields", [{"min_bytes": 0}, {"max_wait_ms": 0}, {"topics": []}, {"topics": [of("nosuch", ask())]}]
    )
    def test_there_is_nothing_to_wait_for(self, node: Node, fields: dict[str, object]) -> None:
        settings: dict[str, object] = {"max_wait_ms": 500, "topics": [of("t", ask())], **fields}
        topics = settings.pop("topics")
        assert isinstance(topics, list)
        assert node.send(fetch_request(topics, **settings), 12)[0] == "READY"

    def test_it_outlives_the_table_it_was_asked_with(self, node: Node) -> None:
        self.park(node, topics=[of("t", ask(0))])
        gone = node.topics.pop("t")
        node.publish()
        for partition in gone:
            partition.retire()
        _, response = self.collect(node)
        assert (response.responses[0].topic, only(response).error_code) == ("t", 3)

    def test_too_much_to_wait_for_is_answered_at_once(self, node: Node) -> None:
        asks = [ask(index % 2) if index < 2 else ask(index) for index in range(100_000)]
        outcomes = [node.send(fetch_request([of("t", *asks)], max_wait_ms=500), 12, slot)[0] for slot in range(4)]
        assert outcomes == ["PARKED", "PARKED", "READY", "READY"]
        node.clock.advance(500)
        answered = [node.calls.collect() or (None, b"") for _ in range(2)]
        assert sorted(slot for slot, _ in answered) == [0, 1]
        assert node.send(fetch_request([of("t", *asks)], max_wait_ms=500), 12)[0] == "PARKED"

    def test_more_partitions_than_a_request_may_name_close(self, node: Node) -> None:
        asks = [ask(index) for index in range(100_001)]
        outcome, _, reason = node.send(fetch_request([of("t", *asks)]), 12)
        assert (outcome, reason) == ("CLOSE", "Fetch names too many partitions")

    def test_a_node_that_stops_drops_what_waits(self, node: Node) -> None:
        self.park(node)
        del node.calls
        node.topics["t"][0].retire()


@measures_memory
@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_long_unknown_name_is_not_kept_for_each_of_its_partitions(node: Node, session_epoch: int) -> None:
    # 600 kB that would become 650 MB.
    asks = [ask(index) for index in range(20_000)]
    request = fetch_request([of("t", ask(0)), of("n" * 32_767, *asks)], max_wait_ms=60_000, session_epoch=session_epoch)
    before = resident_bytes()
    outcome, _, _ = node.send(request, 11)
    assert outcome == "PARKED"
    assert resident_bytes() - before < 64 << 20
    node.produce([(0, batch(b"a"))])
    collected = node.calls.collect()
    assert collected is not None
    known, unknown = fetch_reply(collected[1], 11).responses
    assert values_of(known.partitions[0].records) == [b"a"]
    assert (unknown.topic, len(unknown.partitions)) == ("n" * 32_767, 20_000)
    assert {partition.error_code for partition in unknown.partitions} == {Err.UNKNOWN_TOPIC_OR_PARTITION}
    assert resident_bytes() - before < 64 << 20


@measures_memory
def test_a_parked_request_keeps_no_more_memory_than_it_needs(node: Node) -> None:
    # A large request leaves its memory to the next one, which may wait for long.
    big = fetch_request([of("t", *(ask(index) for index in range(10_000)))])
    before = resident_bytes()
    for slot in range(64):
        assert node.send(big, 11, slot)[0] == "READY"
        assert node.send(fetch_request([of("t", ask(0))], max_wait_ms=60_000), 11, slot)[0] == "PARKED"
    assert resident_bytes() - before < 32 << 20


def test_records_in_a_later_segment_do_not_wait_for_min_bytes(tmp_path: Path) -> None:
    # An answer ends where its segment ends; what follows would not make it longer however long it waited.
    node = Node(tmp_path)
    (partition,) = node.topic("t")
    node.produce([(0, batch(b"a"))])
    assert partition.log is not None
    partition.log.roll()
    node.produce([(0, batch(b"b" * 1000))])
    first = only(node.fetch([of("t", ask())], max_wait_ms=60_000, min_bytes=1000))
    assert values_of(first.records) == [b"a"]
    second = only(node.fetch([of("t", ask(offset=1))], max_wait_ms=60_000, min_bytes=1000))
    assert values_of(second.records) == [b"b" * 1000]
