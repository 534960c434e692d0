"""One run: a broker behind a wire, and clients that come, go wrong and are replaced."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.campaigns.jepsen.history import Copy, History, Operation, read
from bench.campaigns.jepsen.lies import Lie
from bench.campaigns.jepsen.proxy import Proxy
from bench.campaigns.jepsen.trouble import Trouble
from bench.campaigns.jepsen.worker import GROUP, PARTITIONS, QUEUE, SOURCE, TARGET, place_and_value
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle.apache import ApacheKafka
from compat_tests.oracle.jars import java, kafka_class_path

Cast = tuple[tuple[str, str, int], ...]  # role, language, how many
CAST: Cast = (
    ("writer", "python", 2),
    ("writer", "java", 1),
    ("copier", "python", 1),
    ("copier", "java", 1),
    ("feeder", "python", 1),
    ("reader", "python", 1),
)
TRANSACTIONAL = {"writer", "copier"}
PLACES = [(topic, number) for topic in (QUEUE, SOURCE, TARGET) for number in range(PARTITIONS)]
OFFSETS, OFFSETS_PARTITIONS = "__consumer_offsets", 5
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
SETTLE_S = 120.0
ENDING_S = 40.0
TIMED_OUT_S = 30.0  # much longer than the transactions' timeout and how often the broker looks
SILENT_S = 15.0  # longer than any trouble
GHOST_S = 30.0  # how long whoever was replaced goes on, its pause included


class Broker(Protocol):
    def start(self) -> object: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...


class Stuck(Exception):  # noqa: N818  what a run ends with
    """Everything is healed, and yet something does not come."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def java_worker(home: Path) -> list[str]:
    """Compiled once a run. Its client logs nothing."""
    classes = home / "classes"
    path = kafka_class_path()
    compiler = Path(java()).resolve().with_name("javac")
    subprocess.run([compiler, "-cp", path, "-d", classes, Path(__file__).with_name("Worker.java")], check=True)
    light = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF"]
    return [java(), *light, "-cp", f"{path}:{classes}", "Worker"]


class Node:
    """The broker of a run, of either kind, and always at the address that the wire leads to."""

    def __init__(self, kind: str, home: Path, proxy: Proxy, module: str) -> None:
        settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        self._proxy = proxy
        self._kind = kind
        if kind == "apache":
            self._apache = ApacheKafka(home / "apache", settings=settings)
            self.broker: Broker = self._apache
        else:
            options = tuple(word for key, value in settings.items() for word in ("--config", f"{key}={value}"))
            self._port = free_port()
            self._ours = KBroker(home / "kbroker", options=options, port=self._port, module=module)
            self.broker = self._ours

    @property
    def pid(self) -> int:
        return self._apache.pid if self._kind == "apache" else self._ours.process.pid

    @property
    def mistakes(self) -> list[str]:
        return [] if self._kind == "apache" else self._ours.errors

    def start(self) -> None:
        self.broker.start()
        bound = int(self._apache.bootstrap.rpartition(":")[2]) if self._kind == "apache" else self._port
        self._proxy.target = bound

    def kill(self) -> None:
        self._proxy.target = 0
        self.broker.kill()

    def stop(self) -> None:
        self.broker.stop()


@dataclass
class Actor:
    """One name among the clients; who bears it changes."""

    role: str
    language: str
    id: str
    process: subprocess.Popen[bytes] | None = None
    lives: int = 0
    diaries: list[Path] = field(default_factory=list)


class Stage:
    def __init__(
        self,
        home: Path,
        seed: int,
        broker: str = "kbroker",
        *,
        cast: Cast = CAST,
        module: str = "kbroker",
        lie: type[Lie] | None = None,
    ) -> None:
        self.home = home
        self.seed = seed
        self.actors = [
            Actor(role, language, f"{language}-{role}{number}")
            for role, language, count in cast
            for number in range(count)
        ]
        self._commands = {"python": [sys.executable, "-m", "bench.campaigns.jepsen.worker"]}
        if any(actor.language == "java" for actor in self.actors):
            self._commands["java"] = java_worker(home)
        self.proxy = Proxy(lie).start()
        self.node = Node(broker, home, self.proxy, module)
        self.hung: list[str] = []  # clients that had to be killed
        self._ghosts: dict[subprocess.Popen[bytes], float] = {}  # and since when

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.proxy.port}"

    def begin(self) -> None:
        self.node.start()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (QUEUE, SOURCE, TARGET)]).values():
            made.result(30)
        for actor in self.actors:
            self._enter(actor)

    def _enter(self, actor: Actor) -> None:
        actor.lives += 1
        name = f"{actor.id}.{actor.lives}"
        diary = self.home / f"{name}.jsonl"
        actor.diaries.append(diary)
        words = [actor.role, "--name", name, "--id", actor.id, "--bootstrap", self.bootstrap]
        actor.process = subprocess.Popen(
            [*self._commands[actor.language], *words, "--seed", str(self.seed), "--diary", diary],
            stderr=(self.home / f"{name}.err").open("wb"),
        )

    def revive(self) -> None:
        """Whoever has ended or has long done nothing is replaced.

        librdkafka can wait for ever for offsets it sent to a transaction, whatever the timeout and the broker.
        """
        self._lay_ghosts()
        for actor in self.actors:
            assert actor.process is not None
            diary = actor.diaries[-1]
            silent_s = time.time() - diary.stat().st_mtime if diary.exists() else 0.0
            if actor.process.poll() is None and silent_s > SILENT_S:
                self.hung.append(diary.stem)
                actor.process.kill()
                actor.process.wait()
            if actor.process.poll() is not None:
                self._enter(actor)

    def go_on(self, whose: str, operations: int) -> None:
        """Until so many more operations of one client, or of the clients of a role, have succeeded."""
        aim = self._succeeded(whose) + operations

        def reached() -> bool:
            self.revive()
            return self._succeeded(whose) >= aim

        self._await(f"{operations} more operations of {whose}", reached)

    def _succeeded(self, whose: str) -> int:
        diaries = [diary for actor in self.actors if whose in (actor.role, actor.id) for diary in actor.diaries]
        return sum(diary.read_bytes().count(b'"ok"') for diary in diaries if diary.exists())

    def suffer(self, trouble: Trouble) -> None:
        actor = self.actors[int(trouble.chance * len(self.actors))]
        assert actor.process is not None
        match trouble.kind:
            case "kill broker":
                self.node.kill()
                time.sleep(trouble.for_s)  # how long it is away is what is wanted
                self.node.start()
            case "pause broker":
                self._paused(self.node.pid, trouble.for_s)
            case "cut":
                self.proxy.cut()
            case "slow":
                self.proxy.slow(0.005 + trouble.chance * 0.2)
                time.sleep(trouble.for_s)
                self.proxy.heal()
            case "block":
                self.proxy.block()
                time.sleep(trouble.for_s)
                self.proxy.heal()
            case "kill client":
                actor.process.kill()
                actor.process.wait()
                time.sleep(trouble.for_s)
                self._enter(actor)
            case "pause client":
                self._paused(actor.process.pid, trouble.for_s)
            case "replace client":
                ghost = self.replace(actor)
                time.sleep(trouble.for_s)
                os.kill(ghost.pid, signal.SIGCONT)

    def replace(self, actor: Actor) -> subprocess.Popen[bytes]:
        """Another takes its name. The one before is paused, and will be fenced when it goes on."""
        ghost = actor.process
        assert ghost is not None
        os.kill(ghost.pid, signal.SIGSTOP)
        self._ghosts[ghost] = time.monotonic()
        self._enter(actor)
        return ghost

    def _lay_ghosts(self) -> None:
        """Who has no transactional id is never fenced: in an hour there would be more ghosts than clients."""
        for ghost, since in list(self._ghosts.items()):
            if time.monotonic() - since > GHOST_S:
                ghost.kill()
                ghost.wait()
                del self._ghosts[ghost]

    def _paused(self, pid: int, seconds: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    def finish(self) -> History:
        """Heals everything, lets everyone finish and what was left open time out, and reads what is there."""
        self.proxy.heal()
        for process in self._everyone():
            process.terminate()
        self._see_off()
        hanging = self._open_for_ever()
        for actor in self.actors:
            if actor.role in TRANSACTIONAL:
                self._end_what_it_left(actor.id)
        final = self._read_everything()
        unstable = any(name.startswith(OFFSETS) for name in hanging)
        copies = [Copy(SOURCE, TARGET, self._committed("read_uncommitted" if unstable else "read_committed"))]
        return History(self._operations(), final, copies, self.node.mistakes, hanging)

    def _everyone(self) -> list[subprocess.Popen[bytes]]:
        return [*(actor.process for actor in self.actors if actor.process is not None), *self._ghosts]

    def _see_off(self) -> None:
        deadline = time.monotonic() + ENDING_S
        for process in self._everyone():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.hung.append(Path(str(process.args[-1])).stem)  # type: ignore[index]
                process.kill()
                process.wait()

    def _await(self, what: str, reached: Callable[[], bool], far: Callable[[], int] = lambda: 0) -> None:
        """`far` tells how far it has come: as long as that grows, it is waited for."""
        come, deadline = far(), time.monotonic() + SETTLE_S
        while not reached():
            if far() > come:
                come, deadline = far(), time.monotonic() + SETTLE_S
            if time.monotonic() > deadline:
                raise Stuck(f"after {SETTLE_S:.0f} s without trouble, still not: {what}")
            time.sleep(0.02)

    def _end_what_it_left(self, transactional_id: str) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id, "log_level": 0}
        producer = Producer(settings)

        def ended() -> bool:
            try:
                producer.init_transactions(5)
            except KafkaException as error:
                if error.args[0].fatal():
                    raise Stuck(f"{transactional_id} cannot be taken over: {error}") from error
                return False
            return True

        self._await(f"{transactional_id} is taken over", ended)

    def _consumer(self, group: str, isolation: str = "read_committed") -> Consumer:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": group, "isolation.level": isolation}
        return Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False, "log_level": 0})

    def _read_everything(self) -> dict[str, list[tuple[int, str]]]:
        found: dict[str, list[tuple[int, str]]] = {f"{topic}-{number}": [] for topic, number in PLACES}
        consumer = self._consumer("the-end")
        consumer.assign([TopicPartition(topic, number, 0) for topic, number in PLACES])
        ended: set[str] = set()

        def read_on() -> bool:
            for message in consumer.consume(1000, 0.5):
                name = f"{message.topic()}-{message.partition()}"
                problem = message.error()
                if problem is None:
                    ended.discard(name)
                    found[name].append(place_and_value(message))
                elif problem.code() == KafkaError._PARTITION_EOF:
                    ended.add(name)
            return len(ended) == len(found)

        try:
            self._await("everything is read", read_on, lambda: sum(map(len, found.values())))
        finally:
            consumer.close()
        return found

    def _open_for_ever(self) -> dict[str, tuple[int, int]]:
        """Where a transaction is open though everyone has ended and had time to time out: to where it can be read."""
        committed, all_of_it = (self._consumer("the-ends", level) for level in ("read_committed", "read_uncommitted"))
        places = [*PLACES, *((OFFSETS, number) for number in range(OFFSETS_PARTITIONS))]
        deadline = time.monotonic() + TIMED_OUT_S
        try:
            while True:
                ends = {f"{topic}-{number}": self._end(all_of_it, topic, number) for topic, number in places}
                stable = {f"{topic}-{number}": self._end(committed, topic, number) for topic, number in places}
                found = {name: (stable[name], end) for name, end in ends.items() if stable[name] < end}
                if not found or time.monotonic() > deadline:
                    return found
                time.sleep(0.1)
        finally:
            committed.close()
            all_of_it.close()

    def _end(self, consumer: Consumer, topic: str, number: int) -> int:
        watermarks = consumer.get_watermark_offsets(TopicPartition(topic, number), 30)
        assert watermarks is not None
        return watermarks[1]

    def _committed(self, isolation: str) -> dict[str, int]:
        """At read_committed nobody is told an offset that a transaction may still change."""
        consumer = self._consumer(GROUP, isolation)
        try:
            told = consumer.committed([TopicPartition(SOURCE, number) for number in range(PARTITIONS)], 30)
        finally:
            consumer.close()
        return {f"{SOURCE}-{one.partition}": max(one.offset, 0) for one in told}

    def _operations(self) -> list[Operation]:
        return [
            operation
            for actor in self.actors
            for diary in actor.diaries
            if diary.exists()
            for operation in read(diary.stem, diary.read_text().splitlines(), transactional=actor.role in TRANSACTIONAL)
        ]

    def close(self) -> None:
        for process in self._everyone():
            process.kill()
            process.wait()
        self.node.broker.kill()
        self.proxy.stop()
