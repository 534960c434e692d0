"""__transaction_state: the same records on both brokers, and either one ends what the other had open or was ending."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.confluent import ConfluentClient
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka, run_tool
from compat_tests.raw.commit_cases import fetch
from compat_tests.raw.group_cases import a_group
from compat_tests.raw.talk import Talk, Topic, produce_body
from compat_tests.raw.transactional_cases import NEW, OLD, Producer, offsets
from compat_tests.raw.transactions import batch
from compat_tests.until import until
from kbroker._core.clock import BrokerClock
from kbroker._core.record.records import Record, batches, build_batch
from kbroker.coordinator.frames import encode_record
from kbroker.coordinator.txn.transaction import State, Transaction

Running = KBroker | ApacheKafka
STATE = "__transaction_state-0"
ONE_PARTITION = ("--config", "transaction.state.log.num.partitions=1")


def _kbroker(data_directory: Path) -> KBroker:
    return KBroker.on_data_directory(data_directory, options=ONE_PARTITION)


def _apache(data_directory: Path) -> ApacheKafka:
    return ApacheKafka.on_data_directory(data_directory)


def _new(kind: str, directory: Path) -> Running:
    return KBroker(directory, options=ONE_PARTITION) if kind == "kbroker" else ApacheKafka(directory)


REOPEN: dict[str, Callable[[Path], Running]] = {"kbroker": _kbroker, "apache": _apache}


def _write(talk: Talk, producer: Producer, topic: Topic, partition: int, version: int) -> None:
    """A batch of the transaction; from version 12 on that adds the partition."""
    records = batch(producer.producer_id, producer.epoch, 0)
    body = produce_body(topic, records, partition=partition, transactional_id=producer.transactional_id)

    def done() -> bool:
        told = talk.quietly("Produce", version, body)["responses"][0]["partition_responses"][0]
        assert told["error_code"] in (0, 51), told
        return bool(told["error_code"] == 0)

    until(done, WAIT_SECONDS)


def _life(talk: Talk) -> None:
    """Transactions of both kinds, ended in every way but by age."""
    topic, group = talk.topic(2), a_group(talk)
    for number, (end, produce) in enumerate(((OLD, 11), (NEW, 12))):
        for commit in (True, False):
            one = Producer(talk)
            for _ in range(2):
                if end == OLD:
                    one.begin(topic, 0)
                _write(talk, one, topic, 0, produce)
                if end == OLD:
                    one.begin(topic, 1)
                _write(talk, one, topic, 1, produce)
                if end == OLD:
                    talk.quietly("AddOffsetsToTxn", 3, {**one.claim(), "group_id": group})
                talk.quietly(
                    "TxnOffsetCommit", 5 if end == NEW else 3, offsets(one, group, (topic.name, [0]), offset=number)
                )
                one.end(commit, end)
                one.init()
        one = Producer(talk)
        one.begin(topic, version=5 if end == NEW else 3)
        one.init()
        if end == NEW:
            one.end(commit=False, version=NEW)


def _dumped(broker: Running, topic: str, *options: str) -> list[str]:
    (segment,) = (broker.data_directory / topic).glob("*.log")
    result = run_tool("kafka-dump-log", "--print-data-log", *options, "--files", str(segment))
    assert result.exit_code == 0, result.err
    return result.lines


def _payloads(lines: list[str]) -> list[str]:
    """Keys and values of the records, without what depends on the time and on who began when."""
    found = []
    known: dict[str, str] = {}
    for line in lines:
        if "payload" not in line and "endTxnMarker" not in line:
            continue
        text = line[line.index("key") :] if "key" in line else line[line.index("endTxnMarker") :]
        text = re.sub(r"[Tt]imestamp(Ms)?\"?[=:]\d+", "then", text)
        text = re.sub(
            r"([pP]roducerId\"?[=:])(\d+)",
            lambda m: m.group(1) + known.setdefault(m.group(2), f"id{len(known)}"),
            text,
        )
        found.append(text)
    return found


def _places_sorted(text: str) -> str:
    """Java writes a transaction's partitions in the order of a hash map."""
    return re.sub(
        r"(transactionPartitions\":)\[(.*)\](?=,\"transactionLast)",
        lambda m: m.group(1) + "".join(sorted(m.group(2))),
        text,
    )


def test_the_records_of_a_life_are_the_same(java_tools: None, tmp_path: Path) -> None:
    told: dict[str, dict[str, list[str]]] = {}
    for kind in ("apache", "kbroker"):
        with _new(kind, tmp_path / kind) as broker:
            talk = Talk(broker.bootstrap, "life")
            _life(talk)
            talk.close()
        state = _payloads(_dumped(broker, STATE, "--transaction-log-decoder"))
        told[kind] = {
            "state": [_places_sorted(one) for one in state],
            "offsets": _payloads(_dumped(broker, "__consumer_offsets-0", "--offsets-decoder")),
            "batches": _batches(_dumped(broker, "__consumer_offsets-0")),
        }
    assert len(told["apache"]["state"]) > 30
    for what, theirs in told["apache"].items():
        ours = told["kbroker"][what]
        parted = [(one, other) for one, other in zip(ours, theirs, strict=False) if one != other]
        assert not parted, f"{what}: kbroker {parted[0][0]}\napache {parted[0][1]}"
        assert len(ours) == len(theirs)


def _batches(lines: list[str]) -> list[str]:
    """Of producers: which are transactional, which are markers, under which epoch and sequence."""
    wanted = r"producerEpoch: (\S+)|baseSequence: (\S+)|isTransactional: (\S+)|isControl: (\S+)|count: (\S+)"
    return [
        " ".join("".join(found) for found in re.findall(wanted, line))
        for line in lines
        if line.startswith("baseOffset") and "isTransactional: true" in line
    ]


@pytest.mark.parametrize(("fate", "version"), [("commit", OLD), ("commit", NEW), ("abort", NEW), ("new producer", OLD)])
@pytest.mark.parametrize(("first", "then"), [("kbroker", "apache"), ("apache", "kbroker"), ("kbroker", "kbroker")])
def test_a_transaction_in_flight_is_ended_by_the_other(
    *, java_tools: None, tmp_path: Path, first: str, then: str, fate: str, version: int
) -> None:
    """The first is killed with the transaction open: data, offsets and the state are in its directory."""
    broker = _new(first, tmp_path).start()
    talk = Talk(broker.bootstrap, "flight")
    topic, group = talk.topic(2), a_group(talk)
    one = Producer(talk)
    for partition in range(2):
        if version == OLD:
            one.begin(topic, partition)
        _write(talk, one, topic, partition, 12 if version == NEW else 11)
    if version == OLD:
        talk.quietly("AddOffsetsToTxn", 3, {**one.claim(), "group_id": group})
    talk.quietly("TxnOffsetCommit", 5 if version == NEW else 3, offsets(one, group, (topic.name, [0]), offset=17))
    talk.close()
    broker.kill()
    with REOPEN[then](broker.data_directory) as other:
        talk = Talk(other.bootstrap, "ended")
        one.talk = talk
        until(lambda: _told_by(talk, one) == "Ongoing", WAIT_SECONDS)
        assert _offset(talk, group, topic) == (-1, 88)
        if fate == "new producer":
            one.init()
        else:
            one.end(fate == "commit", version)
        committed = fate == "commit"
        until(lambda: _offset(talk, group, topic) == (17 if committed else -1, 0), WAIT_SECONDS)
        for partition in range(2):
            assert _readable(talk, topic, partition) == 2  # the record and the marker
        talk.close()
        if committed:
            with ConfluentClient(other.bootstrap) as client:
                assert len(client.consume(topic.name, 0, 0, 1, committed=True)) == 1


def _told_by(talk: Talk, one: Producer) -> str:
    asked = {"key_type": 1, "coordinator_keys": [one.transactional_id]}
    if talk.quietly("FindCoordinator", 4, asked)["coordinators"][0]["error_code"]:
        return ""
    return one.state()


def _offset(talk: Talk, group: str, topic: Topic) -> tuple[int, int]:
    """The committed offset and the error, for a reader that wants stable ones."""

    def ask() -> Any:
        return talk.quietly("OffsetFetch", 7, {**fetch(7, group, [(topic, [0])]), "require_stable": True})

    until(lambda: ask()["error_code"] == 0, WAIT_SECONDS)
    told = ask()["topics"][0]["partitions"][0]
    return told["committed_offset"], told["error_code"]


def _readable(talk: Talk, topic: Topic, partition: int) -> int:
    """The last stable offset."""
    body = {
        "replica_id": -1,
        "isolation_level": 1,
        "topics": [{"name": topic.name, "partitions": [{"partition_index": partition, "timestamp": -1}]}],
    }
    told = talk.quietly("ListOffsets", 7, body)["topics"][0]["partitions"][0]
    assert told["error_code"] == 0, told
    return int(told["offset"])


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("first", "then"), [("kbroker", "apache"), ("kbroker", "kbroker"), ("apache", "kbroker")])
def test_an_end_that_was_decided_is_finished_by_the_other(
    *, java_tools: None, tmp_path: Path, first: str, then: str, commit: bool
) -> None:
    """PrepareCommit or PrepareAbort is the last record of the log, and no marker has been written."""
    with _new(first, tmp_path) as broker:
        talk = Talk(broker.bootstrap, "decided")
        topic = talk.topic(2)
        one = Producer(talk)
        for partition in range(2):
            _write(talk, one, topic, partition, 12)
        talk.close()
    now_ms = BrokerClock().now_ms()
    decided = Transaction(
        producer_id=one.producer_id,
        epoch=one.epoch + 1,
        timeout_ms=60_000,
        state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
        places=frozenset((topic.name, partition) for partition in range(2)),
        start_ms=now_ms - 1000,
        update_ms=now_ms,
        previous_producer_id=one.producer_id,
        client_version=2,
    )
    key, value = encode_record(decided.record(one.transactional_id, 2))
    (segment,) = (broker.data_directory / STATE).glob("*.log")
    end = max(header.last_offset for header in batches(segment.read_bytes())) + 1
    with segment.open("ab") as file:
        record = Record(timestamp=now_ms, key=key, value=value)
        file.write(build_batch([record], base_offset=end, leader_epoch=0))
    (broker.data_directory / ".kafka_cleanshutdown").unlink()
    with REOPEN[then](broker.data_directory) as other:
        talk = Talk(other.bootstrap, "finished")
        one.talk = talk
        until(lambda: _told_by(talk, one) == ("CompleteCommit" if commit else "CompleteAbort"), WAIT_SECONDS)
        for partition in range(2):
            assert _readable(talk, topic, partition) == 2
        talk.close()
