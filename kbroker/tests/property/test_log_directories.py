"""Whatever lies in a directory, opening it neither crashes nor hangs, and what opens can be written and read."""

import re
import shutil
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import DamagedLogError, LogError, PartitionLog
from kbroker._core.record.records import BrokenRecords, Record, build_batch, iterate

NOW_MS = 1_700_000_000_000
COORDINATOR = 1
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
CONFIG = {"segment.bytes": 700, "index.interval.bytes": 60}


def directory_of_a_real_log(root: Path, clock: BrokerClock) -> Path:
    directory = root / "topic-0"
    log = PartitionLog.open(directory, clock, CONFIG, topic_id=bytes(range(16)))
    for i in range(12):
        records = [Record(timestamp=NOW_MS + i, value=b"v" * 40) for _ in range(2)]
        how = {"producer_id": 3, "producer_epoch": 0, "base_sequence": 2 * i, "transactional": i % 3 == 2}
        assert log.append(build_batch(records, **how), leader_epoch=i // 4).error == 0
        if i % 3 == 2:
            marker = Record(timestamp=NOW_MS + i, key=struct.pack(">hh", 0, 0), value=struct.pack(">hi", 0, 0))
            batch = build_batch([marker], control=True, transactional=True, producer_id=3, producer_epoch=0)
            assert log.append(batch, origin=COORDINATOR, leader_epoch=i // 4).error == 0
    assert len(log.collect_aborted(0, 2**62)) == 4
    log.close()
    return directory


def exercise(directory: Path, clock: BrokerClock, clean: bool) -> None:
    try:
        log = PartitionLog.open(directory, clock, CONFIG, clean=clean)
    except DamagedLogError as damage:
        with pytest.raises(DamagedLogError, match=re.escape(str(damage))):  # nothing was given up meanwhile
            PartitionLog.open(directory, clock, CONFIG, clean=clean)
        return
    except (OSError, ValueError):
        return
    assert all(one.first_offset < one.last_offset for one in log.collect_aborted(0, 2**62))
    answer = log.append(build_batch([Record(timestamp=NOW_MS, value=b"new")]))
    if answer.error == 0:
        assert answer.base_offset == log.log_end_offset - 1
    offset = log.log_start_offset
    for _ in range(100):
        try:
            data = log.read(offset, 500)
            records = iterate(data)
        except (LogError, BrokenRecords):
            break
        if not records:
            break
        offset = records[-1].offset + 1
    if not clean:
        assert offset == log.log_end_offset
    for timestamp in (0, NOW_MS + 5, 2**62):
        try:
            log.offset_for_timestamp(timestamp)
        except LogError:
            continue
    if offset > log.log_start_offset:
        log.truncate_to((log.log_start_offset + offset) // 2) if not clean else None
    log.close(sync=False)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), clean=st.booleans())
def test_a_damaged_directory_opens_or_is_refused(data: st.DataObject, clean: bool) -> None:
    clock = BrokerClock()
    clock.hold(NOW_MS)
    root = Path(tempfile.mkdtemp(prefix="kbroker-dir-"))
    try:
        directory = directory_of_a_real_log(root, clock)
        names = sorted(path.name for path in directory.iterdir())
        for _ in range(data.draw(st.integers(1, 4))):
            path = directory / data.draw(st.sampled_from(names))
            content = bytearray(path.read_bytes() if path.exists() else b"")
            how = data.draw(st.sampled_from(["flip", "cut", "grow", "zeros", "replace", "remove"]))
            if how == "flip" and content:
                content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
            elif how == "cut" and content:
                del content[data.draw(st.integers(0, len(content) - 1)) :]
            elif how == "grow":
                content += data.draw(st.binary(max_size=200))
            elif how == "zeros":
                content += bytes(data.draw(st.integers(1, 200)))
            elif how == "replace":
                content = bytearray(data.draw(st.binary(max_size=300)))
            if how == "remove":
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(content)
        exercise(directory, clock, clean)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    files=st.dictionaries(
        st.sampled_from(
            [f"{base:020d}{suffix}" for base in (0, 1, 9) for suffix in SUFFIXES]
            + [f"{0:020d}.log.swap", f"{5:020d}.log.cleaned", "99999999999999999999.log", "0.log", "x.deleted"]
            + ["leader-epoch-checkpoint", "partition.metadata"]
        ),
        st.binary(max_size=200),
    ),
    clean=st.booleans(),
)
def test_a_directory_of_noise_opens_or_is_refused(files: dict[str, bytes], clean: bool) -> None:
    clock = BrokerClock()
    clock.hold(NOW_MS)
    root = Path(tempfile.mkdtemp(prefix="kbroker-dir-"))
    try:
        directory = root / "topic-0"
        directory.mkdir()
        for name, content in files.items():
            (directory / name).write_bytes(content)
        exercise(directory, clock, clean)
    finally:
        shutil.rmtree(root, ignore_errors=True)
