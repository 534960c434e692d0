"""Every kind of damage is named with its file, its place and its offset; a sound directory has nothing to tell."""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import kbroker
from kbroker._core.clock import BrokerClock
from kbroker._core.log.examine import Examination
from kbroker._core.record.records import Record, batches, build_batch
from kbroker.cli import main
from kbroker.storage.examine import Finding, examine
from kbroker.storage.log_dirs import LogDirs

NOW_MS = 1_700_000_000_000
CONFIG: dict[str, object] = {"segment.bytes": 900, "index.interval.bytes": 100}
TOPIC_ID = bytes(range(16))
FIRST = f"{0:020d}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Stopped cleanly; one partition of several segments, with producers, codecs and epochs."""
    clock = BrokerClock()
    clock.hold(NOW_MS)
    dirs = LogDirs.open([tmp_path], 1, clock)
    log = dirs.open_log("t", 0, TOPIC_ID, CONFIG)
    for i in range(24):
        records = [Record(timestamp=NOW_MS + 10 * i + j, key=b"k", value=b"v" * 40) for j in range(2)]
        batch = build_batch(records, codec=i % 5, producer_id=3, producer_epoch=0, base_sequence=2 * i)
        assert log.append(batch, leader_epoch=i // 9).error == 0
    dirs.close(broker_epoch=1)
    return tmp_path


def found(directory: Path) -> list[tuple[str, int, int, str]]:
    def told(one: Finding) -> tuple[str, int, int, str]:
        return (one.path.name, one.position, one.offset, one.what)

    return [told(one) for one in examine(directory).findings]


def edit(path: Path, position: int, content: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + len(content)] = content
    path.write_bytes(data)


def test_a_sound_directory_has_nothing_to_tell(directory: Path) -> None:
    report = examine(directory)
    assert report.findings == []
    assert (report.partitions, report.batches, report.records) == (1, 24, 48)
    assert report.segments > 2
    assert report.bytes == sum(path.stat().st_size for path in directory.glob("t-0/*.log"))


def test_a_flipped_byte_is_named_by_batch_and_the_walk_goes_on(directory: Path) -> None:
    path = directory / "t-0" / f"{FIRST}.log"
    one, two, *_ = batches(path.read_bytes())
    for header in (one, two):
        edit(path, header.position + header.size - 3, b"\xff")
    reason = "a batch does not match its checksum"
    assert found(directory) == [(path.name, one.position, 0, reason), (path.name, two.position, 2, reason)]


def test_a_broken_length_costs_one_batch(directory: Path) -> None:
    path = directory / "t-0" / f"{FIRST}.log"
    second = batches(path.read_bytes())[1]
    edit(path, second.position + 8, struct.pack(">i", 7))
    assert found(directory) == [(path.name, second.position, 2, "a batch states an impossible length")]
    edit(path, second.position + 8, struct.pack(">i", second.size - 12 + 1))
    assert found(directory) == [(path.name, second.position, 2, "a batch does not match its checksum")]


def test_an_offset_that_no_checksum_covers_is_named_where_it_is_wrong(directory: Path) -> None:
    path = directory / "t-0" / f"{FIRST}.log"
    second = batches(path.read_bytes())[1]
    for wrong in (0, 1000, 2**40):
        edit(path, second.position, struct.pack(">q", wrong))
        assert found(directory)[0] == (path.name, second.position, 2, "a batch does not follow the one before it")
        assert [one[0] for one in found(directory) if one[0].endswith(".log")] == [path.name]


def test_a_segment_that_reaches_into_the_next_one_is_named_itself(directory: Path) -> None:
    one, two, three = sorted(directory.glob("t-0/*.log"))[:3]
    one.write_bytes(one.read_bytes() + two.read_bytes())
    begin, end = int(two.stem), int(three.stem)
    told = [each for each in examine(directory).findings if each.path.suffix == ".log"]
    assert [(each.path, each.position, each.offset, each.what) for each in told] == [
        (one, -1, begin, f"reaches into {two.name}: it ends at {end}")
    ]


def test_a_torn_end_is_told(directory: Path) -> None:
    path = max(directory.glob("t-0/*.log"))
    last = batches(path.read_bytes())[-1]
    os.truncate(path, last.position + 30)
    (directory / ".kafka_cleanshutdown").unlink()
    told = [one for one in examine(directory).findings if one.path == path]
    assert [(one.position, one.offset, one.what) for one in told] == [
        (last.position, last.base_offset, "a batch header is cut short")
    ]
    assert "the next start cuts it off" in told[0].advice


def test_records_that_do_not_add_up_are_told_even_if_the_checksum_does(tmp_path: Path) -> None:
    good = bytearray(build_batch([Record(timestamp=1, value=b"v")] * 3))
    from kbroker._core.record.crc32c import checksum

    good[57:61] = struct.pack(">i", 4)
    good[17:21] = struct.pack(">I", checksum(bytes(good[21:])))
    path = tmp_path / "0.log"
    path.write_bytes(good)
    walk = Examination(path, 0)
    assert not walk.step()
    assert [fault.reason for fault in walk.faults] == ["a batch does not hold the records its header counts"]


@pytest.mark.parametrize(
    ("suffix", "width", "entry", "reason"),
    [
        (".index", 8, struct.pack(">ii", 3, 1), "an entry points to where no batch begins"),
        (".index", 8, struct.pack(">ii", 2**31 - 1, 2**31 - 1), "the entries do not ascend"),
        (".timeindex", 12, struct.pack(">qi", NOW_MS + 5, 3), "an entry names another timestamp than the largest"),
    ],
)
def test_index_entries_are_compared_with_the_batches(
    directory: Path, suffix: str, width: int, entry: bytes, reason: str
) -> None:
    path = directory / "t-0" / f"{FIRST}{suffix}"
    assert path.stat().st_size >= 2 * width
    edit(path, 0, entry)
    names = [(name, what) for name, _, _, what in found(directory)]
    assert any(name == path.name and what.startswith(reason) for name, what in names), names
    assert {name for name, _ in names} == {path.name}


def test_an_index_of_another_offset_is_told(directory: Path) -> None:
    path = directory / "t-0" / f"{FIRST}.index"
    relative, position = struct.unpack_from(">ii", path.read_bytes())
    edit(path, 0, struct.pack(">ii", relative + 1, position))
    assert found(directory) == [
        (path.name, 0, relative + 1, "an entry names another offset than the batch it points to")
    ]


def test_zeros_that_apache_preallocates_are_no_damage(directory: Path) -> None:
    for suffix in (".index", ".timeindex"):
        path = max(directory.glob(f"t-0/*{suffix}"))
        path.write_bytes(path.read_bytes() + bytes(24 * 100))
    assert found(directory) == []


def replaced(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def removed(path: Path) -> None:
    path.unlink()


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("name", "harm", "said"),
    [
        ("meta.properties", replaced(b"\0"), "line 1 is not a setting"),
        ("meta.properties", removed, "is missing"),
        ("recovery-point-offset-checkpoint", replaced(b"0\n2\nt 0 1\n"), "says version 0 and 2 entries"),
        ("log-start-offset-checkpoint", replaced(b"0\n1\nt 0 99\n"), "t-0 starts behind what was flushed"),
        ("replication-offset-checkpoint", a_directory, "cannot be read"),
        ("t-0/leader-epoch-checkpoint", replaced(b"0\n1\n"), "is not a leader-epoch checkpoint"),
        ("t-0/leader-epoch-checkpoint", replaced(b"0\n2\n2 0\n1 5\n"), "its entries do not ascend"),
        ("t-0/leader-epoch-checkpoint", replaced(b"0\n1\n0 0\n"), "does not tell that epoch 1 began"),
        ("t-0/leader-epoch-checkpoint", a_directory, "cannot be read"),
        ("t-0/partition.metadata", replaced(b"version: 0\ntopic_id: x"), "does not tell the topic's id"),
        (f"t-0/{FIRST}.txnindex", replaced(b"\0" * 33), "ends within an entry"),
        (f"t-0/{FIRST}.txnindex", replaced(struct.pack(">hqqqq", 0, 1, 0, 10**6, 0)), "does not fit the log"),
        (f"t-0/{FIRST}.index", replaced(b"\x01" * 9), "ends within an entry"),
        (f"t-0/{FIRST}.log", a_directory, "cannot be read"),
        (f"t-0/{FIRST}.log", removed, "there is no log beside it"),
    ],
)
def test_every_small_file_is_looked_at(directory: Path, name: str, harm: Callable[[Path], object], said: str) -> None:
    harm(directory / name)
    told = [one for one in examine(directory).findings if said in one.what]
    assert told, examine(directory).findings
    assert all(one.advice for one in told)


def test_a_snapshot_of_producers_is_checked(directory: Path) -> None:
    path = max(directory.glob("t-0/*.snapshot"))
    edit(path, 20, b"\x77")
    assert found(directory) == [(path.name, 2, -1, "does not match its checksum")]


def deep(directory: Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["doctor", "--deep", "--data-dir", str(directory)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_the_doctor_answers_by_exit_code(tmp_path: Path) -> None:
    assert deep(tmp_path / "none")[0] == 2
    with kbroker.Broker(tmp_path) as broker:
        assert broker.port
        code, output = deep(tmp_path)
        assert (code, "A broker has" in output) == (2, True)
    code, output = deep(tmp_path)
    assert (code, "is sound" in output) == (0, True), output
    metadata = tmp_path / "__cluster_metadata-0"
    shutil.copytree(tmp_path, tmp_path.with_name("copy"))
    edit(metadata / f"{FIRST}.log", 100, b"\xff\xff\xff")
    code, output = deep(tmp_path)
    assert code == 1
    assert f"__cluster_metadata-0/{FIRST}.log at byte" in output
    assert "restore it from a backup" in output
    (tmp_path.with_name("copy") / "__cluster_metadata-0" / "quorum-state").write_text("{")
    code, output = deep(tmp_path.with_name("copy"))
    assert (code, "quorum-state" in output) == (1, True)
