"""In a forked child a broker of the parent is inert, and the parent's broker does not notice the child."""

import gc
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import kbroker
from kbroker.server.broker_server import BrokerServer
from kbroker.tests.embedding.child import answers, ended, fork, run_forked, serve_round


def produce(bootstrap_servers: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce("forked", value)
    assert producer.flush(20) == 0


def values(bootstrap_servers: str, count: int) -> set[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe(["forked"])
    try:
        return {message.value().decode() for message in consumer.consume(count, timeout=20)}
    finally:
        consumer.close()


def test_stop_in_a_child_returns_and_leaves_the_parents_broker_running(broker: kbroker.Broker) -> None:
    assert run_forked(broker.stop) == 0
    serve_round(broker)


def test_leaving_the_with_block_in_a_child_returns_and_removes_nothing() -> None:
    with kbroker.Broker() as broker:
        alive_read, alive_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(alive_read)
            broker.__exit__(None, None, None)
            os._exit(0)
        os.close(alive_write)
        assert ended(pid, alive_read) == 0
        serve_round(broker)
    assert not broker.data_dir.exists()


def test_a_child_that_ends_through_atexit_removes_nothing_of_its_parents() -> None:
    program = """
import os, sys, kbroker
broker = kbroker.Broker().start()
pid = os.fork()
if pid == 0:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert broker.data_dir.is_dir() and broker.failure is None
from kbroker.tests.embedding.child import answers
assert answers(broker.bootstrap_servers)
broker.stop()
print(broker.data_dir.exists())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "False\n", "")


def test_a_child_closes_its_copies_of_the_parents_descriptors(broker: kbroker.Broker, tmp_path: Path) -> None:
    produce(broker.bootstrap_servers, "opens a segment")
    beside = (tmp_path / "of-the-host").open("w")
    listing = tmp_path / "descriptors"

    def list_descriptors() -> None:
        links = []
        for name in os.listdir("/proc/self/fd"):
            try:
                links.append(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
            except OSError:
                continue
        listing.write_text("\n".join(links))
        os.fstat(beside.fileno())  # the host's own files stay open

    assert run_forked(list_descriptors) == 0
    left = listing.read_text()
    assert str(broker.data_dir) not in left
    assert not [line for line in left.splitlines() if "eventpoll" in line or "eventfd" in line], left
    beside.close()
    serve_round(broker)


def test_the_port_and_the_directory_are_free_although_a_child_lives_on(tmp_path: Path) -> None:
    go_read, go_write = os.pipe()
    broker = kbroker.Broker(tmp_path).start()
    port = broker.port
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    pid, alive = fork(lambda: (os.close(go_write), os.read(go_read, 1)))
    broker.stop()
    assert client.recv(1) == b""  # the child's copy of the connection does not keep it open
    with kbroker.Broker(tmp_path, port=port) as again:
        serve_round(again)
    os.close(go_write)
    os.close(go_read)
    client.close()
    assert ended(pid, alive) == 0


def test_a_child_starts_a_broker_of_its_own(broker: kbroker.Broker) -> None:
    def work() -> None:
        with kbroker.Broker() as own:
            assert own.port != broker.port
            serve_round(own)
        assert not own.data_dir.exists()
        with pytest.raises(kbroker.StartError, match="forked from"):
            broker.start()

    assert run_forked(work) == 0
    serve_round(broker)


def test_a_child_may_use_its_parents_broker_as_a_client(broker: kbroker.Broker) -> None:
    assert run_forked(lambda: produce(broker.bootstrap_servers, "of the child")) == 0
    produce(broker.bootstrap_servers, "of the parent")
    assert values(broker.bootstrap_servers, 2) == {"of the child", "of the parent"}


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_of_multiprocessing_produce_to_the_parents_broker(broker: kbroker.Broker, method: str) -> None:
    with multiprocessing.get_context(method).Pool(2) as pool:
        pool.starmap(produce, [(broker.bootstrap_servers, str(number)) for number in range(4)])
    assert values(broker.bootstrap_servers, 4) == {"0", "1", "2", "3"}
    serve_round(broker)


def test_preforked_workers_that_are_killed_and_replaced_leave_the_broker_alone(broker: kbroker.Broker) -> None:
    def wait_for_a_signal() -> None:
        signal.pause()

    for _ in range(3):
        workers = [fork(wait_for_a_signal) for _ in range(3)]
        for (pid, _), how in zip(workers, (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM), strict=True):
            os.kill(pid, how)
        assert {ended(*worker) for worker in workers} == {-signal.SIGTERM, -signal.SIGKILL}
        serve_round(broker)


def test_a_grandchild_is_as_inert_as_a_child(broker: kbroker.Broker) -> None:
    assert run_forked(lambda: broker.stop() or run_forked(broker.stop)) == 0
    assert answers(broker.bootstrap_servers)


def test_everything_a_child_asks_of_its_parents_broker_is_answered_without_touching_it(
    broker: kbroker.Broker,
) -> None:
    parents = [broker]
    address, port = broker.bootstrap_servers, broker.port

    def work() -> None:
        inherited = parents.pop()
        assert (inherited.bootstrap_servers, inherited.port) == (address, port)
        assert f"of process {os.getppid()}" in repr(inherited)
        with pytest.raises(RuntimeError, match="not running"):
            inherited.counters()
        with pytest.raises(kbroker.StartError, match="forked from"), inherited:
            pass
        inherited.__exit__(None, None, None)
        inherited.stop()
        del inherited
        gc.collect()

    assert run_forked(work) == 0
    serve_round(broker)


def test_a_child_forked_by_a_thread_leaves_the_broker_alone(broker: kbroker.Broker) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run_forked(broker.stop)))
    thread.start()
    thread.join()
    assert codes == [0]
    serve_round(broker)


def test_a_grandchild_holds_neither_the_broker_of_its_parent_nor_that_of_its_grandparent(
    broker: kbroker.Broker,
) -> None:
    def work() -> None:
        with kbroker.Broker() as own:
            assert run_forked(lambda: (own.stop(), broker.stop())) == 0
            serve_round(own)
        assert not own.data_dir.exists()

    assert run_forked(work) == 0
    serve_round(broker)


def open_files(below: Path) -> list[str]:
    """The paths below a directory that this process holds open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if path.startswith(f"{below}/"):
            found.append(path)
    return found


def test_children_forked_while_brokers_start_and_stop_hold_none_of_their_files_and_start_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    over = threading.Event()
    failed: list[BaseException] = []

    def start_and_stop() -> None:
        try:
            while not over.is_set():
                with kbroker.Broker() as one:
                    serve_round(one)
        except BaseException as problem:
            failed.append(problem)

    def work() -> None:
        assert not open_files(tmp_path)
        with kbroker.Broker() as own:
            serve_round(own)

    thread = threading.Thread(target=start_and_stop)
    thread.start()
    try:
        for _ in range(12):
            assert run_forked(work) == 0
    finally:
        over.set()
        thread.join()
    assert not failed


def test_a_fork_waits_for_the_imports_of_a_start_so_that_the_child_can_start_a_broker() -> None:
    program = """
import os, sys, threading, time, kbroker
from kbroker.tests.embedding.child import run_forked, serve_round

def start_own():
    with kbroker.Broker() as own:
        serve_round(own)

broker = kbroker.Broker()
thread = threading.Thread(target=broker.start)
thread.start()
while not any(name.startswith("kbroker.api.k") for name in sys.modules):
    time.sleep(0)
print(run_forked(start_own))
thread.join()
serve_round(broker)
broker.stop()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0\n", "")


@pytest.mark.parametrize("moment", ["start", "stop"])
def test_a_child_forked_by_a_signal_handler_during_a_start_or_stop_returns_from_it(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = getattr(BrokerServer, moment)
    children: list[int] = []
    parent = os.getpid()
    forked = threading.Event()

    def fork_here(*_: object) -> None:
        children.append(os.fork())
        forked.set()

    async def with_a_signal(server: BrokerServer) -> object:
        os.kill(os.getpid(), signal.SIGUSR1)
        while not forked.is_set():
            time.sleep(0.001)
        return await work(server)

    monkeypatch.setattr(BrokerServer, moment, with_a_signal)
    before = signal.signal(signal.SIGUSR1, fork_here)
    broker = kbroker.Broker()
    try:
        with broker:
            pass
    finally:
        if os.getpid() != parent:
            os._exit(7)
        signal.signal(signal.SIGUSR1, before)
    deadline = time.monotonic() + 20
    while (ended_now := os.waitpid(children[0], os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended_now[0] == 0:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)
    assert os.waitstatus_to_exitcode(ended_now[1]) == 7
    assert not broker.data_dir.exists()
