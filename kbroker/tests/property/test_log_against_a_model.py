"""Random lives of a log beside a naive model: a list of batches. Whatever happens, both tell the same story."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbroker._core.clock import BrokerClock
from kbroker._core.log.open_files import FileBudget
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import Record, batches, build_batch, iterate

NOW_MS = 1_700_000_000_000


class Modelled:
    """One batch as the model remembers it."""

    def __init__(self, base: int, records: list[tuple[int, bytes]], epoch: int, producer: int, sequence: int) -> None:
        self.base = base
        self.records = records
        self.epoch = epoch
        self.producer = producer
        self.sequence = sequence

    @property
    def last(self) -> int:
        return self.base + len(self.records) - 1


class LogAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kbroker-log-"))
        self.clock = BrokerClock()
        self.clock.hold(NOW_MS)
        self.budget = FileBudget(8)
        self.model: list[Modelled] = []
        self.epoch = 0
        self.start = 0
        self.flushed = 0
        self.sequences: dict[int, int] = {}

    @initialize(
        segment=st.integers(200, 3000),
        interval=st.integers(0, 400),
        index=st.sampled_from([40, 400, 10485760]),
        lasting=st.booleans(),
    )
    def begin(self, segment: int, interval: int, index: int, lasting: bool) -> None:
        self.config = {"segment.bytes": segment, "index.interval.bytes": interval, "segment.index.bytes": index}
        self.lasting = lasting
        if lasting:
            self.log = PartitionLog.open(self.directory / "t-0", self.clock, self.config, files=self.budget)
        else:
            self.log = PartitionLog.in_memory(self.clock, self.config)

    @property
    def end(self) -> int:
        return self.model[-1].last + 1 if self.model else self.base

    base = 0

    @rule(
        sizes=st.lists(st.integers(0, 60), min_size=1, max_size=5),
        times=st.integers(-1000, 1000),
        producer=st.sampled_from([-1, -1, 1, 2, 3]),
    )
    def append(self, sizes: list[int], times: int, producer: int) -> None:
        records = [(NOW_MS + times + i, bytes([i]) * size) for i, size in enumerate(sizes)]
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        data = build_batch(
            [Record(timestamp=timestamp, value=value) for timestamp, value in records],
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
        )
        answer = self.log.append(data, leader_epoch=self.epoch)
        if len(data) > self.config["segment.bytes"]:
            assert answer.error == 18
            return
        assert (answer.error, answer.base_offset) == (0, self.end)
        self.model.append(Modelled(self.end, records, self.epoch, producer, sequence))
        if producer >= 0:
            self.sequences[producer] = sequence + len(records)

    def newest_of_producers(self) -> list[Modelled]:
        # What lies below the start may be forgotten by a replay, as in Kafka.
        return [b for b in {b.producer: b for b in self.model if b.producer >= 0}.values() if b.base >= self.start]

    @precondition(lambda self: self.newest_of_producers())
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        last = data.draw(st.sampled_from(self.newest_of_producers()))
        again = build_batch(
            [Record(timestamp=timestamp, value=value) for timestamp, value in last.records],
            producer_id=last.producer,
            producer_epoch=0,
            base_sequence=last.sequence,
        )
        answer = self.log.append(again, leader_epoch=self.epoch)
        assert (answer.error, answer.duplicate, answer.base_offset) == (0, True, last.base)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    @rule()
    def flush(self) -> None:
        self.flushed = self.log.flush()
        assert self.flushed == self.end

    @precondition(lambda self: self.lasting)
    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.flushed = self.end
        self.log = PartitionLog.open(
            self.directory / "t-0", self.clock, self.config, log_start_offset=self.start, files=self.budget
        )
        assert self.log.recovery_notes == []

    @precondition(lambda self: self.lasting)
    @rule(torn=st.binary(max_size=80))
    def crash_and_recover(self, torn: bytes) -> None:
        last = self.log.segments()[-1].base_offset
        with (self.directory / "t-0" / f"{last:020d}.log").open("ab") as file:
            file.write(torn)
        self.log = PartitionLog.open(
            self.directory / "t-0",
            self.clock,
            self.config,
            clean=False,
            recovery_point=self.flushed,
            log_start_offset=self.start,
            files=self.budget,
        )
        assert sum(note.bytes for note in self.log.recovery_notes) == len(torn)

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        kept = [batch for batch in self.model if batch.last < offset]
        dropped = self.model[len(kept) :]
        if dropped:
            self.base = dropped[0].base if not kept else self.base
        self.model = kept
        assert self.log.truncate_to(offset) == self.end
        self.start = min(self.start, self.end)
        self.flushed = min(self.flushed, self.end)
        self.sequences = {}
        for batch in self.model:
            if batch.producer >= 0:
                self.sequences[batch.producer] = batch.sequence + len(batch.records)

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def delete_beginning(self, data: st.DataObject) -> None:
        self.log.high_watermark = self.end
        offset = data.draw(st.integers(self.start, self.end))
        assert self.log.raise_start(offset) == offset
        self.log.retire(NOW_MS)
        self.start = offset

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data(), max_bytes=st.integers(1, 2000), at_least_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, at_least_one: bool) -> None:
        offset = data.draw(st.integers(self.start, self.end - 1))
        bound = data.draw(st.none() | st.integers(offset, self.end))
        got = self.log.read(offset, max_bytes, bound, at_least_one=at_least_one)
        below = [b for b in self.model if b.last >= offset and (bound is None or b.last < bound)]
        headers = batches(got)
        assert [header.base_offset for header in headers] == [batch.base for batch in below[: len(headers)]]
        if len(got) > max_bytes:
            assert at_least_one
            assert len(headers) == 1
        if below and at_least_one:
            assert headers
        expected = [(b.base + i, *r) for b in below[: len(headers)] for i, r in enumerate(b.records)]
        assert [(record.offset, record.timestamp, record.value) for record in iterate(got)] == expected
        assert [header.leader_epoch for header in headers] == [batch.epoch for batch in below[: len(headers)]]

    @rule(times=st.integers(-1100, 1100))
    def look_up_a_time(self, times: int) -> None:
        records = [
            (batch.base + i, timestamp)
            for batch in self.model
            for i, (timestamp, _) in enumerate(batch.records)
            if batch.base + i >= self.start
        ]
        first = next(((offset, at) for offset, at in records if at >= NOW_MS + times), None)
        found = self.log.offset_for_timestamp(NOW_MS + times)
        assert (None if found is None else (found.offset, found.timestamp)) == first

    @invariant()
    def offsets_agree(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
            assert self.budget.open_segments <= self.budget.limit

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close(sync=False)
        shutil.rmtree(self.directory, ignore_errors=True)


LogAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestLogAgainstModel = LogAgainstModel.TestCase
