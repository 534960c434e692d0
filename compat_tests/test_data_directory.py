"""Files: Apache reads what kbroker wrote, kbroker reads what Apache wrote, and Kafka's dump tool has no complaint."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.client import CODECS, WAIT_SECONDS, Client, ClientError, ProduceOptions, Received, TopicPlan
from compat_tests.confluent import ConfluentClient
from compat_tests.harness import Broker, Results, Row
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka, run_tool
from compat_tests.raw.connection import Connection
from compat_tests.scenarios.records import must_equal, sample_records
from compat_tests.until import until

_COMPLAINTS = re.compile(
    r"mismatch|corrupt|invalid|not ?valid|found log segment|isvalid: false|exception|error", re.IGNORECASE
)
_TOPICS = {
    "plain": TopicPlan(),
    "three.partitions": TopicPlan(partitions=3),
    "compacted": TopicPlan(configs={"cleanup.policy": "compact"}),
    "small-segments": TopicPlan(configs={"segment.bytes": "1048576", "index.interval.bytes": "512"}),
    "append_time": TopicPlan(configs={"message.timestamp.type": "LogAppendTime"}),
    "empty": TopicPlan(partitions=2),
}
_NOT_LEADER, _UNKNOWN_LEADER_EPOCH = 6, 75
Snapshot = dict[str, Any]


def _fill(client: Client) -> None:
    """Topics of several shapes, records of all codecs, idempotent and not; segments that have rolled."""
    for name, plan in _TOPICS.items():
        client.create_topic(name, plan)
    keyed = [record for record in sample_records(400) if record.key is not None]
    for codec in CODECS:
        client.produce("plain", sample_records(200), ProduceOptions(codec=codec))
        client.produce("plain", sample_records(100), ProduceOptions(codec=codec, idempotent=True, batch_bytes=1024))
        client.produce("compacted", keyed, ProduceOptions(codec=codec))
        client.produce("append_time", sample_records(50), ProduceOptions(codec=codec))
    for partition in range(3):
        sent = [type(r)(r.key, r.value, r.headers, r.timestamp_ms, partition) for r in sample_records(300)]
        client.produce("three.partitions", sent, ProduceOptions(idempotent=True))
    large = [type(r)(r.key, (r.value or b"") + b"x" * 9000, r.headers, r.timestamp_ms) for r in sample_records(400)]
    client.produce("small-segments", large, ProduceOptions())


def _topic_ids(bootstrap: str) -> dict[str, str]:
    connection = Connection(bootstrap)
    answer = connection.ask("Metadata", 12, {"topics": None})
    connection.close()
    assert isinstance(answer, dict)
    return {topic["name"]: topic["topic_id"] for topic in answer["topics"] if not topic["is_internal"]}


def _leads(client: Client) -> bool:
    """Whether a broker that has just started leads what its metadata says it leads: Apache tells it a moment early."""
    try:
        for name, plan in _TOPICS.items():
            for partition in range(plan.partitions):
                client.list_offset(name, partition, -1)
    except ClientError as error:
        if error.code in (_UNKNOWN_LEADER_EPOCH, _NOT_LEADER):
            return False
        raise
    return True


def _look(broker: Broker) -> Snapshot:
    """Everything a client can see: topics, ids, partitions, set configs, offsets and records."""
    snapshot: Snapshot = {"ids": _topic_ids(broker.bootstrap)}
    with ConfluentClient(broker.bootstrap) as client:
        until(lambda: _leads(client), WAIT_SECONDS)
        for name, plan in _TOPICS.items():
            partitions = client.describe_topic(name)["partitions"]
            configs = client.describe_configs(name)
            told: dict[str, Any] = {"configs": {key: configs[key] for key in plan.configs}}
            for index in sorted(partitions):
                start, end = client.list_offset(name, index, -2), client.list_offset(name, index, -1)
                records: list[Received] = client.consume(name, index, start, end - start) if end > start else []
                told[str(index)] = {"start": start, "end": end, "records": records}
            snapshot[name] = told
    return snapshot


def _must_append(broker: Broker, before: Snapshot) -> None:
    """Life goes on where it stopped: new records follow the old."""
    with ConfluentClient(broker.bootstrap) as client:
        end = before["plain"]["0"]["end"]
        more = sample_records(20)
        offsets = client.produce("plain", more, ProduceOptions(idempotent=True))
        assert offsets == list(range(end, end + 20))
        must_equal(more, client.consume("plain", 0, end, 20), first_offset=end)
        client.create_topic("made-later", TopicPlan(partitions=2))
        client.produce("made-later", more, ProduceOptions())
        must_equal(more, client.consume("made-later", 0, 0, 20))


def _must_pass(results: Results, name: str, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:
        results.add(Row("data directory", name, "differs", type(error).__name__))
        raise
    results.add(Row("data directory", name, "same"))


@pytest.fixture(scope="module")
def written_by_kbroker(
    pytestconfig: pytest.Config, java_tools: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Snapshot]:
    """A data directory that kbroker filled and left by a clean stop, and what clients saw in it."""
    if "kbroker" not in pytestconfig.getoption("--brokers").split(","):
        pytest.skip("kbroker is not among the brokers of this run")
    kind = ApacheKafka if pytestconfig.getoption("--rehearse") else KBroker
    with kind(tmp_path_factory.mktemp("written")) as broker:
        with ConfluentClient(broker.bootstrap) as client:
            _fill(client)
        seen = _look(broker)
    return broker.data_directory, seen


def _files(directory: Path, *endings: str) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.name.endswith(endings) and path.stat().st_size > 0)


def _dump(files: list[Path], *options: str) -> None:
    result = run_tool("kafka-dump-log", *options, "--files", ",".join(str(path) for path in files))
    assert result.exit_code == 0, result.err
    complaints = [line for line in result.lines if _COMPLAINTS.search(line.replace("isvalid: true", ""))]
    assert not complaints, "\n".join(complaints[:20])
    for path in files:
        assert f"Dumping {path}" in result.out


def test_the_dump_tool_reads_every_file_without_complaint(
    written_by_kbroker: tuple[Path, Snapshot], results: Results
) -> None:
    directory, _ = written_by_kbroker
    logs = [path for path in _files(directory, ".log") if "__cluster_metadata" not in str(path)]
    assert len(logs) > len(_TOPICS), "segments were to roll"

    def work() -> None:
        _dump(logs, "--deep-iteration")
        _dump([p for p in _files(directory, ".index", ".timeindex") if "__cluster_metadata" not in str(p)])
        _dump(_files(directory, ".snapshot"))

    _must_pass(results, "kafka-dump-log reads every log, index and snapshot", work)


def test_the_dump_tool_decodes_the_cluster_metadata(
    written_by_kbroker: tuple[Path, Snapshot], results: Results
) -> None:
    directory, seen = written_by_kbroker

    def work() -> None:
        metadata = _files(directory / "__cluster_metadata-0", ".log", ".checkpoint")
        result = run_tool(
            "kafka-dump-log", "--cluster-metadata-decoder", "--files", ",".join(str(path) for path in metadata)
        )
        assert result.exit_code == 0, result.err
        assert "Could not" not in result.out
        assert "Error" not in result.out
        ids = dict(re.findall(r'"TOPIC_RECORD".*?"name":"([^"]+)","topicId":"([^"]+)"', result.out))
        for name in _TOPICS:
            expected = base64.urlsafe_b64encode(bytes.fromhex(seen["ids"][name])).decode().rstrip("=")
            assert ids.get(name) == expected

    _must_pass(results, "kafka-dump-log decodes the cluster metadata", work)


def test_apache_opens_what_kbroker_wrote(written_by_kbroker: tuple[Path, Snapshot], results: Results) -> None:
    directory, seen = written_by_kbroker

    def work() -> None:
        with ApacheKafka.on_data_directory(directory) as apache:
            assert _look(apache) == seen
            _must_append(apache, seen)
            complaints = [line for line in apache.output().splitlines() if line.startswith("ERROR")]
            assert not complaints, "\n".join(complaints)

    _must_pass(results, "Apache Kafka opens a directory of kbroker", work)


def test_kbroker_opens_what_apache_wrote_and_gives_it_back(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    if "kbroker" not in pytestconfig.getoption("--brokers").split(","):
        pytest.skip("kbroker is not among the brokers of this run")
    kind: Any = ApacheKafka if pytestconfig.getoption("--rehearse") else KBroker

    def work() -> None:
        with ApacheKafka(tmp_path / "first") as apache:
            with ConfluentClient(apache.bootstrap) as client:
                _fill(client)
            seen = _look(apache)
        with kind.on_data_directory(apache.data_directory) as broker:
            assert _look(broker) == seen
            _must_append(broker, seen)
            after = _look(broker)
        with ApacheKafka.on_data_directory(apache.data_directory) as again:
            assert _look(again) == after

    _must_pass(results, "kbroker opens a directory of Apache Kafka, and Apache again", work)
