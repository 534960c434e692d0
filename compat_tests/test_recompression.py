"""`compression.type`: the same batches in, and in the files the same batches: boundaries, offsets, timestamps, records.

Two compressors need not agree on bytes, so sizes and checksums are left out.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.harness import Broker, Results, compare
from compat_tests.raw.talk import Talk, Topic
from compat_tests.until import until
from kbroker._core.record.records import Record, batches, build_batch, iterate

_CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


def _sent(now_ms: int) -> list[bytes]:
    """Batches of every codec: one record and many, times out of order, headers, nulls, an idempotent producer."""
    found = []
    for codec in range(5):
        for number, count in enumerate((1, 7, 200)):
            records = [
                Record(
                    timestamp=now_ms + (i * 37) % 100 - 50,
                    key=None if i % 5 == 4 else b"key-%d" % i,
                    value=None if i % 7 == 3 else b"value %d " % i * 20,
                    headers=(("h", b"%d" % i), ("none", None)) if i % 3 == 0 else (),
                )
                for i in range(count)
            ]
            known: dict[str, Any] = (
                {"producer_id": 9000 + codec, "producer_epoch": 0, "base_sequence": 0} if number == 2 else {}
            )
            found.append(build_batch(records, codec=codec, **known))
    return found


def _stored(directory: Path, now_ms: int, *, stamped: bool) -> list[Any]:
    told = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for one in batches(data):
            records = [
                [r.offset, 0 if stamped else r.timestamp - now_ms, r.key, r.value, list(r.headers)]
                for r in iterate(data[one.position : one.position + one.size])
            ]
            times = None if stamped else [one.base_timestamp - now_ms, one.max_timestamp - now_ms]
            producer = [one.producer_id, one.producer_epoch, one.base_sequence]
            head = [one.base_offset, one.last_offset, one.attributes, one.records_count, times, producer]
            told.append([path.name, head, records])
    return told


def test_recompressed_batches_are_the_same_in_the_files(brokers: dict[str, Broker], results: Results) -> None:
    now_ms = int(time.time() * 1000)

    def run(broker: Any) -> Any:
        talk = Talk(broker.bootstrap, "recompression")
        topics: dict[str, Topic] = {}
        for kind in _CODECS:
            topics[kind] = talk.topic(configs={"compression.type": kind})
            topics[f"{kind}, stamped"] = talk.topic(
                configs={"compression.type": kind, "message.timestamp.type": "LogAppendTime"}
            )
        for topic in topics.values():
            talk.append(topic, *_sent(now_ms))
        live = talk.topic()  # the setting changes between two batches
        for kind in ("zstd", "producer", "gzip"):
            talk.append(live, _sent(now_ms)[1])
            change = {"name": "compression.type", "config_operation": 0, "value": kind}
            asked = {"resource_type": 2, "resource_name": live.name, "configs": [change]}
            answer = talk.quietly("IncrementalAlterConfigs", 1, {"resources": [asked]})
            assert answer["responses"][0]["error_code"] == 0, answer
            _until_described(talk, live, kind)
        talk.append(live, _sent(now_ms)[1])
        talk.close()
        topics["live"] = live
        return {
            label: _stored(broker.data_directory / f"{topic.name}-0", now_ms, stamped="stamped" in label)
            for label, topic in topics.items()
        }

    compare(results, "data directory", "recompressed batches are the same in the files", brokers, run)


def _until_described(talk: Talk, topic: Topic, kind: str) -> None:
    """Apache answers before the change is in effect."""
    asked = {"resource_type": 2, "resource_name": topic.name, "configuration_keys": ["compression.type"]}

    def described() -> bool:
        answer = talk.quietly("DescribeConfigs", 4, {"resources": [asked]})
        return bool(answer["results"][0]["configs"][0]["value"] == kind)

    until(described, WAIT_SECONDS)
