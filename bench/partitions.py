"""A broker that holds 5,000 partitions, kbroker and Apache Kafka in turn: how long it takes to make them, to come back
after a clean stop and after a kill, and what it costs to have them.

    make partitions            ROUNDS=… (3)

Every partition holds records of an idempotent producer. A start is over when Metadata names a leader for each partition
and ListOffsets tells where each one ends: that no record is missing is checked with the clock already stopped. A broker
is killed right after one more batch went into every partition, so that each of them has a tail that nobody has flushed.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import frames, report
from bench.client import Client
from bench.outcome import Race
from bench.race import APACHE, RESULTS, interleave, rows_of
from bench.servers import SETTINGS, ApacheServer, KbrokerServer, Server
from bench.settle import Ballast
from bench.works.latency import at_rest
from bench.works.measure import Figures
from kbroker._core.record.records import Record, build_batch
from kbroker.protocol import messages

TOPICS, PARTITIONS = 100, 50
NAMES = [f"many{number:03d}" for number in range(TOPICS)]
RECORDS_A_BATCH, RECORD_BYTES = 10, 100
BATCHES_AT_FIRST = 3
IDLE_SECONDS = 20.0
WORK = f"{TOPICS * PARTITIONS:,} partitions"
LIST_OFFSETS_VERSION = 7
LATEST = -1
PATIENCE_S = 300
ASK_AGAIN_S = 0.02  # a broker that is not ready yet is not to be kept from it by our questions

TEXT = """\
## {partitions:,} partitions

Written by `make partitions`, last for commit {commit} at {at}. Medians of {rounds} rounds, in turn.

{table}
- Each of {topics} topics has {each} partitions, and each partition records of an idempotent producer.
- **Create**: all topics in one request, until Metadata names a leader for each partition; *first records* until each
  one has also taken a batch. The **stop** is a clean one, after three batches for each partition.
- **Restart**: from the start of the process until Metadata names a leader and ListOffsets an end for each partition.
  The kill comes right after one more batch for each of them, and no acknowledged record may be missing.
- **At rest** is after the start, **in use** after every partition has taken one more batch. Open files are descriptors
  of files; mapped ones are data files in the process's memory map.
- **Idle CPU** is that of {idle:g} s in which nobody asks for anything.
"""


class Crowd:
    """The partitions of one broker, and how far each of them has come."""

    def __init__(self) -> None:
        self.sequence = 0
        self.producer_id = -1

    @property
    def end(self) -> int:
        return self.sequence

    def create(self, client: Client) -> None:
        client.create_topics(NAMES, PARTITIONS)
        client.await_leaders(set(NAMES), PARTITIONS)

    def produce(self, client: Client) -> None:
        """One batch for each partition, a request for each topic."""
        while self.producer_id < 0:  # a broker that has just come up may ask for patience
            time.sleep(ASK_AGAIN_S)
            answer = client.ask(messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
            assert isinstance(answer, messages.InitProducerIdResponse)
            self.producer_id = answer.producer_id
        now_ms = int(time.time() * 1000)
        batch = build_batch(
            [Record(timestamp=now_ms, value=b"v" * RECORD_BYTES) for _ in range(RECORDS_A_BATCH)],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        for name in NAMES:
            self._produce_to(client, name, batch)
        self.sequence += RECORDS_A_BATCH

    def _produce_to(self, client: Client, name: str, batch: bytes) -> None:
        one = messages.ProduceRequest.PartitionProduceData
        topic = messages.ProduceRequest.TopicProduceData(
            name=name, partition_data=[one(index=index, records=batch) for index in range(PARTITIONS)]
        )
        request = messages.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        deadline = time.monotonic() + PATIENCE_S
        while True:  # Apache Kafka names a leader before it leads; a batch that comes twice is known by its sequence
            answer = client.ask(request, frames.PRODUCE_VERSION)
            assert isinstance(answer, messages.ProduceResponse)
            errors = {part.error_code for part in answer.responses[0].partition_responses} - {0}
            if not errors:
                return
            assert time.monotonic() < deadline, f"{name} does not take records everywhere: errors {sorted(errors)}"
            time.sleep(ASK_AGAIN_S)

    def ends(self, client: Client) -> list[int]:
        """Where each partition ends; -1: it does not say."""
        part, topic = messages.ListOffsetsRequest.ListOffsetsPartition, messages.ListOffsetsRequest.ListOffsetsTopic
        topics = [
            topic(name=name, partitions=[part(partition_index=index, timestamp=LATEST) for index in range(PARTITIONS)])
            for name in NAMES
        ]
        answer = client.ask(messages.ListOffsetsRequest(topics=topics), LIST_OFFSETS_VERSION)
        assert isinstance(answer, messages.ListOffsetsResponse)
        return [one.offset for each in answer.topics for one in each.partitions]

    def await_served(self, client: Client) -> None:
        client.await_leaders(set(NAMES), PARTITIONS)
        deadline = time.monotonic() + PATIENCE_S
        while min(self.ends(client)) < 0:
            assert time.monotonic() < deadline, "not every partition is served"
            time.sleep(ASK_AGAIN_S)

    def check(self, client: Client) -> None:
        ends = self.ends(client)
        assert ends == [self.end] * (TOPICS * PARTITIONS), f"expected {self.end} everywhere, not {sorted(set(ends))}"


def life(make: Callable[[Path | None], Server]) -> Figures:
    """One broker from an empty directory through a clean stop and a kill."""
    found: Figures = {}
    crowd = Crowd()
    born = make(None)
    directory = born.data_dir
    try:
        with Client(born.port) as client:
            began = time.monotonic()
            crowd.create(client)
            found["seconds to create"] = time.monotonic() - began
            crowd.produce(client)
            found["seconds to create, and first records"] = time.monotonic() - began
            for _ in range(BATCHES_AT_FIRST - 1):
                crowd.produce(client)
        began = time.monotonic()
        born.stop(keep_data=True)
        found["seconds to stop"] = time.monotonic() - began
        born = make(directory)
        found["seconds to restart, after a clean stop"] = served(born, crowd)
        measure(born, crowd, found)
        with Client(born.port) as client:
            crowd.produce(client)
        born.kill()
        born = make(directory)
        found["seconds to restart, after a kill"] = served(born, crowd)
        born.stop(keep_data=True)
        return found
    except BaseException:
        born.kill()
        raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def served(server: Server, crowd: Crowd) -> float:
    with Client(server.port) as client:
        crowd.await_served(client)
        seconds = time.monotonic() - server.spawned_at
        crowd.check(client)
    return seconds


def measure(server: Server, crowd: Crowd, found: Figures) -> None:
    at_rest(server)
    found["MiB resident, at rest"] = server.resident_mib()
    found["open files, at rest"] = server.open_files()
    found["mapped files, at rest"] = server.mapped_files()
    cpu = -server.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    cpu += server.cpu_seconds()
    found["CPU ms per second, idle"] = cpu / IDLE_SECONDS * 1000
    with Client(server.port) as client:
        crowd.produce(client)
    found["MiB resident, in use"] = server.resident_mib()
    found["open files, in use"] = server.open_files()
    found["mapped files, in use"] = server.mapped_files()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("kbroker", "apache"), help="one broker, nothing is written")
    asked = parser.parse_args()
    makers: dict[str, Callable[[Path | None], Server]] = {
        "kbroker": lambda directory: KbrokerServer(directory, config=SETTINGS),
        APACHE: ApacheServer,
    }
    ballast = Ballast()
    try:
        if asked.only:
            make = makers["kbroker" if asked.only == "kbroker" else APACHE]
            for name, value in life(make).items():
                print(f"{name:40} {value:10.2f}")
            return
        seen = interleave({name: partial(life, make) for name, make in makers.items()}, asked.rounds, ballast.settle)
    finally:
        ballast.drop()
    rows = list(rows_of(WORK, APACHE, seen["kbroker"], seen[APACHE]))
    for row in rows:
        print(report.line(row))
    race = Race.of(rows, rounds=asked.rounds, warm_minutes=0)
    print(f"kept in {race.keep(RESULTS, 'partitions')}")
    report.put_section("partitions", section(race))


def section(race: Race) -> str:
    return TEXT.format(
        commit=race.commit,
        at=race.at,
        rounds=race.rounds,
        table=report.table(APACHE, race.rows),
        partitions=TOPICS * PARTITIONS,
        topics=TOPICS,
        each=PARTITIONS,
        idle=IDLE_SECONDS,
    )


if __name__ == "__main__":
    main()
