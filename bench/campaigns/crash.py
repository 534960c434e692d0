"""kill -9 under acks=all load, again and again on one data directory: nothing acknowledged may be missing.

After every kill the broker is started on what it left, and each partition is read from its first offset: no gap, no
offset twice, no record twice, and at every acknowledged offset the value that was acknowledged there. Idempotent
producers live through the kills: what was not answered they send again, and the broker must know it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import threading
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.servers import KbrokerServer

PARTITIONS = 3
TOPIC = "crash"


class Ledger:
    """What the broker acknowledged: the value at each partition and offset."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.lock = threading.Lock()
        self.grew = threading.Condition(self.lock)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        with self.grew:
            place = (partition, offset)
            if self.acknowledged.get(place, value) != value:
                raise AssertionError(f"two values acknowledged at {place}")
            self.acknowledged[place] = value
            self.grew.notify_all()

    def wait_for(self, count: int) -> None:
        with self.grew:
            if not self.grew.wait_for(lambda: len(self.acknowledged) >= count, timeout=60):
                raise AssertionError(f"only {len(self.acknowledged)} of {count} records acknowledged in 60 s")


class Load(threading.Thread):
    """A producer that never stops by itself. An idempotent one outlives the kills, and sends the unanswered again."""

    def __init__(self, bootstrap: str, ledger: Ledger, seed: int, *, idempotent: bool) -> None:
        super().__init__(daemon=True)
        self.ledger, self.seed = ledger, seed
        self.chance = random.Random(seed)
        self.ended = threading.Event()
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": self.chance.randrange(5),
                "compression.type": self.chance.choice(("none", "lz4", "zstd", "gzip", "snappy")),
                "queue.buffering.max.messages": 5_000,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        serial = 0
        while not self.ended.is_set():
            value = f"{self.seed}:{serial}:".encode() + self.chance.randbytes(self.chance.randrange(2_000))
            try:
                self.producer.produce(TOPIC, value, partition=serial % PARTITIONS, on_delivery=self.ledger.delivered)
                serial += 1
                self.producer.poll(0)
            except BufferError:
                self.producer.poll(0.01)

    def end(self) -> None:
        """What is unanswered is forgotten: it may or may not be in the log."""
        self.ended.set()
        self.join()
        self.producer.purge()


def read_back(server: KbrokerServer) -> dict[tuple[int, int], bytes]:
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "crash", "enable.auto.commit": False, "check.crcs": True}
    )
    found: dict[tuple[int, int], bytes] = {}
    for partition in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=30)
        consumer.assign([TopicPartition(TOPIC, partition, low)])
        expected = low
        while expected < high:
            for message in consumer.consume(min(5_000, high - expected), timeout=30):
                if message.error() is not None:
                    raise AssertionError(f"partition {partition}: {message.error()}")
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert isinstance(value, bytes)
                if offset != expected:
                    raise AssertionError(f"partition {partition}: offset {offset} where {expected} was due")
                found[partition, offset] = value
                expected += 1
    consumer.close()
    return found


def one_round(data_dir: Path, port: int, ledger: Ledger, chance: random.Random) -> None:
    server = KbrokerServer(data_dir, port=port)
    mortal = Load(server.bootstrap, ledger, chance.getrandbits(48), idempotent=False)
    try:
        mortal.start()
        ledger.wait_for(len(ledger.acknowledged) + chance.randrange(200, 5_000))
    finally:
        server.process.kill()
        server.process.wait()
        mortal.end()


def verify(data_dir: Path, ledger: Ledger) -> None:
    server = KbrokerServer(data_dir)
    try:
        found = read_back(server)
    finally:
        server.stop(keep_data=True)
    if len(set(found.values())) != len(found):
        raise AssertionError("a record stands in the log twice")
    for place, value in ledger.acknowledged.items():
        if found.get(place) != value:
            raise AssertionError(f"acknowledged at {place} and {'changed' if place in found else 'missing'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--keep", type=Path, help="put the data here and leave it, for another judge")
    arguments = parser.parse_args()
    print(f"crash: {arguments.rounds} rounds, seed {arguments.seed}", flush=True)
    chance, ledger = random.Random(arguments.seed), Ledger()
    data_dir = arguments.keep or Path(tempfile.mkdtemp(prefix="kbroker-crash-"))
    first = KbrokerServer(data_dir, config={"log.segment.bytes": str(4 * 1024 * 1024)})
    admin = AdminClient({"bootstrap.servers": first.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    first.stop(keep_data=True)
    survivors = [Load(first.bootstrap, ledger, chance.getrandbits(48), idempotent=True) for _ in range(2)]
    for survivor in survivors:
        survivor.start()
    try:
        for number in range(1, arguments.rounds + 1):
            one_round(data_dir, first.port, ledger, chance)
            # Reading everything back each time is quadratic; every tenth round and the last are enough to catch a loss.
            if number % 10 == 0 or number == arguments.rounds:
                verify(data_dir, ledger)
                print(f"crash: round {number}: {len(ledger.acknowledged)} acknowledged records, all there", flush=True)
    finally:
        for survivor in survivors:
            survivor.end()
    if arguments.keep is None:
        shutil.rmtree(data_dir)
    print(f"crash: {arguments.rounds} kills, nothing acknowledged was lost, nothing stands twice")


if __name__ == "__main__":
    main()
