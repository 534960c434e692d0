"""Starts and stops that are interrupted, repeated, concurrent, or as late as the end of the program."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import kbroker
from kbroker.pool import Pool
from kbroker.server.broker_server import BrokerServer
from kbroker.server.control_thread import ControlThread
from kbroker.tests.embedding.child import answers, serve_round


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def assert_stopped(broker: kbroker.Broker) -> None:
    assert "not running" in repr(broker)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kbroker")]
    assert not broker.data_dir.parent.exists()


def test_an_exception_in_the_with_block_stops_the_broker_and_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt), kbroker.Broker() as broker:
        raise KeyboardInterrupt
    assert_stopped(broker)


@pytest.mark.parametrize("moment", ["start", "stop"])
def test_ctrl_c_during_a_start_or_stop_is_raised_when_the_broker_has_stopped(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work: Callable[[BrokerServer], Awaitable[Any]] = getattr(BrokerServer, moment)

    async def interrupted(server: BrokerServer) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return await work(server)

    monkeypatch.setattr(BrokerServer, moment, interrupted)
    broker = kbroker.Broker()
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for background jobs
    try:
        with pytest.raises(KeyboardInterrupt), broker:
            assert moment == "stop"
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert_stopped(broker)


def test_ctrl_c_before_the_control_thread_begins_leaves_a_broker_that_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_: ControlThread) -> bool:
        raise KeyboardInterrupt

    broker = kbroker.Broker()
    with monkeypatch.context() as patch:
        patch.setattr(ControlThread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            broker.start()
    broker.stop()
    assert_stopped(broker)
    with broker:
        serve_round(broker)


@pytest.mark.parametrize("thread_exists", [False, True])
def test_an_interrupted_start_of_the_control_thread_leaves_nothing(
    thread_exists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if thread_exists or thread.name != "kbroker-control":
            start(thread)
        if thread.name == "kbroker-control":
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    broker = kbroker.Broker()
    with pytest.raises(KeyboardInterrupt):
        broker.start()
    assert_stopped(broker)


def test_every_thread_that_stops_a_broker_returns_when_it_has_stopped() -> None:
    broker = kbroker.Broker().start()
    address, still_answering = broker.bootstrap_servers, []

    def stop() -> None:
        broker.stop()
        still_answering.append(answers(address))

    stopping = [threading.Thread(target=stop) for _ in range(4)]
    for thread in stopping:
        thread.start()
    for thread in stopping:
        thread.join()
    assert still_answering == [False] * 4
    broker.stop()
    assert_stopped(broker)


def test_of_two_threads_that_start_a_broker_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    work = BrokerServer.start
    broker = kbroker.Broker()

    async def start(server: BrokerServer) -> Any:
        with pytest.raises(kbroker.StartError, match="started already"):
            broker.start()
        return await work(server)

    monkeypatch.setattr(BrokerServer, "start", start)
    with broker:
        serve_round(broker)


def test_a_broker_that_is_stopped_while_it_starts_says_so_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    work = BrokerServer.start
    broker = kbroker.Broker()
    stopping = threading.Thread(target=broker.stop)

    async def start(server: BrokerServer) -> Any:
        assert broker._control is not None
        stopping.start()
        while not broker._control._stop_asked:
            await asyncio.sleep(0)
        return await work(server)

    monkeypatch.setattr(BrokerServer, "start", start)
    with pytest.raises(kbroker.StartError, match="stopped while it was starting"):
        broker.start()
    stopping.join()
    assert_stopped(broker)


def test_a_broker_started_in_one_event_loop_is_stopped_in_another() -> None:
    broker = kbroker.Broker()

    async def start() -> None:
        await broker.__aenter__()

    async def stop() -> None:
        serve_round(broker)
        await broker.__aexit__(None, None, None)

    asyncio.run(start())
    asyncio.run(stop())
    assert_stopped(broker)


def test_async_with_imports_starts_and_stops_outside_of_the_threads_event_loop() -> None:
    program = """
import asyncio, sys, threading
import kbroker

loaded, worked = {}, {}

class Witness:
    def find_spec(self, name, path=None, target=None):
        loaded.setdefault(name, threading.current_thread().name)

def witnessed(function):
    def work(self):
        worked[function.__name__] = threading.current_thread().name
        return function(self)
    return work

async def main():
    Broker = kbroker.Broker
    Broker.start, Broker.stop = witnessed(Broker.start), witnessed(Broker.stop)
    async with Broker():
        pass

sys.meta_path.insert(0, Witness())
asyncio.run(main())
heavy = ("kbroker._core.core", "kbroker.api", "kbroker.server.broker_server", "kbroker.quorum.driver")
print([name for name in heavy if loaded[name] == "MainThread"], worked, "structlog" in loaded)
"""
    ran = run(program)
    assert (ran.stdout, ran.stderr) == ("[] {'start': 'kbroker-host', 'stop': 'kbroker-host'} False\n", "")


def test_stop_as_an_atexit_callback_is_a_clean_stop(tmp_path: Path) -> None:
    ran = run("import atexit, sys, kbroker; atexit.register(kbroker.Broker(sys.argv[1]).start().stop)", str(tmp_path))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_broker_that_nobody_stops_is_stopped_cleanly_at_the_end_of_the_program(tmp_path: Path) -> None:
    ran = run("import sys, kbroker; kbroker.Broker(sys.argv[1]).start()", str(tmp_path))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_broker_serves_threads_that_outlive_the_main_thread() -> None:
    program = """
import threading, kbroker
from confluent_kafka.admin import AdminClient, NewTopic

broker = kbroker.Broker().start()

def work():
    threading.main_thread().join()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for created in admin.create_topics([NewTopic("late", 3)]).values():
        created.result(20)
    print("created")

threading.Thread(target=work).start()
"""
    ran = run(program)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "created\n", "")


def test_a_broker_of_a_daemon_thread_goes_with_the_program() -> None:
    program = """
import threading, kbroker
running = threading.Event()

def work():
    with kbroker.Broker() as broker:
        print(broker.data_dir.parent, flush=True)
        running.set()
        threading.Event().wait()

threading.Thread(target=work, daemon=True).start()
running.wait()
"""
    ran = run(program)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not Path(ran.stdout.strip()).exists()


def test_a_pool_runs_calls_in_its_threads_and_ends_them() -> None:
    threads = threading.active_count()
    pool = Pool(2, "kbroker-test")
    release = threading.Event()
    blocked = [pool.submit(release.wait) for _ in range(2)]
    name = pool.submit(lambda: threading.current_thread().name)
    dropped = pool.submit(int)
    failed = pool.submit(int, "x")
    assert not name.done()
    assert dropped.cancel()
    release.set()
    assert name.result(20) in {"kbroker-test-0", "kbroker-test-1"}
    assert all(one.result(20) for one in blocked)
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result(20)
    pool.shutdown()
    assert threading.active_count() == threads
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(int)


def test_a_pool_that_is_shut_down_with_cancel_futures_drops_what_has_not_begun() -> None:
    pool = Pool(1, "kbroker-test")
    begun, release = threading.Event(), threading.Event()
    running, waiting = pool.submit(lambda: (begun.set(), release.wait())), pool.submit(int)
    assert begun.wait(20)
    pool.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    release.set()
    assert running.result(20)
    pool.shutdown()


def test_a_pool_that_can_start_no_thread_runs_the_call_where_it_is_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = Pool(1, "kbroker-test")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert pool.submit(threading.get_ident).result(0) == threading.get_ident()
