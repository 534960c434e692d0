"""One health for all logs of a directory."""

import errno
import os
import select
import shutil
from pathlib import Path

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.log.health import Health
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import Record, build_batch

STORAGE_ERROR = 56
BATCH = build_batch([Record(timestamp=1, value=b"x")])


def is_told(health: Health) -> bool:
    return bool(select.select([health], [], [], 0)[0])


def test_a_log_that_fails_takes_its_neighbours_along(tmp_path: Path) -> None:
    health = Health()
    bad, good = (PartitionLog.open(tmp_path / name, BrokerClock(), {}, health=health) for name in ("bad-0", "good-0"))
    alone = PartitionLog.open(tmp_path / "alone-0", BrokerClock(), {})
    assert [log.append(BATCH).error for log in (bad, good, alone)] == [0, 0, 0]
    assert health.failure is None
    assert not is_told(health)
    shutil.rmtree(tmp_path / "bad-0")
    with pytest.raises(FileNotFoundError):
        bad.roll()
    assert is_told(health)
    failure = health.failure
    assert failure is not None
    assert (failure.errno, failure.filename) == (errno.ENOENT, str(tmp_path / "bad-0"))
    assert [log.append(BATCH).error for log in (bad, good, alone)] == [STORAGE_ERROR, STORAGE_ERROR, 0]
    assert good.offline_errno == errno.ENOENT
    with pytest.raises(FileNotFoundError):
        good.flush()
    size = os.path.getsize(tmp_path / "good-0" / f"{0:020d}.log")
    good.close()  # quietly, and without a word into the directory
    assert sorted(os.listdir(tmp_path / "good-0")) == [f"{0:020d}.log"]
    assert os.path.getsize(tmp_path / "good-0" / f"{0:020d}.log") == size


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENAMETOOLONG, errno.EBADMSG])
def test_what_is_not_the_disks_fault_changes_nothing(code: int) -> None:
    health = Health()
    assert not health.fail(OSError(code, os.strerror(code)))
    assert health.failure is None
    assert not is_told(health)


def test_the_first_failure_is_kept() -> None:
    health = Health()
    assert health.fail(OSError(errno.ENOSPC, "full"), "/a")
    assert health.fail(OSError(errno.EIO, "broken"), "/b")
    failure = health.failure
    assert failure is not None
    assert (failure.errno, failure.filename) == (errno.ENOSPC, "/a")
