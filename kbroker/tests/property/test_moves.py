"""A log on its way into another directory, whatever happens meanwhile: the copy equals it when they change places."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._core.clock import BrokerClock
from kbroker._core.log.handover import rename
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.moves import LogMove
from kbroker._core.partitions import PartitionHandle
from kbroker._core.record.records import Record, batches, build_batch, iterate
from kbroker.storage.moves import first_offset

FIRST_TRANSACTIONAL = 100
NOW_MS = 1_700_000_000_000
CONFIG = {"segment.bytes": 2000, "index.interval.bytes": 200, "retention.ms": -1}
FROM_COORDINATOR, FROM_LEADER = 1, 2

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5), st.integers(0, 300)),
    st.tuples(st.just("produce"), st.integers(1, 3), st.integers(0, 2)),  # by one of three producers
    st.tuples(st.just("gap"), st.integers(1, 50), st.just(0)),  # as compaction leaves it
    st.tuples(st.just("transact"), st.integers(0, 2), st.integers(1, 4)),  # one of three, how often before its end
    st.tuples(st.just("end"), st.integers(0, 2), st.booleans()),  # commit, or abort
    st.tuples(st.just("epoch"), st.just(0), st.just(0)),
    st.tuples(st.just("roll"), st.just(0), st.just(0)),
    st.tuples(st.just("delete"), st.integers(0, 100), st.just(0)),
    st.tuples(st.just("copy"), st.integers(1, 3000), st.just(0)),
    st.tuples(st.just("reopen"), st.booleans(), st.just(0)),  # the copy: cleanly, or as a kill leaves it
)


class Scene:
    def __init__(self, root: Path) -> None:
        self.clock = BrokerClock()
        self.clock.hold(NOW_MS)
        self.root = root
        self.log = PartitionLog.open(root / "a" / "t-0", self.clock, CONFIG, topic_id=bytes(range(16)))
        self.handle = PartitionHandle(0, self.log)
        self.epoch = 0
        self.handle.lead(1, self.epoch, 1, 1)
        self.sequences = [0, 0, 0]
        self.sent = [0, 0, 0]  # in transactions
        self.copy: PartitionLog | None = None

    def begin(self) -> None:
        (self.root / "b").mkdir()
        self.copy = self.open_copy(first_offset(self.log), make=False)
        self.copy.make()
        self.move = LogMove(self.log, self.copy)

    def open_copy(self, start: int, *, make: bool, clean: bool = True) -> PartitionLog:
        path = self.root / "b" / "t-0.0-future"
        return PartitionLog.open(
            path,
            self.clock,
            CONFIG,
            topic_id=bytes(range(16)),
            log_start_offset=start,
            make=make,
            clean=clean,
        )

    def replicate(self, batch: bytes, gap: int = 0) -> None:
        """As a leader's, which may be what no client can send yet."""
        stamped = bytearray(batch)
        stamped[:8] = (self.log.log_end_offset + gap).to_bytes(8, "big")
        stamped[12:16] = self.epoch.to_bytes(4, "big")
        assert self.log.append(bytes(stamped), origin=FROM_LEADER).error == 0
        self.handle.lead(1, self.epoch, 1, 1)

    def do(self, what: str, number: int, other: int) -> None:
        if what == "append":
            batch = build_batch([Record(timestamp=NOW_MS + other, value=b"v" * other)] * number)
            assert self.handle.produce(batch).error == 0
        elif what == "produce":
            batch = build_batch(
                [Record(timestamp=NOW_MS, value=b"p")] * number,
                producer_id=other,
                producer_epoch=0,
                base_sequence=self.sequences[other],
            )
            self.sequences[other] += number
            assert self.handle.produce(batch).error == 0
        elif what == "gap":
            self.replicate(build_batch([Record(timestamp=NOW_MS, value=b"g")]), number)
        elif what == "transact":
            self.replicate(
                build_batch(
                    [Record(timestamp=NOW_MS, value=b"t")] * other,
                    producer_id=FIRST_TRANSACTIONAL + number,
                    producer_epoch=0,
                    base_sequence=self.sent[number],
                    transactional=True,
                )
            )
            self.sent[number] += other
        elif what == "end":
            end = Record(timestamp=NOW_MS, key=struct.pack(">hh", 0, other), value=struct.pack(">hi", 0, 0))
            producer = FIRST_TRANSACTIONAL + number
            self.replicate(build_batch([end], producer_id=producer, producer_epoch=0, control=True, transactional=True))
        elif what == "epoch":
            self.epoch += 1
            self.handle.lead(1, self.epoch, 1, 1)
        elif what == "roll":
            self.log.roll()
        elif what == "delete":
            size = self.log.high_watermark - self.log.log_start_offset
            self.log.raise_start(self.log.log_start_offset + size * number // 100)
        elif self.copy is not None and what == "copy":
            self.move.step(number)
        elif self.copy is not None and what == "reopen":
            if number:
                self.copy.close()
            start = self.copy.log_start_offset
            del self.move
            self.copy = self.open_copy(start, make=True, clean=bool(number))
            self.move = LogMove(self.log, self.copy)


def aborted(log: PartitionLog) -> list[int]:
    """Where batches begin whose transaction was aborted. Of one that has no batch left nobody asks."""
    start, end = log.log_start_offset, log.log_end_offset
    found = log.collect_aborted(start, end)
    heads = []
    while start < end:
        heads += batches(log.read(start, 1 << 20))
        start = heads[-1].last_offset + 1
    return [
        head.base_offset
        for head in heads
        if any(
            one.producer_id == head.producer_id and one.first_offset <= head.base_offset < one.last_offset
            for one in found
        )
    ]


def facts(log: PartitionLog) -> dict[str, object]:
    records = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        data = log.read(at, 1 << 20)
        records += [(one.offset, one.timestamp, one.value) for one in iterate(data) if one.offset >= at]
        at = records[-1][0] + 1
    latest = log.offset_of_max_timestamp()
    return {
        "records": records,
        "bounds": (log.log_start_offset, log.high_watermark, log.log_end_offset, log.last_stable_offset),
        "aborted": aborted(log),
        "epochs": log.epochs(),
        "producers": sorted(log.producers()),
        # A deleted record may still be the latest one, in its old segment.
        "latest": latest if latest is not None and latest.offset >= log.log_start_offset else None,
        "first after": log.offset_for_timestamp(NOW_MS + 100),
    }


@settings(max_examples=200, deadline=None)
@given(before=st.lists(STEPS, max_size=12), meanwhile=st.lists(STEPS, max_size=25), after=st.lists(STEPS, max_size=6))
def test_a_copy_equals_its_source_whatever_happens_meanwhile(
    before: list[tuple[str, int, int]], meanwhile: list[tuple[str, int, int]], after: list[tuple[str, int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        scene = Scene(Path(directory))
        for step in before:
            scene.do(*step)
        scene.begin()
        for step in meanwhile:
            scene.do(*step)
        assert scene.copy is not None
        old, copy = scene.log, scene.copy
        expected = facts(old)
        while scene.move.step():
            pass
        assert scene.move.swap(scene.handle, str(scene.root / "a" / "t-0.1-delete"))
        assert scene.handle.log is copy
        found = facts(copy)
        assert {**found, "latest": None} == {**expected, "latest": None}
        assert expected["latest"] in (None, found["latest"])
        assert facts(old)["records"] == expected["records"]  # whoever still reads it finds its files
        rename(copy, str(scene.root / "b" / "t-0"))
        scene.log, scene.copy = copy, None
        for step in after:
            scene.do(*step)
        expected = facts(copy)
        copy.close()
        again = PartitionLog.open(
            scene.root / "b" / "t-0", scene.clock, CONFIG, log_start_offset=copy.log_start_offset, clean=True
        )
        again.high_watermark = again.log_end_offset
        found = facts(again)
        assert {**found, "epochs": None} == {**expected, "epochs": None}
        assert again.recovery_notes == []
        assert not (scene.root / "b" / "t-0.0-future").exists()
