"""The directories that will decay, made by a real broker: every file kind, several segments, stopped and killed.

clean     stopped
killed    filled, stopped, filled on, killed: its recovery points lie in the middle of its logs
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from bench import frames
from bench.campaigns.decay.patient import Patient
from bench.client import Client
from kbroker._core.record.records import Record, build_batch
from kbroker.protocol import codec, messages

NOW_MS = int(time.time() * 1000) // 1_000_000 * 1_000_000
SMALL = {"segment.ms": "1000", "index.interval.bytes": "150", "retention.ms": "-1"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (2, SMALL),
    "compacted": (1, {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
    "producers": (1, SMALL),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime", "index.interval.bytes": "150"}),
    "trimmed": (1, SMALL),
    "large": (1, {"segment.bytes": "1048576", "retention.ms": "-1"}),
}
PARTITIONS = [(topic, index) for topic, (count, _) in TOPICS.items() for index in range(count)]
PRODUCED: set[bytes] = set()  # every value that stands in a template, also where it was deleted or compacted since
_SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "600",
    "log.cleaner.backoff.ms": "20",
    "log.initial.task.delay.ms": "86400000",
}
# Version 0, producer 9, first and last offset, last stable offset: nobody writes it yet, everybody may find one.
_ABORTED = bytes(2) + b"".join(number.to_bytes(8, "big") for number in (9, 0, 1, 0))


def make(directory: Path) -> dict[str, Path]:
    """The templates, by name."""
    clean, killed = directory / "clean", directory / "killed"
    patient = Patient(clean, _SETTINGS)
    with Client(patient.port) as client:
        _create(client)
        _fill(client, 0)
        _trim(client, "trimmed", 7)
    _await_compaction(clean)
    patient.stop()
    _leave_aborted(clean)
    shutil.copytree(clean, killed)
    patient = Patient(killed, {**_SETTINGS, "log.cleaner.enable": "false"})
    with Client(patient.port) as client:
        _fill(client, 1)
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
    for topic, partition in PARTITIONS:
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
    """Until the renamed originals are there: of the small segments most have become one."""
    deadline = time.monotonic() + 30
    while not any((data_dir / "compacted-0").glob("*.deleted")):
        if time.monotonic() > deadline:
            raise AssertionError("nothing was compacted in 30 s")
        time.sleep(0.02)


def _leave_aborted(data_dir: Path) -> None:
    segment = min((data_dir / "producers-0").glob("*.log"))
    segment.with_suffix(".txnindex").write_bytes(_ABORTED)
