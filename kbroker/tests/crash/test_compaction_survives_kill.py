"""kill -9 while a log is compacted: of every key the newest acknowledged value is there, and no older one."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker.tests.unit.log.batches import read_all

ROUNDS = 40
CONFIG = {"segment.bytes": 6_000, "index.interval.bytes": 300}

# Appends from one thread and compacts in another until it is killed. A record's value tells its own offset.
WRITER = """
import os, sys, threading
from kbroker._core.clock import BrokerClock
from kbroker._core.log.cleaner import LogCleaning
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import Record, build_batch

directory, recovery_point = sys.argv[1], int(sys.argv[2])
clock = BrokerClock()
config = {"segment.bytes": 6_000, "index.interval.bytes": 300}
log = PartitionLog.open(directory, clock, config, clean=False, recovery_point=recovery_point)
log.high_watermark = log.log_end_offset

permits = threading.Semaphore(200)       # so that appends do not run away from the compaction

def compact():
    dirty = 0
    while True:
        cleaning = LogCleaning(log, dirty, log.log_end_offset, clock.now_ms(), delete_retention_ms=1, map_bytes=24 * 40)
        while not cleaning.finished:
            cleaning.step()
        dirty = cleaning.result.end_offset if cleaning.result.end_offset > dirty else 0
        cleaning.close()
        os.write(1, b"compacted\\n")
        permits.release(200)

threading.Thread(target=compact, daemon=True).start()
turn = log.log_end_offset
while True:
    turn += 1
    permits.acquire()
    end = log.log_end_offset
    records = [
        Record(timestamp=clock.now_ms(), key=b"%d" % ((turn * 3 + i) % 30),
               value=None if (turn + i) % 11 == 0 else b"%d" % (end + i) + b"." * (turn % 90))
        for i in range(1 + turn % 3)
    ]
    answer = log.append(build_batch(records, codec=turn % 5))
    assert answer.error == 0 and answer.base_offset == end, answer
    log.high_watermark = log.log_end_offset
    told = b"".join(b"%s=%d%s " % (r.key, end + i, b"" if r.value else b"!") for i, r in enumerate(records))
    os.write(1, b"acked " + told.rstrip() + b"\\n")
"""


def run_until_killed(directory: Path, lines: int, compactions: int) -> list[str]:
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), "0"], stdout=subprocess.PIPE, text=True, env=environment
    ) as writer:
        assert writer.stdout is not None
        told: list[str] = []
        while len(told) < lines or compactions > 0:
            told.append(writer.stdout.readline())
            assert told[-1], "the writer has failed"
            compactions -= told[-1] == "compacted\n"
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.readlines()
    return [line for line in told if line.endswith("\n")]


def test_no_key_loses_its_newest_value_and_none_gets_an_older_one_back(tmp_path: Path) -> None:
    chance = random.Random(4)
    directory = tmp_path / "topic-0"
    acked: dict[str, tuple[int, bool]] = {}
    compactions = 0
    for turn in range(ROUNDS):
        for line in run_until_killed(directory, chance.randint(50, 900), chance.randint(0, 8)):
            word, *rest = line.split()
            compactions += word == "compacted"
            for one in rest:
                key, _, offset = one.partition("=")
                acked[key] = (int(offset.rstrip("!")), offset.endswith("!"))
        log = PartitionLog.open(directory, BrokerClock(), CONFIG, clean=False, recovery_point=0)
        assert log.recovery_notes == [], turn
        found: dict[str, tuple[int, bool]] = {}
        for record in read_all(log):
            if record.value is not None:
                assert int(record.value.split(b".")[0]) == record.offset
            found[(record.key or b"").decode()] = (record.offset, record.value is None)
        for key, (offset, deleted) in acked.items():
            newest, gone = found.get(key, (offset, True))
            assert newest >= offset, (turn, key)  # what was written and not yet told may be there
            if newest == offset:
                assert gone == deleted, (turn, key)
        log.close()
    assert compactions > 3 * ROUNDS
