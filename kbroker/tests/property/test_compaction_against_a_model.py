"""Random logs, compacted at random moments, beside a model; with restarts, kills and tiny maps."""

import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbroker._core.clock import BrokerClock
from kbroker._core.log.cleaner import LogCleaning, Stopped
from kbroker._core.log.open_files import FileBudget
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import Record, build_batch
from kbroker.tests.property.compaction_model import (
    ABORT,
    COMMIT,
    Batch,
    Pass,
    aborted_batches,
    batches_in,
    batches_of,
    compacted,
)

NOW_MS = 1_700_000_000_000
COORDINATOR = 1
MANY = 10**6

keys = st.sampled_from([None, b"", b"a", b"b", b"c", b"d", b"e" * 40, b"f" * 8])
values = st.sampled_from([None, None, b"", b"value", b"v" * 60])
contents = st.lists(st.tuples(keys, values, st.integers(-500, 500)), min_size=1, max_size=6)


class CompactionAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="kbroker-compaction-"))
        self.directory = self.home / "t-0"
        self.clock = BrokerClock()
        self.clock.hold(NOW_MS)
        self.budget = FileBudget(8)
        self.model: list[Batch] = []
        self.cleaned_to = 0
        self.sequences: dict[int, int] = {}
        self.open_txns: set[int] = set()
        self.last_data: dict[int, bytes] = {}

    @initialize(
        segment=st.sampled_from([800, 1600, 5000]),
        interval=st.sampled_from([0, 100, 4096]),
        append_time=st.booleans(),
        retention=st.sampled_from([0, 500, 2000]),
    )
    def begin(self, segment: int, interval: int, append_time: bool, retention: int) -> None:
        kind = "LogAppendTime" if append_time else "CreateTime"
        self.config = {"segment.bytes": segment, "index.interval.bytes": interval, "message.timestamp.type": kind}
        self.retention = retention
        self.open()

    def open(self, **how: Any) -> None:
        self.log = PartitionLog.open(self.directory, self.clock, self.config, files=self.budget, **how)
        self.log.high_watermark = self.log.log_end_offset

    def appended(self, data: bytes, **how: Any) -> None:
        answer = self.log.append(data, leader_epoch=3, **how)
        assert answer.error == 0, answer
        assert not answer.duplicate
        self.log.high_watermark = self.log.log_end_offset
        self.model += batches_of(self.log.read(answer.base_offset))

    @rule(content=contents, codec=st.integers(0, 4), producer=st.sampled_from([-1, -1, -1, 1, 2]))
    def append(self, content: list[tuple[bytes | None, bytes | None, int]], codec: int, producer: int) -> None:
        now = self.clock.now_ms()
        records = [
            Record(timestamp=now + at, key=key, value=value, headers=(("h", b"x"),) if at % 3 == 0 else ())
            for key, value, at in content
        ]
        self.appended(self.built(records, producer, codec=codec))

    def built(self, records: list[Record], producer: int, **how: Any) -> bytes:
        if producer < 0:
            return build_batch(records, **how)
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(records)
        data = build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=sequence, **how)
        self.last_data[producer] = data
        return data

    @rule(content=contents, codec=st.sampled_from([0, 4]), producer=st.sampled_from([11, 12, 13]))
    def append_to_a_transaction(self, content: list[tuple[Any, Any, int]], codec: int, producer: int) -> None:
        now = self.clock.now_ms()
        records = [Record(timestamp=now + at, key=key, value=value) for key, value, at in content]
        self.appended(self.built(records, producer, codec=codec, transactional=True))
        self.open_txns.add(producer)

    @precondition(lambda self: self.open_txns)
    @rule(kind=st.sampled_from([ABORT, COMMIT]), data=st.data())
    def end_a_transaction(self, kind: int, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(sorted(self.open_txns)))
        self.open_txns.discard(producer)
        marker = Record(timestamp=self.clock.now_ms(), key=struct.pack(">hh", 0, kind), value=struct.pack(">hi", 0, 1))
        how: dict[str, Any] = {"control": True, "transactional": True, "producer_id": producer, "producer_epoch": 0}
        self.appended(build_batch([marker], **how), origin=COORDINATOR)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(by=st.integers(1, 1500))
    def time_passes(self, by: int) -> None:
        self.clock.advance(by)

    def upper(self) -> int:
        bases = [one.base_offset for one in self.log.segments()]
        bound = min(self.log.last_stable_offset, bases[-1])
        return max(base for base in bases if base <= bound)

    def cleaning(self, keys_held: int, stop_after: int = -1) -> LogCleaning:
        return LogCleaning(
            self.log,
            self.cleaned_to,
            MANY,
            self.clock.now_ms(),
            delete_retention_ms=self.retention,
            map_bytes=24 * (keys_held + 1),
            load_factor=1.0,
            buffer_bytes=1024,
            stop_after=stop_after,
        )

    @rule(keys_held=st.sampled_from([1, 2, 3, 1000]))
    def compact(self, keys_held: int) -> None:
        upper = self.upper()
        if self.cleaned_to >= upper:
            return
        cleaning = self.cleaning(keys_held)
        before = self.log.segments()
        while not cleaning.finished:
            cleaning.step()
        result = cleaning.result
        cleaning.close()
        assert self.cleaned_to < result.end_offset <= upper
        if result.end_offset < upper:
            assert result.keys == keys_held
        bases = [one.base_offset for one in before]
        copied_before = min((base for base in bases if base >= result.end_offset), default=upper)
        producers = {one.producer_id: (one.last_offset, one.producer_epoch) for one in self.log.producers()}
        how = Pass(
            copied_before,
            self.cleaned_to,
            result.end_offset,
            upper,
            producers,
            self.clock.now_ms(),
            self.retention,
        )
        self.model = compacted(self.model, how)
        self.cleaned_to = result.end_offset
        self.must_equal()

    def must_equal(self) -> None:
        assert batches_in(self.directory) == self.model
        assert not [path for path in self.directory.iterdir() if path.suffix in {".cleaned", ".swap"}]

    @rule(after=st.integers(0, 40))
    def be_killed_while_swapping(self, after: int) -> None:
        """Whatever step the kill came at, a later compaction makes of it what it would have made at once."""
        if self.cleaned_to >= self.upper():
            return
        values_before = self.newest_values()
        cleaning = self.cleaning(1000, stop_after=after)
        try:
            while not cleaning.finished:
                cleaning.step()
        except Stopped:
            pass
        cleaning.close()
        flushed = self.log.recovery_point
        del self.log
        self.open(clean=False, recovery_point=flushed)
        assert self.log.recovery_notes == []
        self.model = batches_in(self.directory)
        assert self.newest_values() == values_before

    def newest_values(self) -> dict[bytes, bytes]:
        """What a consumer that reads everything not aborted ends with."""
        log = batches_in(self.directory)
        aborted = aborted_batches(log)
        found: dict[bytes, bytes | None] = {}
        for one in log:
            if not one.control and one.base not in aborted:
                found.update({record.key: record.value for record in one.records if record.key is not None})
        return {key: value for key, value in found.items() if value is not None}

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.open()
        assert self.log.recovery_notes == []

    @rule()
    def crash_and_recover(self) -> None:
        flushed = self.log.recovery_point
        del self.log
        self.open(clean=False, recovery_point=flushed)
        assert self.log.recovery_notes == []

    @precondition(lambda self: self.last_data)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(sorted(self.last_data)))
        answer = self.log.append(self.last_data[producer], leader_epoch=3)
        assert (answer.error, answer.duplicate) == (0, True)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def read_from_any_offset(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.log.log_end_offset - 1))
        got = batches_of(self.log.read(offset, 1))
        assert got == [one for one in self.model if one.last >= offset][:1]

    @rule(times=st.integers(-2000, 2000))
    def look_up_a_time(self, times: int) -> None:
        at = self.clock.now_ms() + times
        records = [record for one in self.model for record in one.records]
        first = next(((record.offset, record.timestamp) for record in records if record.timestamp >= at), None)
        found = self.log.offset_for_timestamp(at)
        assert (None if found is None else (found.offset, found.timestamp)) == first

    @invariant()
    def descriptors_are_bounded(self) -> None:
        assert self.budget.open_segments <= self.budget.limit

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close(sync=False)
        shutil.rmtree(self.home, ignore_errors=True)


CompactionAgainstModel.TestCase.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
TestCompactionAgainstModel = CompactionAgainstModel.TestCase
