"""kill -9 under acks=all load, again and again on one data directory: nothing acknowledged may be missing.

After every kill the broker is started on what it left, and each partition is read from its first offset: no gap, no
offset twice, and at every acknowledged offset the value that was acknowledged there.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

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
        assert partition is not None and offset is not None and isinstance(value, bytes)
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


def load(server: KbrokerServer, ledger: Ledger, stop: threading.Event, number: int, seed: int) -> None:
    """One producer that never stops by itself; what is unacknowledged when the broker dies is simply forgotten."""
    chance = random.Random(seed)
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "acks": "all",
            "enable.idempotence": number % 2 == 0,
            "linger.ms": number,
            "compression.type": ("none", "lz4", "zstd", "gzip", "snappy")[chance.randrange(5)],
            "message.timeout.ms": 60_000,
            "log_level": 0,
        }
    )
    serial = 0
    while not stop.is_set():
        value = f"{seed}:{serial}:".encode() + chance.randbytes(chance.randrange(2_000))
        try:
            producer.produce(TOPIC, value, partition=serial % PARTITIONS, on_delivery=ledger.delivered)
            serial += 1
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    producer.purge()


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
            for message in consumer.consume(5_000, timeout=30):
                if message.error() is not None:
                    raise AssertionError(f"partition {partition}: {message.error()}")
                offset, value = message.offset(), message.value()
                assert offset is not None and isinstance(value, bytes)
                if offset != expected:
                    raise AssertionError(f"partition {partition}: offset {offset} where {expected} was due")
                found[partition, offset] = value
                expected += 1
    consumer.close()
    return found


def one_round(data_dir: Path, ledger: Ledger, chance: random.Random) -> None:
    server = KbrokerServer(data_dir)
    stop = threading.Event()
    loads = [
        threading.Thread(target=load, args=(server, ledger, stop, number, chance.getrandbits(32))) for number in range(3)
    ]
    try:
        for thread in loads:
            thread.start()
        ledger.wait_for(len(ledger.acknowledged) + chance.randrange(200, 5_000))
    finally:
        server.process.kill()
        server.process.wait()
        stop.set()
        for thread in loads:
            thread.join()


def verify(data_dir: Path, ledger: Ledger) -> None:
    server = KbrokerServer(data_dir)
    try:
        found = read_back(server)
    finally:
        server.stop(keep_data=True)
    for place, value in ledger.acknowledged.items():
        if found.get(place) != value:
            raise AssertionError(f"acknowledged at {place} and {'changed' if place in found else 'missing'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    arguments = parser.parse_args()
    print(f"crash: {arguments.rounds} rounds, seed {arguments.seed}", flush=True)
    chance, ledger = random.Random(arguments.seed), Ledger()
    data_dir = Path(tempfile.mkdtemp(prefix="kbroker-crash-"))
    first = KbrokerServer(data_dir, config={"log.segment.bytes": str(4 * 1024 * 1024)})
    admin = AdminClient({"bootstrap.servers": first.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    first.stop(keep_data=True)
    for number in range(1, arguments.rounds + 1):
        one_round(data_dir, ledger, chance)
        # Reading everything back each time is quadratic; every fifth round and the last are enough to catch a loss.
        if number % 5 == 0 or number == arguments.rounds:
            verify(data_dir, ledger)
            print(f"crash: round {number}: {len(ledger.acknowledged)} acknowledged records, all there", flush=True)
    shutil.rmtree(data_dir)
    print(f"crash: {arguments.rounds} kills, nothing acknowledged was lost")


if __name__ == "__main__":
    sys.exit(main())
