"""Compaction of one large partition: the same segments through kbroker's cleaner and through Apache's.

    python -m bench.compaction --records 10000000 --keys 1000000

The segments are written by hand into a directory of kbroker's; each broker gets a copy, after a clean stop. Seconds run
from the moment the broker serves to the moment its cleaner-offset-checkpoint says that everything is compacted; CPU
seconds and peak memory are the whole process's.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

from compat_tests.client import TopicPlan
from compat_tests.confluent import ConfluentClient
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka
from compat_tests.oracle.apache import KAFKAS_OWN_JVM
from compat_tests.until import until
from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.codecs import LZ4, NONE, ZSTD
from kbroker._core.record.records import Record, build_batch
from kbroker.storage.checkpoints import CLEANER_OFFSETS, read_offsets

TOPIC = "large"
RECORDS_A_BATCH = 200
SEGMENT_BYTES = 128 << 20
SETTINGS = {"log.cleaner.backoff.ms": "50", "replica.high.watermark.checkpoint.interval.ms": "100"}
CODECS = {"none": NONE, "lz4": LZ4, "zstd": ZSTD}
PATIENCE_S = 600


def write_segments(partition: Path, records: int, keys: int, codec: int, value_bytes: int) -> int:
    """Keys at random, so that each is there about records / keys times. Where the active segment begins."""
    chance = random.Random(1)
    log = PartitionLog.open(partition, BrokerClock(), {"segment.bytes": SEGMENT_BYTES})
    now_ms = int(time.time() * 1000)
    filler = b"%032x" % chance.getrandbits(128) * (value_bytes // 32 + 1)
    for at in range(0, records, RECORDS_A_BATCH):
        batch = [
            Record(-1, now_ms, b"key-%012d" % key, filler[: value_bytes - 8] + b"%08d" % (at % 10**8), ())
            for key in chance.choices(range(keys), k=min(RECORDS_A_BATCH, records - at))
        ]
        assert log.append(build_batch(batch, codec=codec), leader_epoch=0).error == 0
    log.roll()
    end = log.log_end_offset
    log.append(build_batch([Record(timestamp=now_ms, key=b"last", value=b"")]), leader_epoch=0)
    log.close()
    return end


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def size_megabytes(partition: Path) -> float:
    return sum(path.stat().st_size for path in partition.glob("*.log")) / 1e6


def cleaned_to(data: Path) -> int:
    try:
        return read_offsets(data / CLEANER_OFFSETS).get((TOPIC, 0), 0)
    except ValueError:  # just being replaced
        return 0


def measure(broker: ApacheKafka | KBroker, pid_of: str, end: int) -> str:
    data = broker.data_directory
    before = size_megabytes(data / f"{TOPIC}-0")
    with broker:
        pid = broker.process.pid if isinstance(broker, KBroker) else broker.pid
        began, cpu = time.monotonic(), cpu_seconds(pid)
        until(lambda: cleaned_to(data) >= end, PATIENCE_S)
        seconds, cpu, peak = time.monotonic() - began, cpu_seconds(pid) - cpu, peak_megabytes(pid)
    after = size_megabytes(data / f"{TOPIC}-0")
    return (
        f"{pid_of:8} {seconds:6.1f} s  {before / seconds:7.1f} MB/s  CPU {cpu:6.1f} s  peak {peak:6.0f} MB"
        f"   {before:.0f} -> {after:.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=64)
    parser.add_argument("--codec", choices=CODECS, default="none")
    parser.add_argument("--rounds", type=int, default=1)
    asked = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="kbroker-compaction-bench-"))
    try:
        with KBroker(home, options=("--config", "log.cleaner.enable=false")) as broker:
            plan = TopicPlan(configs={"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)})
            with ConfluentClient(broker.bootstrap) as client:
                client.create_topic(TOPIC, plan)
        data = broker.data_directory
        codec = CODECS[asked.codec]
        end = write_segments(data / f"{TOPIC}-0", asked.records, asked.keys, codec, asked.value_bytes)
        options = tuple(part for name, value in SETTINGS.items() for part in ("--config", f"{name}={value}"))
        for _ in range(asked.rounds):
            for name in ("kbroker", "apache"):
                shutil.copytree(data, home / name)
                node: ApacheKafka | KBroker = KBroker.on_data_directory(home / name, options=options)
                if name == "apache":
                    node = ApacheKafka.on_data_directory(
                        home / name, settings=dict(SETTINGS), jvm_options=KAFKAS_OWN_JVM
                    )
                print(measure(node, name, end), flush=True)
                shutil.rmtree(home / name)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
