"""Transactions in the log: both brokers get the same batches and markers, and readers of both kinds the same answers.

Here nobody verifies transactions (transaction.partition.verification.enable), so that no coordinator is needed and each
single step can be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.harness import Broker, Results, compare, differences
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka, run_tool
from compat_tests.raw.frame_cases import SERVED
from compat_tests.raw.talk import Talk, produce_body
from compat_tests.raw.transactions import READ_COMMITTED, READ_UNCOMMITTED, Story, batch
from compat_tests.until import until

_SETTING = "transaction.partition.verification.enable"
_FIND = "ListTransactions" in SERVED


@pytest.fixture(scope="module")
def lenient(
    pytestconfig: pytest.Config, java_tools: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Broker]]:
    wanted = pytestconfig.getoption("--brokers").split(",")
    home: Path = tmp_path_factory.mktemp("transactions")
    brokers: dict[str, Any] = {}
    if "apache" in wanted:
        brokers["apache"] = ApacheKafka(home / "apache", settings={_SETTING: "false"})
    if "kbroker" in wanted:
        understudy = pytestconfig.getoption("--rehearse")
        brokers["kbroker"] = (
            ApacheKafka(home / "understudy", settings={_SETTING: "false"})
            if understudy
            else KBroker(home / "kbroker", options=("--config", f"{_SETTING}=false"))
        )
    for broker in brokers.values():
        broker.start()
    yield brokers
    for broker in brokers.values():
        broker.stop()


def interleaved(story: Story) -> None:
    story.put("1 begins", batch(1, 0, 0, 2))  # 0, 1
    story.put("plain", batch(9, 0, 0, plain=True), transactional_id=None)  # 2
    story.put("2 begins", batch(2, 0, 0))  # 3
    story.read("nothing is stable", READ_COMMITTED)
    story.offsets("while both are open")
    story.producers()
    story.end("2 aborts", 2, 0, commit=False)  # 4
    story.read("1 is still open", READ_COMMITTED)
    story.put("1 goes on", batch(1, 0, 2))  # 5
    story.end("1 commits", 1, 0, commit=True)  # 6
    story.put("2 again", batch(2, 0, 1))  # 7
    story.put("3 begins", batch(3, 4, 0))  # 8
    story.end("2 aborts again", 2, 0, commit=False)  # 9
    story.everything(10)
    story.end("3 aborts", 3, 4, commit=False)  # 10
    story.put("3 in the next epoch", batch(3, 5, 0))  # 11
    story.end("3 aborts with a higher epoch", 3, 6, commit=False, version=2, transaction_version=2)  # 12
    story.everything(13)


def wrong_batches(story: Story) -> None:
    story.put("1 begins", batch(1, 3, 0))
    story.put("a plain one inside", batch(1, 3, 1, plain=True))
    story.put("a plain one, no id", batch(1, 3, 1, plain=True), transactional_id=None)
    story.put("a plain one out of order", batch(1, 3, 7, plain=True), transactional_id=None)
    story.put("a plain repeat", batch(1, 3, 0, plain=True), transactional_id=None)
    story.put("a plain one of the next epoch", batch(1, 4, 0, plain=True), transactional_id=None)
    story.put("out of order", batch(1, 3, 2))
    story.put("old epoch", batch(1, 2, 1))
    story.put("repeat", batch(1, 3, 0))
    story.put("next epoch not from 0", batch(1, 4, 1))
    story.put("next epoch", batch(1, 4, 0))
    story.put("the epoch before", batch(1, 3, 1))
    story.producers()
    story.end("an old marker", 1, 3, commit=True)
    story.end("commit", 1, 4, commit=True)
    story.put("repeat after the end", batch(1, 4, 0))
    story.put("goes on", batch(1, 4, 1))
    story.end("abort", 1, 4, commit=False)
    story.put("plain after the end", batch(1, 4, 2, plain=True))
    story.put("plain goes on", batch(1, 4, 3, plain=True), transactional_id=None)
    story.everything(7)


def epochs_of_transactions(story: Story) -> None:
    """With transaction version 2 every end has an epoch of its own."""
    for number, version in enumerate((0, 1, 2)):
        producer = 10 + number
        story.put(f"{version} begins", batch(producer, 0, 0))
        story.end(f"{version}, same epoch", producer, 0, commit=True, version=2, transaction_version=version)
        story.end(f"{version}, same epoch again", producer, 0, commit=True, version=2, transaction_version=version)
        story.put(f"{version} goes on", batch(producer, 0, 1))
        story.end(f"{version}, next epoch", producer, 1, commit=False, version=2, transaction_version=version)
        story.end(f"{version}, next epoch again", producer, 1, commit=False, version=2, transaction_version=version)
        story.end(f"{version}, the other result", producer, 1, commit=True, version=2, transaction_version=version)
        story.put(f"{version}, old epoch", batch(producer, 0, 2))
        story.put(f"{version}, not from 0", batch(producer, 1, 2))
        story.put(f"{version}, from 0", batch(producer, 1, 0))
        story.end(f"{version}, lower epoch", producer, 0, commit=True, version=2, transaction_version=version)
        story.end(f"{version}, two on", producer, 3, commit=True, version=2, transaction_version=version)
        story.producers()
    story.read("log", READ_COMMITTED)
    story.offsets()


def coordinators(story: Story) -> None:
    story.put("begins", batch(1, 0, 0))
    story.end("coordinator 5", 1, 0, commit=True, coordinator_epoch=5)
    story.put("again", batch(1, 0, 1))
    story.end("coordinator 4", 1, 0, commit=True, coordinator_epoch=4)
    story.end("coordinator 4, next epoch", 1, 1, commit=True, coordinator_epoch=4)
    story.producers()
    story.end("coordinator 5 again", 1, 0, commit=False, coordinator_epoch=5)
    story.put("once more", batch(1, 0, 2))
    story.end("coordinator 6, an old epoch", 1, -1, commit=False, coordinator_epoch=6)
    story.end("coordinator 6", 1, 0, commit=False, coordinator_epoch=6)
    story.everything(6)


def several_segments(story: Story) -> None:
    """Aborted transactions in the indexes of several segments, and readers with small limits."""
    for turn in range(12):
        story.put(f"{turn} begins", batch(1, 0, turn, size=60_000))
        story.put(f"{turn}, another", batch(2, 0, turn, size=60_000))
        story.end(f"{turn} ends", 1, 0, commit=turn % 3 == 0)
        if turn % 4 == 3:
            story.end(f"{turn}, the other ends", 2, 0, commit=turn % 8 == 3)
    story.offsets()
    for offset in range(0, 42, 3):
        for most in (1, 1 << 20, 8 << 20):  # one batch or all: Apache counts a part of the next one with the slice
            story.read(f"from {offset}, {most} bytes", READ_COMMITTED, offset, most=most)


def in_a_session(story: Story) -> None:
    """An incremental fetch tells of the log's end, not of the last stable offset alone."""
    talk, topic = story.talk, story.topic

    def fetch(what: str, session: int, epoch: int, first: bool) -> Any:
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        asked = [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": [part]}] if first else []
        body = {"max_wait_ms": 0, "min_bytes": 1, "isolation_level": READ_COMMITTED, "topics": asked}
        answer = talk.connection.ask("Fetch", 12, {**body, "session_id": session, "session_epoch": epoch})
        assert isinstance(answer, dict), answer
        number = answer["session_id"]
        for one in answer["responses"]:
            for part in one["partitions"]:
                part["records"] = len(part["records"]) // 2
        talk.say(story.label(what), answer)
        return number

    number = fetch("empty", 0, 0, True)
    story.put("begins", batch(1, 0, 0))
    fetch("open", number, 1, False)
    fetch("still open", number, 2, False)
    story.end("aborts", 1, 0, commit=False)
    fetch("aborted", number, 3, False)
    fetch("aborted, again", number, 4, False)


STORIES: list[Callable[[Story], None]] = [
    interleaved,
    wrong_batches,
    epochs_of_transactions,
    coordinators,
    in_a_session,
]


@pytest.mark.parametrize("tell", STORIES, ids=lambda one: one.__name__)
def test_a_log_with_transactions(
    tell: Callable[[Story], None], results: Results, lenient: dict[str, Broker], again: str
) -> None:
    def run(broker: Broker) -> dict[str, Any]:
        talk = Talk(broker.bootstrap, tell.__name__.replace("_", "-") + again)
        try:
            tell(Story(talk))
        finally:
            talk.close()
        return talk.said

    compare(results, "transactions", tell.__name__.replace("_", " "), lenient, run)


def test_aborted_transactions_of_several_segments(results: Results, lenient: dict[str, Broker], again: str) -> None:
    def run(broker: Broker) -> dict[str, Any]:
        talk = Talk(broker.bootstrap, f"several-segments{again}")
        try:
            several_segments(Story(talk, configs={"segment.bytes": "1048576"}))
        finally:
            talk.close()
        return talk.said

    compare(results, "transactions", "several segments", lenient, run)


def test_a_long_poll_waits_for_what_is_committed(results: Results, lenient: dict[str, Broker], again: str) -> None:
    """An uncommitted batch does not end the wait of a reader at read_committed; the marker does."""

    def run(broker: Broker) -> list[Any]:
        talk = Talk(broker.bootstrap, f"long-poll{again}")
        story = Story(talk)
        waits = {}
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
            asked = {"topic": story.topic.name, "topic_id": story.topic.topic_id, "partitions": [part]}
            body = {"max_wait_ms": 10_000, "min_bytes": 1, "isolation_level": isolation, "topics": [asked]}
            waits[isolation] = talk.connect()
            waits[isolation].send(waits[isolation].request_frame("Fetch", 12, body))
        told = []
        body = produce_body(story.topic, batch(1, 0, 0), transactional_id="tx")
        talk.quietly("Produce", 11, body)
        told.append(_bytes_of(waits[READ_UNCOMMITTED].answer("Fetch", 12, 1)))
        talk.quietly("Produce", 11, produce_body(story.topic, batch(1, 0, 1), transactional_id="tx"))
        story.end("commit", 1, 0, commit=True)
        told.append(_bytes_of(waits[READ_COMMITTED].answer("Fetch", 12, 1)))
        talk.close()
        return told

    compare(results, "transactions", "a long poll at read_committed", lenient, run)


def test_a_hanging_transaction_is_found_and_ended_with_kafkas_tool(
    results: Results, lenient: dict[str, Broker], again: str
) -> None:
    """No coordinator knows of it, so nobody else will ever end it (KIP-664)."""

    def run(broker: Broker) -> dict[str, Any]:
        talk = Talk(broker.bootstrap, f"hanging{again}")
        # The tool looks for those who have been open longer than a transaction may: by the records' own time.
        story = Story(talk)
        story.put("plain", batch(9, 0, 0, plain=True), transactional_id=None)
        story.put("begins", batch(4711, 3, 0, 2))
        story.offsets("while it hangs")

        def tool(what: str, *arguments: str) -> None:
            done = run_tool("kafka-transactions", "--bootstrap-server", broker.bootstrap, *arguments)
            columns = sorted(line.split() for line in done.lines)  # producers come in the order of a hash map
            for one in columns:  # the time since it began
                if "4711" in one and len(one) > 5:
                    one[:] = [field for field in one if not field.isdigit() or int(field) < 100_000]
            talk.say(story.label(what), {"exit": done.exit_code, "out": columns, "failed": "Exception" in done.err})

        where = ("--topic", story.topic.name, "--partition", "0")
        tool("producers", "describe-producers", *where)
        if _FIND:
            tool("found", "find-hanging", *where)
        tool("an offset where none began", "abort", *where, "--start-offset", "0")
        tool("ended", "abort", *where, "--start-offset", "1")
        tool("once more", "abort", *where, "--start-offset", "1")
        tool("producers afterwards", "describe-producers", *where)
        story.everything(4)
        talk.close()
        return talk.said

    compare(results, "transactions", "a hanging transaction is ended with the tool", lenient, run)


def _of_kind(kind: str, data: Path) -> Any:
    """A lenient broker of this kind for a data directory, which may not exist yet."""
    if kind == "kbroker":
        return KBroker.on_data_directory(data, options=("--config", f"{_SETTING}=false"))
    if data.exists():
        return ApacheKafka.on_data_directory(data, settings={_SETTING: "false"})
    broker = ApacheKafka(data.parent / "apache", settings={_SETTING: "false"})
    broker.data_directory = data
    return broker


def _handed_over(first: str, second: str, home: Path) -> dict[str, Any]:
    """What the second broker says of the first one's transactions: ended, open, and then ended by it."""
    data = home / f"{first}-{second}" / "data"
    with _of_kind(first, data) as broker:
        talk = Talk(broker.bootstrap, "handed-over")
        story = Story(talk, configs={"segment.bytes": "1048576"})
        for turn in range(6):
            story.put(f"{turn} begins", batch(1, 0, turn, size=100_000))
            story.put(f"{turn}, another", batch(2, 0, turn, size=100_000))
            story.end(f"{turn} ends", 1, 0, commit=turn % 2 == 0)
        story.end("the other ends", 2, 0, commit=False)
        story.put("open", batch(3, 2, 0))
        story.put("behind it", batch(9, 0, 0, plain=True), transactional_id=None)
        talk.close()
        topic = story.topic
    with _of_kind(second, data) as broker:
        talk = Talk(broker.bootstrap, "handed-over")
        story = Story.of(talk, topic)
        until(lambda: _leads(talk, topic.name), WAIT_SECONDS)
        story.everything(21)
        story.put("goes on", batch(3, 2, 1))
        story.put("its last batch again", batch(3, 2, 1))
        story.put("plain inside", batch(3, 2, 2, plain=True))
        story.end("an old epoch", 3, 1, commit=False)
        story.end("aborts", 3, 2, commit=False)
        story.everything(23)
        talk.close()
    return talk.said


def _leads(talk: Talk, name: str) -> bool:
    """Apache tells its metadata a moment before it leads."""
    asked = {"name": name, "partitions": [{"timestamp": -1}]}
    answer = talk.quietly("ListOffsets", 7, {"replica_id": -1, "topics": [asked]})
    return bool(answer["topics"][0]["partitions"][0]["error_code"] == 0)


@pytest.mark.parametrize(("first", "second"), [("kbroker", "apache"), ("apache", "kbroker")])
def test_either_broker_goes_on_with_the_others_transactions(
    first: str, second: str, pytestconfig: pytest.Config, java_tools: None, tmp_path: Path
) -> None:
    wanted = pytestconfig.getoption("--brokers").split(",")
    if set(wanted) != {"apache", "kbroker"} or pytestconfig.getoption("--rehearse"):
        pytest.skip("both brokers are needed")
    found = list(
        differences(_handed_over(first, second, tmp_path / "mixed"), _handed_over("apache", "apache", tmp_path))
    )
    assert not found, "\n".join(found[:20])


def _bytes_of(answer: Any) -> Any:
    part = answer["responses"][0]["partitions"][0]
    return [len(part["records"]) // 2, part["high_watermark"], part["last_stable_offset"], part["aborted_transactions"]]
