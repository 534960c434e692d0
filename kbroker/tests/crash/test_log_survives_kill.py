"""kill -9 at any moment, then reopen: what was acknowledged is there, once, in order, and nothing was invented."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import iterate

ROUNDS = 20
CONFIG = {"segment.bytes": 20_000, "index.interval.bytes": 500}

# Appends until it is killed: every record holds its own offset, every third batch is an idempotent producer's.
WRITER = """
import os, sys
from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import Record, build_batch

directory, recovery_point, sequence, flush_every = sys.argv[1], *map(int, sys.argv[2:])
clock = BrokerClock()
config = {"segment.bytes": 20_000, "index.interval.bytes": 500}
log = PartitionLog.open(directory, clock, config, clean=False, recovery_point=recovery_point)
turn = 0
while True:
    turn += 1
    count = 1 + turn % 4
    end = log.log_end_offset
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence} if turn % 3 == 0 else {}
    records = [Record(timestamp=clock.now_ms(), value=b"%d" % (end + i) + b"." * (turn % 200)) for i in range(count)]
    answer = log.append(build_batch(records, **producer))
    assert answer.error == 0 and answer.base_offset == end, answer
    if producer:
        sequence += count
    os.write(1, b"acked %d %d\\n" % (answer.last_offset, sequence))
    if turn % flush_every == 0:
        os.write(1, b"flushed %d\\n" % log.flush())
"""


def run_until_killed(directory: Path, recovery_point: int, sequence: int, lines: int, flush_every: int) -> list[str]:
    arguments = [str(directory), str(recovery_point), str(sequence), str(flush_every)]
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    ) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.readlines()
    return [line for line in told if line.endswith("\n")]


def test_nothing_acknowledged_is_lost_and_nothing_is_doubled(tmp_path: Path) -> None:
    chance = random.Random(20)
    directory = tmp_path / "topic-0"
    acked, recovery_point, sequence = -1, 0, 0
    for turn in range(ROUNDS):
        told = run_until_killed(
            directory, recovery_point, sequence, chance.randint(1, 400), chance.choice([7, 50, 10**9])
        )
        for line in told:
            word, number, *rest = line.split()
            if word == "acked":
                acked = int(number)
                sequence = int(rest[0])
            else:
                recovery_point = int(number)
        log = PartitionLog.open(directory, BrokerClock(), CONFIG, clean=False, recovery_point=recovery_point)
        assert log.log_end_offset > acked, turn
        records = []
        while len(records) < log.log_end_offset:
            records += iterate(log.read(len(records)))
        assert [record.offset for record in records] == list(range(log.log_end_offset))
        assert [int((record.value or b"").split(b".")[0]) for record in records] == list(range(log.log_end_offset))
        known = {producer.producer_id: producer.last_sequence for producer in log.producers()}
        if sequence:
            assert known[5] >= sequence - 1
            sequence = known[5] + 1
        acked = log.log_end_offset - 1
        if turn % 5 == 4:
            log.close()
            recovery_point = log.log_end_offset
        del log
