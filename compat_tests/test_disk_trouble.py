"""One of two log directories fills up: what clients are told, what goes on, and what comes back after a restart."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.harness import Results, compare
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka
from compat_tests.raw.batches import Batch, Rec
from compat_tests.raw.talk import Talk, Topic, produce_body
from compat_tests.until import until

_LEADER_NOT_AVAILABLE = 5
_VALUE = b"x" * 100_000  # Python sums it up byte by byte: once
_BATCH = Batch((Rec(b"k", _VALUE),)).encode()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """A filesystem of its own for either broker, soon full."""
    mounted = {}
    try:
        for name in ("apache", "kbroker"):
            place = tmp_path / f"small-{name}"
            place.mkdir()
            made = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=2m", "kbroker-test", str(place)], capture_output=True, check=False
            )
            if made.returncode != 0:
                pytest.skip("mounting a tmpfs is not permitted here")
            mounted[name] = place
        yield mounted
    finally:
        for place in mounted.values():
            subprocess.run(["umount", "-l", str(place)], check=True)


def _broker(name: str, tmp_path: Path, small: Path, understudy: bool) -> Any:
    first = tmp_path / name / "data"
    dirs = f"{first},{small / 'log'}"
    if name == "apache" or understudy:
        return ApacheKafka(tmp_path / name, settings={"log.dirs": dirs})
    broker = KBroker(tmp_path / name)
    broker.data_directory = Path(dirs)
    return broker


def _partitions_in(directory: Path, topic: str) -> list[int]:
    return sorted(int(one.name.rpartition("-")[2]) for one in directory.glob(f"{topic}-[0-9]*") if one.is_dir())


def _fetch_body(topic: Topic, partition: int) -> dict[str, Any]:
    part = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 100}
    return {"max_wait_ms": 0, "topics": [{"topic": topic.name, "partitions": [part]}]}


def _partition(answer: dict[str, Any], index: int) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in answer["topics"][0]["partitions"] if one["partition_index"] == index)
    return {**found, "partition_index": "the partition"}


def _ask_about(talk: Talk, what: str, topic: Topic, partition: int) -> None:
    for acks in (1, -1):
        answer = talk.quietly("Produce", 12, produce_body(topic, Batch().encode(), partition=partition, acks=acks))
        told = answer["responses"][0]["partition_responses"][0]
        talk.say(f"{what}: produce, acks {acks}", {**told, "index": "the partition"} | _unless_served(told))
    answer = talk.quietly("Fetch", 12, _fetch_body(topic, partition))
    told = answer["responses"][0]["partitions"][0]
    talk.say(f"{what}: fetch", {key: told[key] for key in ("error_code",)})
    for when in (-1, -2):
        asked = {"name": topic.name, "partitions": [{"partition_index": partition, "timestamp": when}]}
        answer = talk.quietly("ListOffsets", 7, {"replica_id": -1, "topics": [asked]})
        talk.say(f"{what}: offset {when}", {"error_code": answer["topics"][0]["partitions"][0]["error_code"]})
    asked = {"topic": topic.name, "partitions": [{"partition": partition, "leader_epoch": 0}]}
    answer = talk.quietly("OffsetForLeaderEpoch", 4, {"replica_id": -1, "topics": [asked]})
    told = answer["topics"][0]["partitions"][0]
    talk.say(f"{what}: end of epoch 0", {"error_code": told["error_code"]})
    asked_records = {"name": topic.name, "partitions": [{"partition_index": partition, "offset": 1}]}
    answer = talk.quietly("DeleteRecords", 2, {"topics": [asked_records], "timeout_ms": 30_000})
    talk.say(f"{what}: delete records", {"error_code": answer["topics"][0]["partitions"][0]["error_code"]})
    answer = talk.quietly("Metadata", 12, {"topics": [{"name": topic.name}]})
    talk.say(f"{what}: metadata", _partition(answer, partition))


def _unless_served(told: dict[str, Any]) -> dict[str, Any]:
    return {"base_offset": "an offset"} if told["error_code"] == 0 else {}


def _fill(talk: Talk, topic: Topic, partition: int) -> tuple[int, dict[str, Any]]:
    """Produces until it is refused: how many were acknowledged, and the refusal."""
    acknowledged = 0
    while True:
        answer = talk.quietly("Produce", 12, produce_body(topic, _BATCH, partition=partition))
        told = answer["responses"][0]["partition_responses"][0]
        if told["error_code"] != 0:
            return acknowledged, {**told, "index": "the partition"}
        acknowledged += 1
        assert acknowledged < 40, "the directory does not fill"


def _leaderless(talk: Talk, topic: Topic, partition: int) -> bool:
    answer = talk.quietly("Metadata", 12, {"topics": [{"name": topic.name}]})
    return bool(_partition(answer, partition)["error_code"] == _LEADER_NOT_AVAILABLE)


def _run(broker: Any, small: Path) -> dict[str, Any]:
    with broker:
        talk = Talk(broker.bootstrap, "disk")
        topic = talk.topic(partitions=4)
        until(lambda: len(_partitions_in(small / "log", topic.name)) == 2, WAIT_SECONDS)
        full, neighbour = _partitions_in(small / "log", topic.name)
        elsewhere = next(one for one in range(4) if one not in (full, neighbour))
        talk.append(topic, Batch().encode(), partition=neighbour)
        talk.append(topic, Batch().encode(), partition=elsewhere)
        acknowledged, refusal = _fill(talk, topic, full)
        talk.say("the first refusal", refusal)
        until(lambda: _leaderless(talk, topic, neighbour), WAIT_SECONDS)
        for what, partition in (("full", full), ("neighbour", neighbour), ("elsewhere", elsewhere)):
            _ask_about(talk, what, topic, partition)
        later = talk.topic(partitions=2)
        talk.append(later, Batch().encode(), partition=1)
        talk.say("new partitions in the full directory", len(_partitions_in(small / "log", later.name)))
        answer = talk.quietly("DescribeCluster", 1, {})
        talk.say("cluster", [{"broker_id": one["broker_id"]} for one in answer["brokers"]])
        talk.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    with broker:
        broken = Talk(broker.bootstrap, "still")
        until(lambda: not _leaderless(broken, topic, elsewhere), WAIT_SECONDS)
        for what, partition in (("full, not mended", full), ("elsewhere, not mended", elsewhere)):
            _ask_about(broken, what, topic, partition)
        later = broken.topic(partitions=2)
        broken.append(later, Batch().encode(), partition=1)
        talk.said |= broken.said
        broken.close()
    subprocess.run(["mount", "-o", "remount,rw,size=64m", str(small)], check=True)
    with broker:
        again = Talk(broker.bootstrap, "disk")
        until(lambda: not _leaderless(again, topic, full), WAIT_SECONDS)
        until(lambda: _end(again, topic, full)["error_code"] == 0, WAIT_SECONDS)
        beyond = _end(again, topic, full)["offset"] - acknowledged
        talk.say("beyond what was acknowledged", beyond)
        talk.say("neighbour, after", _end(again, topic, neighbour))
        for what, partition in (("full, mended", full), ("neighbour, mended", neighbour)):
            again.said.clear()
            _ask_about(again, what, topic, partition)
            talk.said |= again.said
        again.close()
    return talk.said


def _end(talk: Talk, topic: Topic, partition: int) -> dict[str, Any]:
    asked = {"name": topic.name, "partitions": [{"partition_index": partition, "timestamp": -1}]}
    answer = talk.quietly("ListOffsets", 7, {"replica_id": -1, "topics": [asked]})
    told = answer["topics"][0]["partitions"][0]
    return {"error_code": told["error_code"], "offset": told["offset"]}


def test_a_full_log_directory(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, small: dict[str, Path], results: Results
) -> None:
    wanted = pytestconfig.getoption("--brokers").split(",")
    understudy = pytestconfig.getoption("--rehearse")
    brokers = {
        name: _broker(name, tmp_path, small[name], understudy) for name in ("apache", "kbroker") if name in wanted
    }
    compare(
        results,
        "data directory",
        "one of two log directories is full",
        brokers,
        lambda broker: _run(broker, small[broker.name]),
    )
