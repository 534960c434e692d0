"""Old files go one by one, whatever happens to one of them, and a stop does not wait for the rest."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from kbroker.storage.priority import NICE, step_back
from kbroker.storage.removal import REST_MAX_S, Remover


def test_a_file_that_cannot_be_removed_does_not_keep_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.deleted").mkdir()
    (tmp_path / "b.deleted").touch()
    remover = Remover()
    with pytest.raises(OSError, match=r"a\.deleted"):
        remover.files([tmp_path / "a.deleted", tmp_path / "gone", tmp_path / "b.deleted"]).result()
    assert not (tmp_path / "b.deleted").exists()
    remover.stop()


def test_a_directory_goes_with_its_files(tmp_path: Path) -> None:
    directory = tmp_path / "t-0.abc-delete"
    directory.mkdir()
    for name in ("a.log", "b.index"):
        (directory / name).write_bytes(b"x")
    remover = Remover()
    remover.directory(directory).result()
    assert list(tmp_path.iterdir()) == []
    remover.stop()


def test_a_stop_leaves_what_is_still_to_be_removed(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.deleted" for number in range(3)]
    for path in files:
        path.touch()
    remover = Remover()
    holds = threading.Event()

    def paths() -> object:
        yield files[0]
        holds.set()
        assert remover._stopping.wait(20)
        yield files[1]

    first = remover.files(paths())  # type: ignore[arg-type]
    second = remover.files(files[2:])
    assert holds.wait(20)
    remover.stop()
    assert first.result() is None
    assert second.cancelled()
    assert [path.exists() for path in files] == [False, True, True]
    assert REST_MAX_S < 1


def test_a_thread_steps_back_alone() -> None:
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    seen: list[int] = []

    def work() -> None:
        step_back()
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [NICE]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before
