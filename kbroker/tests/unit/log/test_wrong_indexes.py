"""Index entries that lead astray in a segment that nobody scans: found when they are used, and made anew."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker._core.log.partition_log import LogError
from kbroker._core.record.records import batches, iterate
from kbroker.tests.unit.log.batches import batch, offsets
from kbroker.tests.unit.log.conftest import OpenLog

SETTLED = {"segment.bytes": 1500, "index.interval.bytes": 100}


def make(open_log: OpenLog, tmp_path: Path) -> tuple[Path, bytes]:
    """Several segments, stopped cleanly; the index of the first, and its log."""
    log = open_log(SETTLED)
    for _ in range(60):
        assert log.append(batch(2)).error == 0
    log.close()
    path = tmp_path / "topic-0" / f"{0:020d}.index"
    assert path.stat().st_size >= 4 * 8
    return path, path.with_suffix(".log").read_bytes()


@pytest.mark.parametrize("off", [1, -1, 30])
def test_an_entry_into_the_middle_of_a_batch_costs_nothing(open_log: OpenLog, tmp_path: Path, off: int) -> None:
    path, data = make(open_log, tmp_path)
    entries = [struct.unpack_from(">ii", path.read_bytes(), at) for at in range(0, path.stat().st_size, 8)]
    whole = path.read_bytes()
    path.write_bytes(b"".join(struct.pack(">ii", relative, position + off) for relative, position in entries))
    log = open_log(SETTLED)
    for header in reversed(batches(data)):
        first = iterate(log.read(header.base_offset, 1))[0]
        assert first.offset == header.base_offset
    assert offsets(log) == list(range(120))
    log.close()
    assert path.read_bytes() == whole


def test_an_entry_past_what_it_is_asked_for_skips_nothing(open_log: OpenLog, tmp_path: Path) -> None:
    path, data = make(open_log, tmp_path)
    far = batches(data)[-1]
    relative, _ = struct.unpack_from(">ii", path.read_bytes())
    path.write_bytes(struct.pack(">ii", relative, far.position))
    log = open_log(SETTLED)
    assert iterate(log.read(relative + 1, 1))[0].offset == relative + 1
    assert offsets(log) == list(range(120))


def test_a_fetch_that_an_entry_would_cut_short_gets_whole_batches(open_log: OpenLog, tmp_path: Path) -> None:
    path, data = make(open_log, tmp_path)
    path.write_bytes(struct.pack(">ii", 3, 10))
    log = open_log(SETTLED)
    first = batches(data)[0]
    assert log.read(0, first.size + 20) == data[: first.size]


def test_the_index_of_a_damaged_log_still_leads_behind_the_damage(open_log: OpenLog, tmp_path: Path) -> None:
    path, data = make(open_log, tmp_path)
    broken = bytearray(data)
    header = batches(data)[5]
    broken[header.position + 8 : header.position + 12] = b"\xff\xff\xff\xff"
    path.with_suffix(".log").write_bytes(broken)
    log = open_log(SETTLED)
    assert log.damaged_offset == -1
    for _ in range(3):
        with pytest.raises(LogError, match="56"):
            log.read(header.base_offset, 100)
        assert log.damaged_offset == header.base_offset
        assert iterate(log.read(0, 100))[0].offset == 0
        last = batches(data)[-1].base_offset
        assert iterate(log.read(last, 100))[0].offset == last


DERIVED = [*(f"{0:020d}{suffix}" for suffix in (".index", ".timeindex", ".txnindex")), "leader-epoch-checkpoint"]


def become_directory(path: Path) -> None:
    path.mkdir()


def become_full_directory(path: Path) -> None:
    path.mkdir()
    (path / "something").touch()


def become_loop(path: Path) -> None:
    path.symlink_to(path.name)


def become_dangling(path: Path) -> None:
    path.symlink_to("nowhere/at-all")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.parametrize("become", [become_directory, become_full_directory, become_loop, become_dangling])
def test_what_is_no_file_is_made_anew(
    open_log: OpenLog, tmp_path: Path, become: Callable[[Path], None], name: str, clean: bool
) -> None:
    make(open_log, tmp_path)
    path = tmp_path / "topic-0" / name
    path.unlink(missing_ok=True)
    become(path)
    log = open_log(SETTLED, clean=clean)
    assert [offsets(log), iterate(log.read(3, 1))[0].offset] == [list(range(120)), 2]
    assert any("is no file" in note.reason for note in log.recovery_notes)
    assert log.offset_for_timestamp(0) is not None
    log.close()
    assert not path.exists() or path.is_file()
    assert (path.with_name(f"{name}.stray") / "something").exists() == (become is become_full_directory)
    again = open_log(SETTLED)
    assert offsets(again) == list(range(120))
    assert not again.recovery_notes


def test_a_link_to_an_index_is_an_index(open_log: OpenLog, tmp_path: Path) -> None:
    path, _ = make(open_log, tmp_path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    log = open_log(SETTLED)
    assert offsets(log) == list(range(120))
    assert path.is_symlink()
    assert not log.recovery_notes


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_is_a_directory_is_not_opened(open_log: OpenLog, tmp_path: Path, clean: bool) -> None:
    path, _ = make(open_log, tmp_path)
    path.with_suffix(".log").unlink()
    path.with_suffix(".log").mkdir()
    with pytest.raises(IsADirectoryError):
        open_log(SETTLED, clean=clean)
