"""Compaction: Apache's cleaner and ours, given the same segments, leave the same batches at the same offsets.

The segments are written by hand, so that they hold what clients cannot produce here yet: transactions, committed and
aborted. Each broker finds them after an unclean stop, so that Apache builds the transaction index it goes by.
"""

from __future__ import annotations

import re
import shutil
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from compat_tests.client import Client, ClientError, TopicPlan
from compat_tests.confluent import ConfluentClient
from compat_tests.harness import Results, Row
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka, run_tool
from compat_tests.until import until
from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import BatchHeader, Record, batches, build_batch, iterate
from kbroker.storage.checkpoints import CLEANER_OFFSETS, read_offsets
from kbroker.storage.log_dir import CLEAN_SHUTDOWN

_TOPIC = "compacted"
_PLAN = TopicPlan(
    configs={
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "1",
        "index.interval.bytes": "512",
    }
)
_CLEANER = {"log.cleaner.backoff.ms": "200", "replica.high.watermark.checkpoint.interval.ms": "500"}
_COORDINATOR, _ABORT, _COMMIT = 1, 0, 1
_HORIZON = 0x40
_WAIT_SECONDS = 60
_COMPLAINTS = re.compile(
    r"mismatch|corrupt|invalid|not ?valid|found log segment|isvalid: false|exception|error", re.IGNORECASE
)


@dataclass(frozen=True)
class Left:
    """A batch as compaction left it. When a horizon was set is the clock's business, that it was set is not."""

    header: tuple[int, ...]
    horizon: bool
    base_timestamp: int | None
    records: tuple[Record, ...]


def _left(header: BatchHeader, data: bytes) -> Left:
    attributes = header.attributes & ~_HORIZON
    fields = (header.base_offset, header.last_offset, header.leader_epoch, attributes, header.max_timestamp)
    producer = (header.producer_id, header.producer_epoch, header.base_sequence, header.records_count)
    records = tuple(iterate(data[header.position : header.position + header.size]))
    base_timestamp = None if header.delete_horizon else header.base_timestamp
    return Left((*fields, *producer), header.delete_horizon, base_timestamp, records)


def _segments(partition: Path) -> dict[str, list[Left]]:
    found = {}
    for path in sorted(partition.glob("*.log")):
        data = path.read_bytes()
        found[path.name] = [_left(header, data) for header in batches(data)]
    return found


def _txn_indexes(partition: Path) -> dict[str, bytes]:
    """Apache empties a transaction index that it has no more use for; here the file goes."""
    return {path.name: data for path in sorted(partition.glob("*.txnindex")) if (data := path.read_bytes())}


class _Writer:
    """Appends to a partition whose broker is stopped."""

    def __init__(self, partition: Path, now_ms: int) -> None:
        self.log = PartitionLog.open(partition, BrokerClock(), {"segment.bytes": 1_048_576})
        self.now_ms = now_ms
        self.sequences: dict[int, int] = {}

    def put(self, turn: int, *, codec: int = 0, producer: int = -1, transactional: bool = False) -> None:
        """Six records over twenty keys; of every seventh turn's some are tombstones, and one key in a while is new."""
        records = []
        for i in range(6):
            key = b"key-%d" % ((turn * 7 + i * 3) % 20) if i < 5 else b"once-%d" % turn
            value = None if turn % 7 == 3 and i % 2 else b"turn %d, record %d " % (turn, i) * 5
            headers = (("turn", b"%d" % turn),) if i % 2 else ()
            records.append(Record(timestamp=self.now_ms + turn * 10 - i, key=key, value=value, headers=headers))
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(records)
        known = producer >= 0
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer,
            producer_epoch=0 if known else -1,
            base_sequence=sequence if known else -1,
            transactional=transactional,
        )
        assert self.log.append(batch, leader_epoch=0).error == 0

    def end(self, producer: int, kind: int) -> None:
        marker = Record(timestamp=self.now_ms, key=struct.pack(">hh", 0, kind), value=struct.pack(">hi", 0, 0))
        batch = build_batch([marker], control=True, transactional=True, producer_id=producer, producer_epoch=0)
        assert self.log.append(batch, leader_epoch=0, origin=_COORDINATOR).error == 0

    def close(self) -> int:
        """Leaves an active segment that holds a record; where it begins."""
        self.log.roll()
        begins = self.log.log_end_offset
        self.put(999)
        self.log.close()
        return begins


def _write_first(partition: Path, now_ms: int) -> int:
    writer = _Writer(partition, now_ms)
    for turn in range(60):
        writer.put(turn, codec=turn % 5, producer=4000 + turn % 3 if turn % 2 else -1)
        if turn % 10 == 4:
            writer.put(100 + turn, producer=5000, transactional=True)
            writer.put(200 + turn, producer=5001, transactional=True, codec=4)
            writer.end(5000, _ABORT)
        if turn % 10 == 6:
            writer.end(5001, _COMMIT)
        if turn % 15 == 5:
            writer.log.roll()
    return writer.close()


def _write_second(partition: Path, now_ms: int) -> int:
    writer = _Writer(partition, now_ms)
    for turn in range(60, 66):
        writer.put(turn, codec=turn % 5)
    return writer.close()


def _make_unclean(data: Path) -> None:
    (data / CLEAN_SHUTDOWN).unlink()
    (data / "recovery-point-offset-checkpoint").unlink()


def _cleaned_to(data: Path) -> int:
    try:
        return read_offsets(data / CLEANER_OFFSETS).get((_TOPIC, 0), 0)
    except ValueError:  # just being replaced
        return 0


def _clean(broker: ApacheKafka | KBroker, data: Path, end: int) -> None:
    _make_unclean(data)
    with broker:
        until(lambda: _cleaned_to(data) >= end, _WAIT_SECONDS)


def _both(data: Path) -> Iterator[tuple[Path, ApacheKafka | KBroker]]:
    options = tuple(part for name, value in _CLEANER.items() for part in ("--config", f"{name}={value}"))
    yield data / "apache", ApacheKafka.on_data_directory(data / "apache", settings=dict(_CLEANER))
    yield data / "kbroker", KBroker.on_data_directory(data / "kbroker", options=options)


def _dump(partition: Path) -> None:
    """Kafka's own reader has nothing to say against the logs and their indexes."""
    indexes = ("*.index", "*.timeindex")
    for endings, options in ((("*.log",), ["--deep-iteration"]), (indexes, []), (indexes, ["--verify-index-only"])):
        files = [str(path) for ending in endings for path in sorted(partition.glob(ending)) if path.stat().st_size]
        result = run_tool("kafka-dump-log", *options, "--files", ",".join(files))
        assert result.exit_code == 0, result.err
        said = [line.replace("isvalid: true", "") for line in result.lines]
        assert not [line for line in said if _COMPLAINTS.search(line)]


def test_both_cleaners_leave_the_same_batches(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    if "kbroker" not in pytestconfig.getoption("--brokers").split(","):
        pytest.skip("kbroker is not among the brokers of this run")
    with KBroker(tmp_path, options=("--config", "log.cleaner.enable=false")) as broker:
        with ConfluentClient(broker.bootstrap) as client:
            client.create_topic(_TOPIC, _PLAN)
        data = broker.data_directory
    now_ms = int(time.time() * 1000)
    name = "Apache's cleaner and kbroker's leave the same batches"
    try:
        end = _write_first(data / f"{_TOPIC}-0", now_ms)
        for kind in ("apache", "kbroker"):
            shutil.copytree(data, tmp_path / kind)
        before = _segments(tmp_path / "kbroker" / f"{_TOPIC}-0")
        for home, node in _both(tmp_path):
            _clean(node, home, end)
        _must_equal(tmp_path)
        after = _segments(tmp_path / "kbroker" / f"{_TOPIC}-0")
        assert sum(map(len, after.values())) < sum(map(len, before.values()))
        assert any(one.horizon for left in after.values() for one in left), "no tombstone was met"
        assert _txn_indexes(tmp_path / "kbroker" / f"{_TOPIC}-0"), "nothing was aborted"
        time.sleep(0.05)  # the horizons pass
        for home, node in _both(tmp_path):
            end = _write_second(home / f"{_TOPIC}-0", now_ms)
            _clean(node, home, end)
        _must_equal(tmp_path)
        _dump(tmp_path / "kbroker" / f"{_TOPIC}-0")
        _open_with_apache(tmp_path / "kbroker")
    except Exception as error:
        results.add(Row("data directory", name, "differs", type(error).__name__))
        raise
    results.add(Row("data directory", name, "same"))


def _leads(client: Client) -> bool:
    try:
        return client.list_offset(_TOPIC, 0, -1) > 0
    except ClientError:  # a broker that has just started
        return False


def _open_with_apache(data: Path) -> None:
    before = _segments(data / f"{_TOPIC}-0")
    with ApacheKafka.on_data_directory(data) as apache:
        with ConfluentClient(apache.bootstrap) as client:
            until(lambda: _leads(client), _WAIT_SECONDS)
        assert not [line for line in apache.output().splitlines() if line.startswith("ERROR")]
    assert _segments(data / f"{_TOPIC}-0") == before


def _must_equal(tmp_path: Path) -> None:
    apache, ours = (_segments(tmp_path / kind / f"{_TOPIC}-0") for kind in ("apache", "kbroker"))
    assert list(ours) == list(apache)
    for segment, left in apache.items():
        assert ours[segment] == left
    indexes = {kind: _txn_indexes(tmp_path / kind / f"{_TOPIC}-0") for kind in ("apache", "kbroker")}
    assert indexes["kbroker"] == indexes["apache"]
