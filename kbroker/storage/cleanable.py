"""How dirty a compacted log is, and which part of it may be compacted now.

    start            first dirty          first uncleanable      active
      |  clean segments  |  cleanable segments  |  ...              |
                                                the segment that holds the last stable offset, or the first one younger
                                                than min.compaction.lag.ms, or the active one

Segments are compacted whole. As in Kafka the one that holds the first dirty offset counts as clean and as cleanable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from kbroker._core.log.partition_log import PartitionLog, SegmentFacts
from kbroker._core.record.records import batches

FOREVER_MS = 2**63 - 1


class CleaningRules(NamedTuple):
    """What a topic asks of its compaction."""

    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    delete_retention_ms: int
    file_delete_delay_ms: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> CleaningRules | None:
        """None: the topic is not compacted."""
        if "compact" not in config["cleanup.policy"]:
            return None
        return cls(
            float(config["min.cleanable.dirty.ratio"]),
            config["min.compaction.lag.ms"],
            config["max.compaction.lag.ms"],
            config["delete.retention.ms"],
            config["file.delete.delay.ms"],
        )


class Cleanable(NamedTuple):
    """What there is to do at one log."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue: bool  # something dirty is older than max.compaction.lag.ms

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, rules: CleaningRules) -> bool:
        return self.cleanable_bytes > 0 and (self.overdue or self.dirty_ratio > rules.min_dirty_ratio)


def look_at(log: PartitionLog, cleaned_to: int | None, rules: CleaningRules, now_ms: int) -> Cleanable:
    """`cleaned_to` is the last compaction's end; one that lies outside the log is not believed."""
    start, end = log.log_start_offset, log.log_end_offset
    first_dirty = cleaned_to if cleaned_to is not None and start <= cleaned_to <= end else start
    segments = log.segments(times=rules.min_lag_ms > 0)
    dirty = [one for one, after in pairwise(segments) if after.base_offset > first_dirty]
    bounds = [log.last_stable_offset, segments[-1].base_offset]
    if rules.min_lag_ms > 0:
        bounds += [one.base_offset for one in dirty if one.max_timestamp > now_ms - rules.min_lag_ms][:1]
    first_uncleanable = _beginning(segments, max(first_dirty, min(bounds)))
    return Cleanable(
        first_dirty,
        first_uncleanable,
        sum(one.size_bytes for one in segments if one.base_offset < first_dirty),
        sum(one.size_bytes for one in dirty if first_dirty < first_uncleanable and one.base_offset < first_uncleanable),
        _is_overdue(log, dirty, rules, now_ms),
    )


def _beginning(segments: Sequence[SegmentFacts], offset: int) -> int:
    """Of the segment that holds `offset`."""
    return max((one.base_offset for one in segments if one.base_offset <= offset), default=segments[0].base_offset)


def _is_overdue(log: PartitionLog, dirty: Sequence[SegmentFacts], rules: CleaningRules, now_ms: int) -> bool:
    if rules.max_lag_ms == FOREVER_MS:
        return False
    for one in dirty:
        if one.size_bytes > 0 and one.base_offset >= log.log_start_offset:
            first = batches(log.read(one.base_offset, 1))[0]
            if 0 < first.max_timestamp < now_ms - rules.max_lag_ms:
                return True
    return False
