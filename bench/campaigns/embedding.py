"""Embedded brokers: many in one process, and hosts that fork, spawn and die at random, by seed.

    --brokers N        N brokers one after the other: threads, descriptors and memory stay flat
    --combinations N   N host processes, each with a broker, children and an end drawn from the seed: no acknowledged
                       record is lost, nothing hangs, no process and no temporary directory stays

A host prints each value once its record is acknowledged. If it had a data directory, a broker is started on it
afterwards and every printed value must be read back.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer

import kbroker

WAYS = ("os.fork", "fork", "forkserver", "spawn")
DEEDS = ("nothing", "stop", "exit", "_exit", "kill", "produce", "broker")
ENDS = ("stop", "forget", "_exit", "SIGTERM", "SIGKILL")
HOST_MAX_S = 60.0
LEAVE_MAX_S = 10.0
WARM_UP = 50
GROWTH_MAX_KIB = 10_000
TOPIC = "embedded"


def produce(bootstrap_servers: str, values: list[str]) -> None:
    """Returns when every record is acknowledged, and prints its value then."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value)
    if producer.flush(30) != 0:
        raise RuntimeError("records were not acknowledged within 30 s")
    os.write(1, "".join(f"acknowledged {value}\n" for value in values).encode())


def read(bootstrap_servers: str, count: int) -> set[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "judge", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    found: set[str] = set()
    until = time.monotonic() + 30
    while len(found) < count and time.monotonic() < until:
        found |= {(message.value() or b"").decode() for message in consumer.consume(500, timeout=0.5)}
    consumer.close()
    return found


def act(deed: str, bootstrap_servers: str, name: str) -> None:
    """What a child does, besides what it does with its parent's broker object."""
    if deed == "produce":
        produce(bootstrap_servers, [f"{name}-{number}" for number in range(20)])
    elif deed == "broker":
        with kbroker.Broker() as own:
            produce(own.bootstrap_servers, [])
    elif deed == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif deed == "_exit":
        os._exit(0)


def fork_child(broker: kbroker.Broker, deed: str, name: str) -> None:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    if deed == "stop":
        broker.stop()
    act(deed, broker.bootstrap_servers, name)
    if deed == "exit":
        sys.exit(0)  # through atexit
    os._exit(0)


def host(plan: dict[str, object]) -> None:
    """One host process: a broker, the children of the plan, the end of the plan."""
    broker = kbroker.Broker(str(plan["directory"]) if plan["directory"] else None).start()
    os.write(1, f"directory {broker.data_dir}\n".encode())
    children = plan["children"]
    assert isinstance(children, list)
    for number, (way, deed) in enumerate(children):
        produce(broker.bootstrap_servers, [f"host-{number}-{each}" for each in range(20)])
        if way == "os.fork":
            fork_child(broker, deed, f"child-{number}")
        else:
            worker = multiprocessing.get_context(way).Process(
                target=act, args=(deed, broker.bootstrap_servers, f"child-{number}")
            )
            worker.start()
            worker.join()
    end = str(plan["end"])
    if end == "stop":
        broker.stop()
    elif end == "_exit":
        os._exit(0)
    elif end.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, end))


def combination(seed: int) -> int:
    """Runs one host and judges what it left. Returns how many records were acknowledged; RuntimeError with the plan."""
    draw = random.Random(seed)
    directory = tempfile.mkdtemp(prefix="embedding-") if draw.random() < 0.5 else None
    children = [(draw.choice(WAYS), draw.choice(DEEDS)) for _ in range(draw.randint(1, 3))]
    plan: dict[str, object] = {"directory": directory, "children": children, "end": draw.choice(ENDS)}
    try:
        return _run_and_judge(seed, plan)
    finally:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


def _run_and_judge(seed: int, plan: dict[str, object]) -> int:
    def wrong(what: str, said: str = "") -> RuntimeError:
        return RuntimeError(f"seed {seed}, {plan}: {what}\n{said}")

    command = [sys.executable, "-m", "bench.campaigns.embedding", "--host", json.dumps(plan)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said, complaints = process.communicate(timeout=HOST_MAX_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise wrong("the host hung", str(process.communicate())) from None
    end = str(plan["end"])
    expected = -getattr(signal, end) if end.startswith("SIG") else 0
    if process.returncode != expected or "Traceback" in complaints:
        raise wrong(f"the host ended with {process.returncode}", complaints)
    lines = said.splitlines()
    acknowledged = {line.split(" ", 1)[1] for line in lines if line.startswith("acknowledged ")}
    used = Path(next(line.split(" ", 1)[1] for line in lines if line.startswith("directory ")))
    if plan["directory"]:
        with kbroker.Broker(used) as again:
            lost = acknowledged - read(again.bootstrap_servers, len(acknowledged))
        if lost:
            raise wrong(f"{len(lost)} acknowledged records are lost, one of them {min(lost)}")
    else:
        with kbroker.Broker():  # reaps what the dead have left
            pass
        if used.parent.exists():
            raise wrong(f"{used.parent} is left")
    if left := _left_of_group(process.pid):
        raise wrong(f"processes are left: {left}")
    return len(acknowledged)


def _left_of_group(group: int) -> list[str]:
    """Processes of a dead host. multiprocessing's own helpers notice its end a moment later, so they get some time."""
    until = time.monotonic() + LEAVE_MAX_S
    while True:
        listed = subprocess.run(["ps", "-o", "pid=", "-g", str(group)], capture_output=True, text=True, check=False)
        left = listed.stdout.split()
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.02)


def many(count: int) -> None:
    """SystemExit if threads, descriptors or memory grow over `count` brokers, after some to warm up."""

    def held() -> tuple[int, int, int]:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return threading.active_count(), len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE") // 1024

    before, began = held(), time.monotonic()
    for number in range(count):
        with kbroker.Broker():
            pass
        if number == WARM_UP:
            before = held()
    after = held()
    print(
        f"{count} brokers in {time.monotonic() - began:.0f} s: threads {before[0]} -> {after[0]}, "
        f"descriptors {before[1]} -> {after[1]}, resident {before[2]} -> {after[2]} KiB"
    )
    if after[:2] != before[:2] or after[2] - before[2] > GROWTH_MAX_KIB:
        raise SystemExit("something is left behind by each broker")


def combinations(count: int, seed: int) -> None:
    """SystemExit if a temporary directory is left; combination() raises what else went wrong."""
    began, records = time.monotonic(), 0
    print(f"{count} combinations, seed {seed}", flush=True)
    for number in range(count):
        records += combination(seed * 100_000 + number)
    left = [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("kbroker-")]  # not forkserver's
    if left:
        raise SystemExit(f"temporary directories are left: {sorted(left)}")
    print(f"{records} records acknowledged, none lost; nothing hung, nothing left; {time.monotonic() - began:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=0)
    parser.add_argument("--combinations", type=int, default=0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--host", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.host is not None:
        host(arguments.host)
        return
    if arguments.brokers:
        many(arguments.brokers)
    if arguments.combinations:
        with tempfile.TemporaryDirectory(prefix="embedding-") as place:
            # A directory of the campaign's own: brokers of other programs come and go in the system's.
            os.environ["TMPDIR"] = tempfile.tempdir = place
            combinations(arguments.combinations, arguments.seed)


if __name__ == "__main__":
    main()
