"""Brokers inside software that forks workers: gunicorn, Celery's prefork pool, pytest-forked and pytest-xdist."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer

T = TypeVar("T")
PATIENCE_S = 60.0
HOSTS = "kbroker.tests.embedding.hosts"
ROOT = Path(__file__).resolve().parents[3]


def until(ask: Callable[[], T | None]) -> T:
    """The first answer of `ask` that is not None."""
    deadline = time.monotonic() + PATIENCE_S
    while (answer := ask()) is None:
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)
    return answer


def values(bootstrap_servers: str, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        return sorted((message.value() or b"").decode() for message in consumer.consume(count, timeout=PATIENCE_S))
    finally:
        consumer.close()


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """Temporary directories below `tmp_path`/tmp, so that a test sees what is left."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(ROOT), **more}


def run_pytest(tmp_path: Path, conftest: str, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_inner.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *options]
    return subprocess.run(
        [*command, str(tmp_path / "test_inner.py")],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def assert_nothing_left(tmp_path: Path, group: int | None = None) -> None:
    assert not list((tmp_path / "tmp").glob("kbroker-*"))
    if group is not None:
        with pytest.raises(ProcessLookupError):
            os.killpg(group, 0)


def stop(process: subprocess.Popen[bytes]) -> int:
    """Asks the process for a graceful end and returns its exit code; if it hangs, its whole group is killed."""
    process.terminate()
    try:
        return process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def test_workers_of_gunicorn_are_killed_replaced_and_stopped_while_the_master_keeps_its_broker(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    bind = ["--bind", f"fd://{listener.fileno()}", "--workers", "2", "--preload"]
    gunicorn = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *bind, f"{HOSTS}.gunicorn_app:app"],
        pass_fds=[listener.fileno()],
        env=environment(tmp_path),
        start_new_session=True,
    )
    listener.close()
    produced: list[str] = []

    def produce() -> tuple[int, str] | None:
        """The worker that produced one more record, and the address of the broker; None if the worker was killed."""
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        value = f"{len(produced):03}"
        try:
            client.request("GET", f"/produce/{value}")
            answer = client.getresponse()
            pid, address = answer.read().decode().split()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            client.close()
        assert answer.status == 200
        produced.append(value)
        return int(pid), address

    try:
        victim, address = until(produce)
        os.kill(victim, signal.SIGKILL)
        workers = {victim}
        while len(workers) < 3:  # the other worker, and the one that replaces the killed one
            workers.add(until(produce)[0])
            assert len(produced) < 2_000
        assert values(address, "gunicorn", len(produced)) == produced
    finally:
        code = stop(gunicorn)
    assert code == 0
    assert_nothing_left(tmp_path, gunicorn.pid)


def test_tasks_of_celerys_prefork_pool_produce_to_the_broker_of_the_worker_and_it_shuts_down(tmp_path: Path) -> None:
    files = tmp_path / "celery"
    for name in ("queue", "control", "results"):
        (files / name).mkdir(parents=True)
    variables = environment(tmp_path, CELERY_FILES=str(files))
    options = ["--pool", "prefork", "--concurrency", "2", "--max-tasks-per-child", "2", "--loglevel", "WARNING"]
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", f"{HOSTS}.celery_app", "worker", *options],
        env=variables,
        start_new_session=True,
    )
    try:
        send = (
            f"from {HOSTS}.celery_app import produce\n"
            "sent = [produce.delay(f'{number:03}') for number in range(8)]\n"
            f"print(*{{one.get(timeout={PATIENCE_S}) for one in sent}})"
        )
        sender = subprocess.run(
            [sys.executable, "-c", send], env=variables, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert sender.returncode == 0, sender.stderr
        pool = {int(pid) for pid in sender.stdout.split()}
        assert len(pool) >= 4  # two records each, then the pool replaces the process
        address = (files / "address").read_text()
        assert values(address, "celery", 8) == [f"{number:03}" for number in range(8)]
    finally:
        code = stop(worker)
    assert code == 0
    stopped = {int(pid) for pid in (files / "stopped").read_text().split()}
    assert worker.pid in stopped
    assert stopped & pool  # stop() was called in forked processes too
    assert_nothing_left(tmp_path, worker.pid)


FORKED_CONFTEST = """
import kbroker, pytest, pytest_forked
from kbroker.tests.embedding.child import serve_round

serialize_report = pytest_forked.serialize_report

def serialize(report):
    # pytest-forked 1.7.5 cannot marshal the node id of a report of pytest 9.2.
    fields = serialize_report(report)
    if "_id" in fields:
        fields["nodeid"] = str(fields.pop("_id"))
    return fields

pytest_forked.serialize_report = serialize

def pytest_sessionstart(session):
    session.config.broker = kbroker.Broker().start()

def pytest_sessionfinish(session):
    serve_round(session.config.broker)
    session.config.broker.stop()

@pytest.fixture(scope="session")
def broker(request):
    yield request.config.broker
    request.config.broker.stop()  # pytest-forked ends the session's fixtures in every child

@pytest.fixture(scope="session")
def own():
    with kbroker.Broker() as broker:
        yield broker
"""
FORKED_TESTS = """
import os, sys
from kbroker.tests.embedding.child import answers, serve_round

def test_the_first(broker):
    assert answers(broker.bootstrap_servers)

def test_the_second(broker, own):
    serve_round(own)
    assert answers(broker.bootstrap_servers) and own.port != broker.port

def test_that_crashes(broker):
    os._exit(3)

def test_the_last(broker):
    assert answers(broker.bootstrap_servers)
"""


def test_forked_tests_of_pytest_forked_leave_the_broker_of_the_session_alive(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, FORKED_CONFTEST, FORKED_TESTS, "--forked", "-p", "no:xdist")
    assert "1 failed, 3 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert "INTERNALERROR" not in ran.stdout
    assert_nothing_left(tmp_path)


XDIST_CONFTEST = """
import kbroker, pytest

@pytest.fixture(scope="session")
def shared():
    with kbroker.Broker() as broker:
        yield broker

@pytest.fixture
def broker():
    with kbroker.Broker() as broker:
        yield broker
"""
XDIST_TESTS = """
import os, pytest
from kbroker.tests.embedding.child import run_forked, serve_round

@pytest.mark.parametrize("number", range(6))
def test_a_broker_per_worker_and_one_per_test(shared, broker, number):
    assert run_forked(lambda: (shared.stop(), broker.stop())) == 0
    serve_round(shared)
    serve_round(broker)

def test_that_crashes_its_worker(shared):
    os._exit(3)

def test_that_runs_in_the_worker_that_replaces_it(broker):
    serve_round(broker)
"""


def test_workers_of_xdist_have_a_broker_each_and_one_per_test_and_a_crashed_one_is_reaped(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, XDIST_CONFTEST, XDIST_TESTS, "-n", "2")
    assert "1 failed, 7 passed" in ran.stdout, ran.stdout + ran.stderr
    # The crash may come after the last start of a broker in that run: one more start removes what it left.
    next_broker = [sys.executable, "-c", "import kbroker; kbroker.Broker().start().stop()"]
    subprocess.run(next_broker, env=environment(tmp_path), timeout=PATIENCE_S, check=True)
    assert_nothing_left(tmp_path)
