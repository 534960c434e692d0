"""A disk decays: bytes and files of every kind are damaged at random, and a real broker is started on what is left.

Each round copies a directory that a real broker made and stopped (or was killed on), harms it by a seed, starts the
broker, reads everything with a client, produces on, stops, and starts once more. It must serve or refuse with one
sentence, without a traceback and in bounded time; judge.py says what it may serve. A failing round prints its seed and
keeps its directory; `--only ROUND` with the same seed does it again.

With --apache, Apache's kafka-dump-log reads what recovery left, too.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.campaigns.decay import nursery, payers
from bench.campaigns.decay.judge import judge, room_of, scanned_from
from bench.campaigns.decay.patient import Patient
from bench.campaigns.decay.reading import Content, Key, ask_offset, read, read_committed
from bench.campaigns.decay.rot import METADATA, Harm, harm
from bench.client import Client
from compat_tests.oracle.tools import run_tool
from kbroker._core.record.records import Record, build_batch
from kbroker.protocol import messages
from kbroker.storage.examine import examine

_FILES_A_JVM = 400
_COMPLAINT = re.compile(
    r"mismatch|corrupt|invalid|not ?valid|found log segment|isvalid: false|exception|error", re.IGNORECASE
)
# NONE, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
COORDINATOR_MAY_ANSWER = {0, 14, 15, 16}
_LATER_MS = nursery.NOW_MS + 100_000


class Outcome(NamedTuple):
    what: str
    left: list[Path]


def read_all(patient: Patient, scanned: dict[Key, int | None] | None = None) -> dict[Key, Content]:
    with Client(patient.port) as client:
        found = {key: read(client, key, (scanned or {}).get(key)) for key in nursery.PARTITIONS + nursery.INTERNAL}
        paid = found[payers.PLACE]
        return {**found, payers.PLACE: paid._replace(committed=read_committed(client, payers.PLACE, paid))}


def read_by_librdkafka(patient: Patient, found: dict[Key, Content]) -> None:
    """A client as people have it, checking checksums, sees the same records wherever all of them match."""
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{patient.port}",
            "group.id": "decay",
            "enable.auto.commit": False,
            "check.crcs": True,
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )
    try:
        whole = {
            key: content
            for key, content in found.items()
            if key in nursery.PARTITIONS and not content.error and not content.wrong and content.records
        }
        left = {key: dict(content.records) for key, content in whole.items()}
        consumer.assign([TopicPartition(*key, content.start) for key, content in whole.items()])
        while count := sum(map(len, left.values())):
            messages = consumer.consume(count, timeout=20)
            assert messages, f"a consumer waits for {[key for key in left if left[key]]}"
            for message in messages:
                assert message.error() is None, f"{message.topic()}: {message.error()}"
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None
                assert partition is not None
                assert offset is not None
                expected = left[topic, partition].pop(offset, None)
                assert expected is not None, f"{topic}-{partition}: offset {offset} was not there before"
                assert message.value() == expected[2], f"{topic}-{partition}: another value at {offset}"
    except KafkaException as problem:
        raise AssertionError(f"a consumer fails: {problem}") from None
    finally:
        consumer.close()


def live_on(patient: Patient, found: dict[Key, Content]) -> dict[Key, int]:
    """Whatever is served is searched by time and written to; returns where each partition ends now."""
    ends = {}
    with Client(patient.port) as client:
        for key in nursery.PARTITIONS:
            content = found[key]
            for timestamp in (0, nursery.NOW_MS + 3_000, _LATER_MS, -3):
                error, _ = ask_offset(client, key, timestamp)
                assert error in (0, 3, 56), f"{key}: ListOffsets of {timestamp} answers {error}"
            batch = build_batch([Record(timestamp=_LATER_MS, key=b"later", value=b"later")])
            error = nursery.produce(client, *key, batch)
            assert error in (0, 3, 56), f"{key}: Produce answers {error}"
            if not error:
                again, end = ask_offset(client, key, -1)
                assert not again, f"{key}: ListOffsets answers {again}"
                assert end == content.end + 1 or (key in nursery.WITH_MARKERS and end > content.end), (
                    f"{key}: ends at {end} after a record at {content.end}"
                )
                ends[key] = end
        ask_coordinators(client)
    return ends


def ask_coordinators(client: Client) -> None:
    """They answer, or say what is the matter."""
    request = messages.InitProducerIdRequest(transactional_id="newcomer", transaction_timeout_ms=60_000)
    told = client.ask(request, 4)
    assert isinstance(told, messages.InitProducerIdResponse)
    assert told.error_code in COORDINATOR_MAY_ANSWER, f"InitProducerId answers {told.error_code}"
    fetch = messages.OffsetFetchRequest
    offsets = client.ask(fetch(groups=[fetch.Group(group_id=payers.GROUP, topics=None)]), 8)
    assert isinstance(offsets, messages.OffsetFetchResponse)
    assert offsets.groups[0].error_code in COORDINATOR_MAY_ANSWER, f"OffsetFetch answers {offsets.groups[0].error_code}"


def one_round(data_dir: Path, harms: list[Harm], truth: dict[Key, Content]) -> Outcome:
    scanned = {key: scanned_from(data_dir, key) for key in nursery.PARTITIONS + nursery.INTERNAL}
    patient = Patient(data_dir, nursery.AT_REST)
    try:
        if not patient.serves:
            assert any(not one.room or one.room == METADATA for one in harms), (
                f"one partition's damage keeps the broker from starting: {patient.refusal}"
            )
            return Outcome("refused", [])
        found = read_all(patient, scanned)
        read_by_librdkafka(patient, found)
        ends = live_on(patient, found)
        patient.stop()  # then its log is whole
        judge(data_dir, harms, truth, scanned, found, patient.events())
    finally:
        patient.close()
    left = segments_read_through(data_dir, scanned, found)
    examine_again(data_dir, left)
    again = Patient(data_dir, nursery.AT_REST)
    try:
        assert again.serves, f"the next start is refused: {again.refusal}"
        with Client(again.port) as client:
            for key, end in ends.items():
                error, now = ask_offset(client, key, -1)
                assert not error, f"{key}: error {error} after a restart"
                assert now == end or (key in nursery.WITH_MARKERS and now > end), f"{key}: {now}, not {end}, now"
        again.stop()
    finally:
        again.close()
    hurt = any(content.error or content.wrong for content in found.values())
    return Outcome("served in part" if hurt else "served", left)


def segments_read_through(data_dir: Path, scanned: dict[Key, int | None], found: dict[Key, Content]) -> list[Path]:
    """Logs and their indexes as recovery left them, in partitions that are served."""
    left = []
    for key, since in scanned.items():
        if since is None or found[key].error:
            continue
        for path in sorted(data_dir.glob(f"{room_of(key)}/*.log")):
            if int(path.stem) >= since:
                suffixes = (".log", ".index", ".timeindex", ".txnindex")
                left += [one for one in map(path.with_suffix, suffixes) if one.is_file()]
    return left


def examine_again(data_dir: Path, left: list[Path]) -> None:
    """The doctor has nothing to say of them either."""
    said = [one for one in examine(data_dir, threads=1).findings if one.path in left]
    assert not said, f"doctor --deep: {said[0]}"


class Campaign:
    def __init__(self, seed: int, home: Path, *, apache: bool) -> None:
        self.seed, self.home, self.apache = seed, home, apache
        self.left: list[Path] = []
        self.templates = nursery.make(home / "templates")
        self.truth: dict[str, dict[Key, Content]] = {}
        self.outcomes: Counter[str] = Counter()
        self.harmed: Counter[str] = Counter()
        for name, template in self.templates.items():
            shutil.copytree(template, home / f"whole-{name}")
            patient = Patient(home / f"whole-{name}", nursery.AT_REST)
            self.truth[name] = read_all(patient)
            patient.kill()
            patient.close()
            assert all(not one.error and not one.wrong and one.records for one in self.truth[name].values())

    def run(self, number: int) -> int | None:
        """Its number when it fails: why is told at once."""
        draw = f"{self.seed}/{number}"
        name = random.Random(f"{draw}/template").choice(sorted(self.templates))
        data_dir = self.home / f"round-{number}"
        shutil.copytree(self.templates[name], data_dir, symlinks=True)
        harms = harm(data_dir, draw)
        try:
            outcome, left = one_round(data_dir, harms, self.truth[name])
        except Exception as failure:
            line = f"round {number} ({name}, {'; '.join(map(str, harms))}), kept in {data_dir}:\n{failure!r}"
            print(line.replace("\\n", "\n"), flush=True)
            return number
        self.outcomes[f"{name}: {outcome}"] += 1
        self.harmed.update(one.kind for one in harms)
        if self.apache and left:
            self.left += left  # Apache's turn comes when there is enough for a JVM
        else:
            shutil.rmtree(data_dir)
        return None

    def ask_apache(self) -> list[str]:
        """kafka-dump-log, deep iteration and index checks, on everything that recovery left."""
        complaints = []
        for start in range(0, len(self.left), _FILES_A_JVM):
            files = self.left[start : start + _FILES_A_JVM]
            logs = [path for path in files if path.suffix == ".log" and path.stat().st_size]
            indexes = [path for path in files if path.suffix != ".log" and path.stat().st_size]
            for options, asked in ((("--deep-iteration",), logs), ((), indexes)):
                if asked:
                    result = run_tool("kafka-dump-log", *options, "--files", ",".join(map(str, asked)))
                    complaints += [] if result.exit_code == 0 else [result.err[-2000:]]
                    text = result.out.replace("isvalid: true", "")
                    complaints += [line for line in text.splitlines() if _COMPLAINT.search(line)]
        return complaints


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--first", type=int, default=1, help="the round to begin with")
    parser.add_argument("--only", type=int, help="one round of a seed, again")
    parser.add_argument("--apache", action="store_true", help="kafka-dump-log judges what recovery left")
    parser.add_argument("--at-once", type=int, default=2)
    arguments = parser.parse_args()
    print(f"decay: {arguments.rounds} rounds, seed {arguments.seed}", flush=True)
    home = Path(tempfile.mkdtemp(prefix="kbroker-decay-"))
    campaign = Campaign(arguments.seed, home, apache=arguments.apache)
    numbers = range(arguments.first, arguments.rounds + 1) if arguments.only is None else [arguments.only]
    with ThreadPoolExecutor(arguments.at_once) as pool:
        failed = [number for number in pool.map(campaign.run, numbers) if number is not None]
    complaints = campaign.ask_apache()
    if arguments.apache:
        print("\n".join([*complaints, f"decay: kafka-dump-log has read {len(campaign.left)} files that recovery left"]))
    for outcome, count in sorted(campaign.outcomes.items()):
        print(f"decay: {count:5d} {outcome}")
    print("decay: harmed " + ", ".join(f"{kind} {count}" for kind, count in sorted(campaign.harmed.items())))
    if failed:
        print(f"decay: rounds that failed: {failed}; again with --seed {arguments.seed} --only ROUND")
    if failed or complaints:
        sys.exit(1)
    shutil.rmtree(home)
    print(f"decay: {len(numbers)} directories harmed, each served or refused in one sentence")


if __name__ == "__main__":
    main()
