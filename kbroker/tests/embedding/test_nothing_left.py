"""What a stopped, killed or cancelled broker leaves behind: nothing."""

import asyncio
import atexit
import gc
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import kbroker
from kbroker.storage.temporary import MARKER, TemporaryDirectory, new_name, reap
from kbroker.tests.embedding.child import serve_round


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def test_a_stopped_broker_leaves_no_thread_descriptor_file_or_atexit_entry() -> None:
    with kbroker.Broker() as first:
        first.log.warning("a line that starts the log's thread")
    before = (threading.active_count(), descriptors(), atexit._ncallbacks())  # type: ignore[attr-defined]
    with kbroker.Broker() as broker:
        broker.log.warning("a line that starts the log's thread")
    assert (threading.active_count(), descriptors(), atexit._ncallbacks()) == before  # type: ignore[attr-defined]
    assert not broker.data_dir.parent.exists()


def test_a_stopped_broker_can_be_started_again_and_logs_again() -> None:
    broker = kbroker.Broker()
    for _ in range(2):
        with broker:
            serve_round(broker)
    assert not broker.data_dir.parent.exists()


def test_forty_brokers_one_after_the_other_hold_threads_descriptors_and_memory_flat() -> None:
    def one() -> None:
        with kbroker.Broker() as broker:
            broker.log.warning("a line")

    for _ in range(10):
        one()
    gc.collect()
    before, memory = (threading.active_count(), descriptors()), resident_kib()
    for _ in range(30):
        one()
    gc.collect()
    assert (threading.active_count(), descriptors()) == before
    assert resident_kib() - memory < 6_000


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)"])
def test_the_directory_of_a_process_that_died_is_reaped_by_the_next_broker(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # no broker of another test looks there
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    program = f"import os, kbroker; b = kbroker.Broker().start(); print(b.data_dir, flush=True); {end}"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    left = Path(ran.stdout.strip()).parent
    assert (left / MARKER).exists()
    with kbroker.Broker():
        pass
    assert not left.exists()


def test_only_marked_unlocked_directories_are_reaped(tmp_path: Path) -> None:
    dead = tmp_path / "kbroker-dead"
    dead.mkdir()
    (dead / MARKER).touch()
    unmarked, elsewhere = tmp_path / "kbroker-unmarked", tmp_path / "elsewhere"
    for directory in (unmarked, elsewhere):
        directory.mkdir()
        (directory / "precious").touch()
    (elsewhere / MARKER).touch()
    (tmp_path / "kbroker-link").symlink_to(elsewhere)
    alive = TemporaryDirectory(tmp_path / "kbroker-alive")
    assert reap(tmp_path) == [dead]
    assert {path.name for path in tmp_path.iterdir()} == {
        "kbroker-unmarked",
        "elsewhere",
        "kbroker-link",
        "kbroker-alive",
    }
    assert (elsewhere / "precious").exists()
    alive.remove()
    assert not alive.path.exists()


def test_a_broker_that_was_never_started_makes_no_directory() -> None:
    broker = kbroker.Broker()
    assert not broker.data_dir.parent.exists()
    assert broker.data_dir.is_relative_to(tempfile.gettempdir())


def test_a_temporary_name_that_is_taken_is_replaced() -> None:
    broker = kbroker.Broker()
    taken = broker.data_dir.parent
    taken.mkdir()
    try:
        with broker:
            serve_round(broker)
            assert broker.data_dir.parent != taken
        assert not broker.data_dir.parent.exists()
        assert taken.is_dir()
    finally:
        taken.rmdir()


def test_async_with_serves_while_the_loop_goes_on() -> None:
    async def scenario() -> tuple[int, int]:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0)
                beats += 1

        heart = asyncio.create_task(beat())
        broker = kbroker.Broker()
        await broker.__aenter__()
        started = beats
        serve_round(broker)
        await broker.__aexit__(None, None, None)
        heart.cancel()
        return started, beats - started

    before = threading.active_count()
    while_starting, while_stopping = asyncio.run(scenario())
    assert while_starting > 1
    assert while_stopping > 1
    assert threading.active_count() == before


def test_a_start_that_is_cancelled_leaves_no_broker() -> None:
    async def scenario() -> kbroker.Broker:
        broker = kbroker.Broker()
        starting = asyncio.create_task(broker.__aenter__())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        return broker

    before = threading.active_count()
    broker = asyncio.run(scenario())
    assert not broker.data_dir.parent.exists()
    assert threading.active_count() == before


def test_a_failed_async_start_raises_its_reason(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with kbroker.Broker(tmp_path):
            pass

    with kbroker.Broker(tmp_path), pytest.raises(kbroker.StartError, match="in use"):
        asyncio.run(scenario())


def test_a_broker_that_is_not_running_says_so() -> None:
    broker = kbroker.Broker()
    for ask in (lambda: broker.port, lambda: broker.bootstrap_servers, broker.counters):
        with pytest.raises(RuntimeError, match="not running"):
            ask()
    assert "not running" in repr(broker)
    with broker:
        assert broker.bootstrap_servers in repr(broker)
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.port


def test_the_package_exports_its_names_with_docstrings() -> None:
    assert kbroker.__version__
    assert set(kbroker.__all__) <= set(dir(kbroker))
    for thing in (kbroker.Broker, kbroker.StartError, kbroker.ConfigError):
        assert thing.__doc__


def test_a_new_name_lies_in_the_temporary_directory() -> None:
    assert new_name().parent == Path(tempfile.gettempdir())


def dead_directory(parent: Path, name: str) -> Path:
    directory = parent / f"kbroker-{name}"
    (directory / "data").mkdir(parents=True)
    (directory / "data" / "segment").touch()
    (directory / MARKER).touch()
    return directory


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a directory of another user")
def test_a_dead_directory_of_another_user_is_never_reaped(tmp_path: Path) -> None:
    theirs, ours = dead_directory(tmp_path, "theirs"), dead_directory(tmp_path, "ours")
    os.chown(theirs, 12345, 12345)
    assert reap(tmp_path) == [ours]
    assert (theirs / "data" / "segment").exists()


def test_a_marker_that_is_a_symbolic_link_is_no_marker(tmp_path: Path) -> None:
    directory, elsewhere = dead_directory(tmp_path, "linked"), tmp_path / "elsewhere"
    elsewhere.touch()
    (directory / MARKER).unlink()
    (directory / MARKER).symlink_to(elsewhere)
    assert reap(tmp_path) == []
    assert (directory / "data" / "segment").exists()
    assert elsewhere.exists()


def test_a_link_inside_a_dead_directory_is_removed_and_its_target_is_not(tmp_path: Path) -> None:
    directory, precious = dead_directory(tmp_path, "dead"), tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (directory / "data" / "link").symlink_to(precious)
    assert reap(tmp_path) == [directory]
    assert (precious / "file").exists()


def test_two_reapers_at_once_remove_everything_that_is_dead_and_nothing_else(tmp_path: Path) -> None:
    dead = {dead_directory(tmp_path, f"dead-{number}") for number in range(40)}
    alive = TemporaryDirectory(tmp_path / "kbroker-alive")
    reaped: list[Path] = []
    together = threading.Barrier(4)

    def work() -> None:
        together.wait()
        reaped.extend(reap(tmp_path))

    reapers = [threading.Thread(target=work) for _ in range(4)]
    for one in reapers:
        one.start()
    for one in reapers:
        one.join()
    assert set(reaped) == dead
    assert list(tmp_path.iterdir()) == [alive.path]
    alive.remove()


def test_a_changed_tmpdir_does_not_keep_a_broker_from_removing_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = dead_directory(tmp_path, "of-another-tmpdir")
    with kbroker.Broker() as broker:
        used = broker.data_dir.parent
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert not used.exists()
    assert left.exists()
    with kbroker.Broker() as broker:
        assert broker.data_dir.parent.parent == tmp_path
    assert list(tmp_path.iterdir()) == []
