"""The directories that will decay, made by a real broker: every file kind, several segments, stopped and killed.

clean     filled, stopped, compacted, stopped
killed    filled, stopped, filled on, killed: its recovery points lie in the middle of its logs, a transaction is open

Each step waits for the one before, so that two nurseries differ in their ids and their times, and in nothing else.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from bench import frames
from bench.campaigns.decay import payers
from bench.campaigns.decay.patient import Patient
from bench.client import Client
from kbroker._core.record.records import Record, build_batch
from kbroker.protocol import codec, messages
from kbroker.storage.checkpoints import CLEANER_OFFSETS, read_offsets

NOW_MS = int(time.time() * 1000) // 1_000_000 * 1_000_000
SMALL = {"segment.ms": "1000", "index.interval.bytes": "150", "retention.ms": "-1"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (2, SMALL),
    "compacted": (1, {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
    "producers": (1, SMALL),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime", "index.interval.bytes": "150"}),
    "trimmed": (1, SMALL),
    "large": (1, {"segment.bytes": "1048576", "retention.ms": "-1"}),
    payers.TOPIC: (1, {"internal.segment.bytes": "900", "index.interval.bytes": "150", "retention.ms": "-1"}),
}
PARTITIONS = [(topic, index) for topic, (count, _) in TOPICS.items() for index in range(count)]
TRANSACTIONS, OFFSETS = ("__transaction_state", 0), ("__consumer_offsets", 0)
INTERNAL = [OFFSETS, TRANSACTIONS]
WITH_MARKERS = [(payers.TOPIC, 0), OFFSETS]  # the transaction coordinator writes to them by itself
PRODUCED: set[bytes] = set()  # every value that stands in a template, also where it was deleted or compacted since
_SETTINGS = {
    "log.initial.task.delay.ms": "86400000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.max.timeout.ms": str(payers.PATIENCE_MS),
}
AT_REST = {**_SETTINGS, "log.cleaner.enable": "false"}
_MAKING = {"metadata.log.max.record.bytes.between.snapshots": "600"}
_COMPACTING = {**_SETTINGS, **_MAKING, "log.cleaner.backoff.ms": "20"}


def make(directory: Path) -> dict[str, Path]:
    """The templates, by name."""
    clean, killed = directory / "clean", directory / "killed"
    patient = Patient(clean, {**AT_REST, **_MAKING})
    with Client(patient.port) as client:
        _create(client)
        _fill(client, 0)
        PRODUCED.update(payers.pay(client, 0, NOW_MS))
        _trim(client, "trimmed", 7)
    patient.stop()
    patient = Patient(clean, _COMPACTING)
    _await_compaction(clean)
    patient.stop()
    shutil.copytree(clean, killed)
    patient = Patient(killed, {**AT_REST, **_MAKING})
    with Client(patient.port) as client:
        _fill(client, 1)
        PRODUCED.update(payers.pay(client, 1, NOW_MS))
        PRODUCED.update(payers.leave_open(client, NOW_MS))
    patient.kill()
    return {"clean": clean, "killed": killed}


def _create(client: Client) -> None:
    topic = messages.CreateTopicsRequest.CreatableTopic
    for name, (count, settings) in TOPICS.items():  # one by one: a batch of the metadata log each
        wanted = topic(name=name, num_partitions=count, replication_factor=1)
        wanted.configs = [
            messages.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()
        ]
        answer = client.ask(messages.CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7)
        assert isinstance(answer, messages.CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer


def _fill(client: Client, turn: int) -> None:
    """Fifteen batches a partition; those of the small topics roll every third one by their timestamps."""
    for topic, partition in [key for key in PARTITIONS if key[0] != payers.TOPIC]:
        for number in range(15):
            serial = turn * 15 + number
            records = [
                Record(
                    timestamp=NOW_MS + serial * 400 + i,
                    key=b"key-%d" % ((serial * 3 + i) % 11),
                    value=b"%s/%d/%d/%d " % (topic.encode(), partition, serial, i)
                    + b"x" * (80_000 if topic == "large" else 40),
                    headers=(("h", b"v"),),
                )
                for i in range(3)
            ]
            PRODUCED.update(record.value for record in records if record.value is not None)
            sequence: dict[str, Any] = {}
            if topic == "producers":
                sequence = {"producer_id": 100 + number % 3, "producer_epoch": 0, "base_sequence": (serial // 3) * 3}
            batch = build_batch(records, codec=(0, 1, 2, 3, 4)[number % 5] if topic == "plain" else 0, **sequence)
            assert produce(client, topic, partition, batch) == 0


def produce(client: Client, topic: str, partition: int, batch: bytes) -> int:
    """The error code: of a partition that is damaged it may be any but UNKNOWN_SERVER_ERROR."""
    answer = client.exchange(frames.produce(topic, partition, batch))
    _, said = codec.decode_response(messages.ProduceResponse, frames.PRODUCE_VERSION, answer)
    return said.responses[0].partition_responses[0].error_code


def _trim(client: Client, topic: str, offset: int) -> None:
    request = messages.DeleteRecordsRequest(timeout_ms=30_000)
    asked = messages.DeleteRecordsRequest.DeleteRecordsTopic(name=topic)
    asked.partitions = [messages.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)]
    request.topics = [asked]
    answer = client.ask(request, 2)
    assert isinstance(answer, messages.DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].error_code == 0, answer


def _await_compaction(data_dir: Path) -> None:
    """Until all that can be is compacted: up to the segment that is written to."""
    last = max(int(path.stem) for path in (data_dir / "compacted-0").glob("*.log"))
    checkpoint = data_dir / CLEANER_OFFSETS
    deadline = time.monotonic() + 60
    while not checkpoint.exists() or read_offsets(checkpoint).get(("compacted", 0), 0) < last:
        if time.monotonic() > deadline:
            raise AssertionError("not everything was compacted in a minute")
        time.sleep(0.02)
