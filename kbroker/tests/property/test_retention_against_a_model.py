"""Random lives of a log that ages, beside a model of Kafka's rules over a list of segments."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbroker._core.clock import BrokerClock
from kbroker._core.log.open_files import FileBudget
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import Record, build_batch, iterate

NOW_MS = 1_700_000_000_000


class Part:
    """One segment as the model remembers it."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.end = base
        self.size = 0
        self.newest = -1


class AgeingLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kbroker-retention-"))
        self.clock = BrokerClock()
        self.clock.hold(NOW_MS)
        self.budget = FileBudget(8)
        self.parts = [Part(0)]
        self.start = 0
        self.high_watermark = 0
        self.flushed = 0

    @initialize(retention_ms=st.sampled_from([-1, 0, 50, 400]), retention_bytes=st.sampled_from([-1, 0, 300, 1500]))
    def begin(self, retention_ms: int, retention_bytes: int) -> None:
        self.policy = "delete"
        self.retention_ms, self.retention_bytes = retention_ms, retention_bytes
        self.open(clean=True)

    @property
    def config(self) -> dict[str, object]:
        return {
            "retention.ms": self.retention_ms,
            "retention.bytes": self.retention_bytes,
            "cleanup.policy": self.policy,
            "index.interval.bytes": 100,
        }

    @property
    def end(self) -> int:
        return self.parts[-1].end

    def open(self, *, clean: bool) -> None:
        self.log = PartitionLog.open(
            self.directory / "t-0",
            self.clock,
            self.config,
            clean=clean,
            recovery_point=self.flushed,
            log_start_offset=self.start,
            files=self.budget,
        )
        self.log.high_watermark = self.high_watermark

    @rule(ages=st.lists(st.integers(0, 500), min_size=1, max_size=3), size=st.integers(0, 300))
    def append(self, ages: list[int], size: int) -> None:
        times = [self.clock.now_ms() - age for age in ages]
        data = build_batch([Record(timestamp=at, key=b"k", value=b"v" * size) for at in times])
        assert self.log.append(data).base_offset == self.end
        part = self.parts[-1]
        part.end += len(ages)
        part.size += len(data)
        part.newest = max(part.newest, *times)

    @rule()
    def roll(self) -> None:
        self.log.roll()
        if self.parts[-1].end > self.parts[-1].base:
            self.parts.append(Part(self.end))

    @rule(milliseconds=st.integers(1, 300))
    def grow_older(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.high_watermark = data.draw(st.integers(self.high_watermark, self.end))
        self.log.high_watermark = self.high_watermark

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.high_watermark))
        self.start = max(self.start, offset)
        assert self.log.raise_start(offset) == self.start

    @rule(
        retention_ms=st.sampled_from([-1, 0, 50, 400]),
        retention_bytes=st.sampled_from([-1, 0, 300, 1500]),
        policy=st.sampled_from(["delete", "delete", "compact,delete", "compact", ""]),
    )
    def change_settings(self, retention_ms: int, retention_bytes: int, policy: str) -> None:
        self.retention_ms, self.retention_bytes, self.policy = retention_ms, retention_bytes, policy
        self.log.configure(self.config)

    @rule()
    def flush(self) -> None:
        self.flushed = self.log.flush()

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.flushed = self.end
        self.open(clean=True)
        assert self.log.recovery_notes == []

    @rule()
    def crash_and_recover(self) -> None:
        self.open(clean=False)
        assert self.log.recovery_notes == []

    def reachable(self, index: int) -> bool:
        """Below the high watermark, and not the empty last one."""
        last = index + 1 == len(self.parts)
        part = self.parts[index]
        return part.end <= self.high_watermark and not (last and part.size == 0)

    def below_start(self) -> int:
        count = 0
        while count + 1 < len(self.parts) and self.parts[count + 1].base <= self.start:
            count += 1
        return count

    def too_large(self) -> int:
        above = sum(part.size for part in self.parts) - self.retention_bytes
        count = 0
        while count < len(self.parts) and self.reachable(count) and self.parts[count].size <= above:
            above -= self.parts[count].size
            count += 1
        return count

    def too_old(self) -> int:
        count = 0
        while count < len(self.parts) and self.reachable(count):
            if self.clock.now_ms() - self.parts[count].newest <= self.retention_ms:
                break
            count += 1
        return count

    def let_go(self, count: int) -> list[int]:
        gone = self.parts[:count]
        if gone and len(gone) == len(self.parts):
            self.parts.append(Part(self.end))
        self.parts = self.parts[count:]
        self.start = max(self.start, self.parts[0].base if gone else 0)
        return [part.base for part in gone]

    @rule()
    def retire(self) -> None:
        expected = self.let_go(self.below_start())
        if "delete" in self.policy and self.retention_bytes >= 0:
            expected += self.let_go(self.too_large())
        if "delete" in self.policy and self.retention_ms >= 0:
            expected += self.let_go(self.too_old())
        assert self.log.retire() == expected

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end - 1))
        records = iterate(self.log.read(offset))
        assert offset in [record.offset for record in records]

    @invariant()
    def both_tell_the_same(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
            assert [(one.base_offset, one.size_bytes) for one in self.log.segments()] == [
                (part.base, part.size) for part in self.parts
            ]
            names = {path.name for path in (self.directory / "t-0").glob("*.log")}
            assert names == {f"{part.base:020d}.log" for part in self.parts}
            assert self.start <= self.high_watermark

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close(sync=False)
        shutil.rmtree(self.directory, ignore_errors=True)


AgeingLog.TestCase.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
TestAgeingLog = AgeingLog.TestCase
