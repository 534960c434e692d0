"""Brokers of several data directories: where partitions are put, moves, and each broker on the other's files."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.harness import Broker, Results, Row, compare
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka, run_tool
from compat_tests.raw.log_dir_cases import describe, normal, paths
from compat_tests.raw.talk import Talk, Topic
from compat_tests.until import until
from kbroker._core.record.records import Record, build_batch

_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_SLOW, _FAST = 10_000, 1 << 40
_BLOCK = b"x" * 5_000
_COMPLAINTS = re.compile(
    r"mismatch|corrupt|invalid|not ?valid|found log segment|isvalid: false|exception|error", re.IGNORECASE
)


def _directories(root: Path, count: int = 3) -> list[Path]:
    return [root / f"d{n}" for n in range(count)]


def _kbroker(root: Path) -> KBroker:
    broker = KBroker(root)
    broker.data_directory = Path(",".join(map(str, _directories(root))))
    return broker


def _apache(root: Path) -> ApacheKafka:
    directories = _directories(root)
    broker = ApacheKafka(root, settings={"log.dirs": ",".join(map(str, directories))})
    broker.data_directory = directories[0]  # whether it is formatted already is seen there
    return broker


_MAKE: dict[str, Callable[[Path], Any]] = {"kbroker": _kbroker, "apache": _apache}


def _brokers(pytestconfig: pytest.Config, directory: Path) -> dict[str, Any]:
    wanted = pytestconfig.getoption("--brokers").split(",")
    ours = _apache if pytestconfig.getoption("--rehearse") else _kbroker
    made: dict[str, Any] = {"apache": _apache(directory / "apache"), "kbroker": ours(directory / "kbroker")}
    return {name: broker for name, broker in made.items() if name in wanted}


def _names(talk: Talk) -> dict[str, str]:
    return {path: f"directory {n}" for n, path in enumerate(paths(talk))}


def _look(talk: Talk, topic: Topic, partitions: list[int]) -> Any:
    asked = describe((topic.name, partitions))
    return normal(talk.quietly("DescribeLogDirs", 5, asked), _names(talk))


def _places(talk: Talk, topic: Topic, partition: int = 0) -> dict[str, tuple[bool, int]]:
    """Directory -> (a copy on its way?, its lag)."""
    return {
        one["log_dir"]: (part["is_future_key"], part["offset_lag"])
        for one in talk.quietly("DescribeLogDirs", 4, describe((topic.name, [partition])))["results"]
        for held in one["topics"]
        for part in held["partitions"]
    }


def _move(talk: Talk, topic: Topic, path: str, partition: int = 0) -> int:
    dirs = [{"path": path, "topics": [{"name": topic.name, "partitions": [partition]}]}]
    (result,) = talk.quietly("AlterReplicaLogDirs", 2, {"dirs": dirs})["results"]
    error: int = result["partitions"][0]["error_code"]
    return error


def _arrived(talk: Talk, topic: Topic, path: str, partition: int = 0) -> bool:
    return _places(talk, topic, partition) == {path: (False, 0)}


def _throttle(talk: Talk, rate: int) -> None:
    change = {"name": _RATE, "config_operation": 0, "value": str(rate)}
    resource = {"resource_type": 4, "resource_name": "1", "configs": [change]}
    answer = talk.quietly("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})
    assert answer["responses"][0]["error_code"] == 0, answer


def _fill(talk: Talk, topic: Topic, batches: int, partition: int = 0) -> None:
    for n in range(batches):
        batch = build_batch([Record(timestamp=1_700_000_000_000 + n, key=b"%d" % n, value=_BLOCK)] * 2)
        talk.append(topic, batch, partition=partition)


def _offsets(talk: Talk, topic: Topic) -> dict[str, Any]:
    told = {}
    for when in (-2, -1, -3, 1_700_000_000_030):
        asked = {"name": topic.name, "partitions": [{"timestamp": when}]}
        answer = talk.quietly("ListOffsets", 7, {"replica_id": -1, "topics": [asked]})
        part = answer["topics"][0]["partitions"][0]
        told[str(when)] = (part["error_code"], part["offset"], part["timestamp"])
    return told


def _serves(talk: Talk, topic: Topic) -> bool:
    asked = {"name": topic.name, "partitions": [{"timestamp": -1}]}
    answer = talk.quietly("ListOffsets", 7, {"replica_id": -1, "topics": [asked]})
    return bool(answer["topics"][0]["partitions"][0]["error_code"] == 0)


def _story(broker: Any) -> dict[str, Any]:
    told: dict[str, Any] = {}
    with broker:
        talk = Talk(broker.bootstrap, "dirs")
        spread = talk.topic(partitions=6)
        until(lambda: all(_places(talk, spread, n) for n in range(6)), WAIT_SECONDS)
        homes = [next(iter(_places(talk, spread, n))) for n in range(6)]
        told["partitions a directory"] = sorted(homes.count(path) for path in paths(talk))

        topic = talk.topic(configs={"segment.bytes": "1048576"})
        (here,) = _places(talk, topic)
        first, second = (path for path in paths(talk) if path != here)
        for n, path in enumerate((here, first, second)):
            talk.symbol(path, ("here", "first", "second")[n])
        _fill(talk, topic, 300)
        told["where it is"] = _move(talk, topic, here)
        told["then"] = _places(talk, topic) == {here: (False, 0)}
        _throttle(talk, _SLOW)
        told["elsewhere"] = _move(talk, topic, first)
        until(lambda: _places(talk, topic).get(first, (False, 0))[0], WAIT_SECONDS)
        told["on its way"] = (set(_places(talk, topic)) == {here, first}, _places(talk, topic)[first][1] > 0)
        (copy,) = Path(first).glob(f"{topic.name}-0.*-future")
        told["the copy's name"] = re.sub("[0-9a-f]{32}", "*", copy.name)
        told["once more"] = _move(talk, topic, first)
        told["to a third"] = _move(talk, topic, second)
        until(lambda: not copy.exists(), WAIT_SECONDS)
        told["then to the third only"] = set(_places(talk, topic)) == {here, second}
        told["called off"] = _move(talk, topic, here)
        told["is called off"] = _places(talk, topic) == {here: (False, 0)}
        _throttle(talk, _FAST)
        told["in earnest"] = _move(talk, topic, first)
        until(lambda: _arrived(talk, topic, first), WAIT_SECONDS)
        told["arrived"] = normal(
            talk.quietly("DescribeLogDirs", 5, describe((topic.name, [0]))),
            {here: "here", first: "first", second: "second"},
        )
        told["arrived"]["results"].sort(key=lambda one: one["log_dir"])
        told["offsets"] = _offsets(talk, topic)
        told["names"] = [sorted(path.name for path in Path(at).glob(f"{topic.name}-0")) for at in (here, first, second)]
        told["to come"] = [_move(talk, Topic(name, b""), second) for name in ("w-dirs-3", "w-dirs-4")]
        told["came"] = [set(_places(talk, talk.topic())) == {second} for _ in range(2)]
        talk.close()
    with broker:
        talk = Talk(broker.bootstrap, "dirs")
        until(lambda: _serves(talk, topic), WAIT_SECONDS)
        told["started again"] = (_arrived(talk, topic, first), _offsets(talk, topic))
        told["spread again"] = [next(iter(_places(talk, spread, n))) for n in range(6)] == homes
        talk.close()
    return told


def test_moves_look_the_same(pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results) -> None:
    compare(results, "data directory", "several of them, and moves", _brokers(pytestconfig, tmp_path), _story)


def _dump(directory: Path) -> None:
    """Kafka's own tool finds nothing wrong with the files."""
    logs = sorted(directory.glob("*.log"))
    assert logs
    deep = run_tool("kafka-dump-log", "--files", ",".join(map(str, logs)), "--deep-iteration", "--print-data-log")
    indexes = sorted(directory.glob("*.index")) + sorted(directory.glob("*.timeindex"))
    sane = run_tool("kafka-dump-log", "--files", ",".join(map(str, indexes)), "--index-sanity-check")
    verified = run_tool("kafka-dump-log", "--files", ",".join(map(str, indexes)), "--verify-index-only")
    for told in (deep, sane, verified):
        assert told.exit_code == 0, told.err
        lines = [line for line in told.lines if "isvalid: true" not in line]
        assert not [line for line in lines if _COMPLAINTS.search(line) and "passed sanity" not in line], lines[:5]


@pytest.mark.parametrize(("first", "second"), [("kbroker", "apache"), ("apache", "kbroker")])
def test_the_other_broker_finishes_a_move_that_a_kill_cut_short(
    java_tools: None, tmp_path: Path, results: Results, first: str, second: str
) -> None:
    root = tmp_path / "both"
    begun = _MAKE[first](root)
    begun.start()
    talk = Talk(begun.bootstrap, "half-way")
    topic = talk.topic(configs={"segment.bytes": "1048576"})
    (here,) = _places(talk, topic)
    there = next(path for path in paths(talk) if path != here)
    _fill(talk, topic, 400)
    expected = _offsets(talk, topic)
    _throttle(talk, 1_000_000)
    assert _move(talk, topic, there) == 0
    until(lambda: 100 < _places(talk, topic).get(there, (True, 800))[1] < 600, WAIT_SECONDS)
    talk.close()
    begun.kill()
    assert list(Path(there).glob(f"{topic.name}-0.*-future"))

    finished = _MAKE[second](root)
    with finished:
        talk = Talk(finished.bootstrap, "half-way")
        until(lambda: _serves(talk, topic), WAIT_SECONDS)
        _throttle(talk, _FAST)
        until(lambda: _arrived(talk, topic, there), WAIT_SECONDS)
        assert _offsets(talk, topic) == expected
        assert not (Path(here) / f"{topic.name}-0").exists()
        talk.close()
    _dump(Path(there) / f"{topic.name}-0")
    with _MAKE[first](root) as again:
        talk = Talk(again.bootstrap, "half-way")
        until(lambda: _serves(talk, topic), WAIT_SECONDS)
        assert _arrived(talk, topic, there)
        assert _offsets(talk, topic) == expected
        talk.close()
    scenario = f"a move that {first} began is finished by {second}"
    results.add(Row("data directory", scenario, "same"))


def test_tools_and_admin_clients_see_and_move_replicas(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    kafka: Any = pytest.importorskip("kafka")

    def run(broker: Any) -> Any:
        told: dict[str, Any] = {}
        with broker:
            talk = Talk(broker.bootstrap, "tools")
            topic = talk.topic(partitions=2)
            _fill(talk, topic, 3)
            told["kafka-log-dirs"] = _log_dirs_tool(broker, talk, topic)
            (here,) = _places(talk, topic)
            there = next(path for path in paths(talk) if path != here)
            admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
            answer = admin.alter_replica_log_dirs({(topic.name, 0, 1): there, (topic.name, 1, 1): "/nowhere"})
            told["kafka-python alters"] = sorted(
                (list(key)[:2], getattr(error, "errno", str(error))) for key, error in answer.items()
            )
            until(lambda: _arrived(talk, topic, there), WAIT_SECONDS)
            (described,) = admin.describe_log_dirs({topic.name: [0, 1]})
            told["kafka-python describes"] = [
                (one["log_dir"] == there, one["error_code"], bool(one["topics"])) for one in described["log_dirs"]
            ].count((True, 0, True))
            told["kafka-log-dirs then"] = _log_dirs_tool(broker, talk, topic)
            admin.close()
            talk.close()
        return told

    compare(results, "java tools", "kafka-log-dirs, kafka-python", _brokers(pytestconfig, tmp_path), run)


def _log_dirs_tool(broker: Broker, talk: Talk, topic: Topic) -> Any:
    told = run_tool("kafka-log-dirs", "--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", topic.name)
    assert told.exit_code == 0, told.err
    (line,) = [line for line in told.lines if line.startswith("{")]
    (one,) = json.loads(line)["brokers"]
    held = sorted(
        (part["partition"], part["size"], part["offsetLag"], part["isFuture"])
        for directory in one["logDirs"]
        for part in directory["partitions"]
    )
    return {"broker": one["broker"], "errors": [each["error"] for each in one["logDirs"]], "held": held}


@pytest.mark.parametrize(
    ("name", "told"), [("apache", "Duplicate log directories for"), ("kbroker", "move one of the two away")]
)
def test_a_partition_in_two_directories_ends_both_brokers(
    java_tools: None, tmp_path: Path, name: str, told: str
) -> None:
    broker = _MAKE[name](tmp_path)
    with broker:
        talk = Talk(broker.bootstrap, "twice")
        topic = talk.topic()
        _fill(talk, topic, 1)
        (here,) = _places(talk, topic)
        there = next(path for path in paths(talk) if path != here)
        talk.close()
    shutil.copytree(Path(here) / f"{topic.name}-0", Path(there) / f"{topic.name}-0")
    broken = _MAKE[name](tmp_path)
    with suppress(AssertionError):  # Apache may say that it started and end then
        broken.start()
    until(lambda: told in broken.output(), WAIT_SECONDS)
    broken.kill()
