"""What happens to the files while the broker is down: some vanish or lose their end, and transactions are put in."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

from bench.campaigns.crash.ledger import Shelf, named
from kbroker._core.record.records import BrokenRecords, Record, batches, build_batch, iterate

CHECKPOINTS = ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint", "replication-offset-checkpoint")
METADATA = "__cluster_metadata-0"
CLEAN_MARKER = ".kafka_cleanshutdown"
FIRST_PRODUCER = 1 << 40  # ids that no broker here hands out
ABORT, COMMIT = 0, 1


def was_clean(directory: Path) -> bool:
    return (directory / CLEAN_MARKER).exists()


def partition_files(data: Path) -> list[Path]:
    """Of partitions that some topic owns: not of those that are being deleted or were set aside."""
    return sorted(path for path in data.glob("*/*-[0-9]/*") if path.is_file() and path.parent.name != METADATA)


def harm(data: Path, chance: random.Random) -> list[Path]:
    """Every one can be made anew: indexes from their log; producer snapshots too, unless the files are believed."""
    believed = [".index", ".timeindex"]
    there = [
        path
        for path in partition_files(data)
        if path.suffix in believed or (path.suffix == ".snapshot" and not was_clean(path.parent.parent))
    ]
    harmed = chance.sample(there, min(len(there), chance.randint(1, 40)))
    for path in harmed:
        size = path.stat().st_size
        if size == 0 or chance.random() < 0.5:
            path.unlink()
        elif path.suffix == ".index":
            _cut(path, chance.randrange(size))  # a sparser one is a sound one
        else:
            _cut(path, chance.choice((0, size - chance.randint(1, 11))))  # whole entries less: nobody could tell
    for directory in sorted(data.iterdir()):
        for name in CHECKPOINTS if not was_clean(directory) else ():
            if chance.random() < 0.2:
                (directory / name).unlink(missing_ok=True)
    return harmed


def _cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(max(size, 0))


def put_transactions(data: Path, shelf: Shelf, first_producer: int, chance: random.Random) -> bool:
    """Two interleaved transactions, one committed and one aborted, at the end of the log, as a broker would write them.

    False: the log ends in a torn batch, or its files are believed as they are, or a copy is about to be the log.
    """
    name = f"{shelf.topic.name}-{shelf.partition}"
    last = max(data.glob(f"*/{name}/*.log"), default=None)
    if last is None or was_clean(last.parent.parent):
        return False
    content = last.read_bytes()
    try:
        heads = batches(content)
        iterate(content)
    except BrokenRecords:
        return False
    end = heads[-1].last_offset + 1 if heads else int(last.name[:20])
    epoch = heads[-1].leader_epoch if heads else 0
    written, written_end = _transactions(shelf, end, epoch, first_producer, chance)
    with last.open("ab") as file:
        file.write(written)
    shelf.end = max(shelf.end, written_end)
    return True


def _transactions(
    shelf: Shelf, offset: int, epoch: int, first_producer: int, chance: random.Random
) -> tuple[bytes, int]:
    out = bytearray()
    sequences = {first_producer: 0, first_producer + 1: 0}
    now = int(time.time() * 1000)
    for turn in range(chance.randint(2, 6)):
        producer = first_producer + turn % 2
        records = [_record(shelf, f"txn-{producer}:{turn}:{i}", now, chance) for i in range(chance.randint(1, 4))]
        shelf.send(records)
        shelf.acknowledge(records, offset)
        if producer % 2:
            shelf.aborted.update(f"txn-{producer}:{turn}:{i}" for i in range(len(records)))
        out += build_batch(
            records,
            base_offset=offset,
            leader_epoch=epoch,
            codec=chance.randrange(5),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequences[producer],
            transactional=True,
        )
        sequences[producer] += len(records)
        offset += len(records)
    for producer in sequences:
        kind = ABORT if producer % 2 else COMMIT
        marker = Record(timestamp=now, key=struct.pack(">hh", 0, kind), value=struct.pack(">hi", 0, 0))
        out += build_batch(
            [marker],
            base_offset=offset,
            leader_epoch=epoch,
            producer_id=producer,
            producer_epoch=0,
            control=True,
            transactional=True,
        )
        offset += 1
    return bytes(out), offset


def _record(shelf: Shelf, name: str, now: int, chance: random.Random) -> Record:
    key = b"key-%d" % chance.randrange(shelf.topic.keys) if shelf.topic.keys else None
    return named(name, key, chance.randbytes(chance.randrange(80)), now)
