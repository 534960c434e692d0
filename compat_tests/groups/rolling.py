"""A service whose processes are restarted one by one, to the consumer protocol and then back to the classic one."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from compat_tests.client import WAIT_SECONDS
from compat_tests.harness import Broker
from compat_tests.raw.talk import Talk
from compat_tests.until import until

PARTITIONS, PROCESSES, A_STAGE = 6, 3, 60
CLASSIC: dict[str, Any] = {"group.protocol": "classic", "session.timeout.ms": 10_000, "heartbeat.interval.ms": 500}
CONSUMER: dict[str, Any] = {"group.protocol": "consumer"}


class Service:
    def __init__(self, broker: Broker, name: str, strategy: str) -> None:
        self._bootstrap = broker.bootstrap
        self._group = name
        talk = Talk(broker.bootstrap, name)
        try:
            self.topic = talk.topic(PARTITIONS).name
        finally:
            talk.close()
        self._classic = {**CLASSIC, "partition.assignment.strategy": strategy}
        self._producer = Producer({"bootstrap.servers": broker.bootstrap})
        self.sent = 0
        self.committed: list[tuple[int, int]] = []
        self._taken: dict[int, list[tuple[int, int]]] = {}  # by process: not committed yet
        self.processes = [self.process(self._classic) for _ in range(PROCESSES)]

    def process(self, kind: dict[str, Any]) -> Consumer:
        common: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "group.id": self._group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        made = Consumer({**common, **kind})
        made.subscribe([self.topic])
        return made

    def restart(self, index: int, *, consumer: bool) -> None:
        self.processes[index].close()
        self._taken.pop(index, None)
        self.processes[index] = self.process(CONSUMER if consumer else self._classic)

    def send(self) -> None:
        for _ in range(A_STAGE):
            self._producer.produce(self.topic, str(self.sent).encode(), partition=self.sent % PARTITIONS)
            self.sent += 1
        assert self._producer.flush(WAIT_SECONDS) == 0

    def turn(self) -> None:
        """Everyone takes a record and commits it. In the middle of a rebalance it may have to try again."""
        for index, one in enumerate(self.processes):
            message = one.poll(0.02)
            taken = self._taken.setdefault(index, [])
            if message is not None and message.error() is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None  # noqa: PT018 - the library's types say they may be
                taken.append((partition, offset))
            if taken:
                self._commit(one, taken)

    def _commit(self, one: Consumer, taken: list[tuple[int, int]]) -> None:
        """What it lost before it could commit is somebody else's to do again."""
        held = {place.partition for place in one.assignment()}
        taken[:] = [place for place in taken if place[0] in held]
        for partition, offset in list(taken):
            try:
                one.commit(offsets=[TopicPartition(self.topic, partition, offset + 1)], asynchronous=False)
            except KafkaException:
                return
            taken.remove((partition, offset))
            self.committed.append((partition, offset))

    def stage(self) -> None:
        """Records are sent while members come and go; at its end all are committed, and everyone has its share."""
        self.send()

        def done() -> bool:
            self.turn()
            shares = [len(one.assignment()) for one in self.processes]
            return len(set(self.committed)) == self.sent and shares == [PARTITIONS // PROCESSES] * PROCESSES

        until(done, 3 * WAIT_SECONDS)


def rolled_over_and_back(broker: Broker, strategy: str) -> Any:
    service = Service(broker, f"rolling-{strategy}", strategy)
    try:
        service.stage()
        for consumer in (True, False):
            for index in range(PROCESSES):
                service.restart(index, consumer=consumer)
                service.stage()
    finally:
        for one in service.processes:
            one.close()
    return {"committed": len(service.committed), "different": len(set(service.committed)), "sent": service.sent}
