"""What is wrong with a history, after the anomalies that Jepsen's workloads for Kafka look for.

invented         a value that nobody sent
two values       one offset at which two values were seen
duplicate        one value at two offsets
aborted read     a value of a transaction that failed
early read       a value that was seen before its transaction's commit was asked for
lost             a value of a committed transaction, or of an acknowledged send, that is not there
misplaced        a value that stands at another offset than its producer was told
torn             a transaction of which one part is there and another is not
unseen           a partition that nobody at read_committed can read to its end, though everything should have timed out
inversion        two sends of one producer to one partition whose offsets do not ascend
zombie           a value of a client that stands behind one of the client that had taken its transactional id
backwards        a reader's position that went back within one life
skipped          a record that a reader passed over within one life
circle           transactions that have seen one another's values in a circle
mistake          an error in the broker's own log
copied twice     a source record with two copies
not copied       a source record below the group's offset without a copy, or a copy of one that is not below it:
                 a transaction whose values and whose group's offset have parted

A reader here is at read_committed. What the end of the run shows is the truth that everything before is held against.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import permutations

from bench.campaigns.jepsen.history import Copy, History, Operation, Outcome, Reign, Seen, Send


@dataclass(slots=True, frozen=True, order=True)
class Anomaly:
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def check(history: History) -> list[Anomaly]:
    return sorted({*_Check(history).find()})


class _Check:
    def __init__(self, history: History) -> None:
        self.history = history
        self.sent: dict[str, tuple[Operation, Send]] = {
            send.value: (operation, send) for operation in history.operations for send in operation.sends
        }
        self.there: dict[str, tuple[str, int]] = {
            value: (partition, at) for partition, records in history.final.items() for at, value in records
        }

    def find(self) -> Iterator[Anomaly]:
        for line in self.history.mistakes:
            yield Anomaly("mistake", line)
        yield from self._places()
        for seen in self._everything_seen():
            yield from self._was_it_there_to_be_seen(seen)
        for operation in self.history.operations:
            yield from self._is_it_whole(operation)
        yield from self._unseen()
        yield from self._sending_order()
        yield from self._taking_over()
        yield from self._reading_order()
        yield from self._circles()
        for copy in self.history.copies:
            yield from self._copied(copy)

    def _everything_seen(self) -> Iterator[Seen]:
        for operation in self.history.operations:
            yield from operation.seen
        for partition, records in self.history.final.items():
            for at, value in records:
                yield Seen(partition, at, value, life=0, at=END)

    def _places(self) -> Iterator[Anomaly]:
        values: dict[tuple[str, int], set[str]] = defaultdict(set)
        places: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for seen in self._everything_seen():
            values[seen.partition, seen.offset].add(seen.value)
            places[seen.value].add((seen.partition, seen.offset))
        for (partition, at), found in values.items():
            if len(found) > 1:
                yield Anomaly("two values", f"{partition} at {at}: {', '.join(sorted(found))}")
        for value, where in places.items():
            if len(where) > 1:
                yield Anomaly("duplicate", f"{value} at {', '.join(f'{p} {at}' for p, at in sorted(where))}")

    def _was_it_there_to_be_seen(self, seen: Seen) -> Iterator[Anomaly]:
        where = f"{seen.value}, seen in {seen.partition} at {seen.offset}"
        if seen.value not in self.sent:
            yield Anomaly("invented", where)
            return
        operation, send = self.sent[seen.value]
        if operation.outcome is Outcome.FAILED:
            yield Anomaly("aborted read", f"{where}, is of {operation}, which failed")
        elif operation.transactional and operation.committing is not None and seen.at < operation.committing:
            yield Anomaly("early read", f"{where}, is of {operation}, whose commit was not asked for yet")
        if seen.partition != send.partition or send.offset not in (None, seen.offset):
            yield Anomaly("misplaced", f"{where}, was sent to {send.partition} at {send.offset}")

    def _is_it_whole(self, operation: Operation) -> Iterator[Anomaly]:
        missing = [send.value for send in operation.sends if send.value not in self.there]
        if operation.outcome is Outcome.OK:
            for value in missing:
                yield Anomaly("lost", f"{value} of {operation}")
        if operation.transactional and 0 < len(missing) < len(operation.sends):
            yield Anomaly("torn", f"{operation}: {', '.join(missing)} of {len(operation.sends)} values are not there")

    def _unseen(self) -> Iterator[Anomaly]:
        for partition, (stable, end) in self.history.hanging.items():
            yield Anomaly("unseen", f"{partition} ends at {end}; a transaction at {stable} is open for ever")

    def _sending_order(self) -> Iterator[Anomaly]:
        last: dict[tuple[str, str], tuple[int, str]] = {}
        for operation in self.history.operations:
            for partition, at, value in self._held(operation):
                key = (operation.process, partition)
                if key in last and at <= last[key][0]:
                    yield Anomaly("inversion", f"{value} at {at} of {partition}, after {last[key][1]}")
                last[key] = (at, value)

    def _taking_over(self) -> Iterator[Anomaly]:
        """Who takes a transactional id over ends what its predecessor left, before it writes anything itself."""
        stood: dict[tuple[str, str], dict[Reign, list[tuple[int, str]]]] = defaultdict(lambda: defaultdict(list))
        for operation in self.history.operations:
            if operation.reign is not None:
                for partition, at, value in self._held(operation):
                    stood[operation.reign.id, partition][operation.reign].append((at, value))
        for (_id, partition), reigns in stood.items():
            for earlier, later in permutations(reigns, 2):
                last, first = max(reigns[earlier]), min(reigns[later])
                if earlier.begun < later.asked and last > first:
                    yield Anomaly("zombie", f"{last[1]} at {last[0]} of {partition}, behind {first[1]} at {first[0]}")

    def _held(self, operation: Operation) -> Iterator[tuple[str, int, str]]:
        for send in operation.sends:
            if send.value in self.there:
                yield *self.there[send.value], send.value

    def _reading_order(self) -> Iterator[Anomaly]:
        """Only what the end of the run shows can be passed over: the rest is of transactions that were aborted."""
        last: dict[tuple[str, int, str], int] = {}
        held = {partition: [at for at, _ in records] for partition, records in self.history.final.items()}
        for operation in self.history.operations:
            for seen in operation.seen:
                key = (operation.process, seen.life, seen.partition)
                before = last.get(key)
                last[key] = seen.offset
                if before is None:
                    continue
                if seen.offset <= before:
                    yield Anomaly("backwards", f"{operation.process}: {seen.partition} {seen.offset} after {before}")
                elif (passed := _first_between(held.get(seen.partition, []), before, seen.offset)) is not None:
                    yield Anomaly("skipped", f"{operation.process}: {seen.partition} {passed} before {seen.offset}")

    def _circles(self) -> Iterator[Anomaly]:
        graph = {
            str(operation): {
                str(self.sent[seen.value][0])
                for seen in operation.seen
                if seen.value in self.sent and self.sent[seen.value][0] is not operation
            }
            for operation in self.history.operations
            if operation.transactional and operation.outcome is not Outcome.FAILED
        }
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as found:
            yield Anomaly("circle", " saw ".join(reversed(found.args[1])))

    def _copied(self, copy: Copy) -> Iterator[Anomaly]:
        """A copy's value is its source's partition and offset, and the name of who made it."""
        made: dict[tuple[str, int], list[str]] = defaultdict(list)
        for partition, records in self.history.final.items():
            if topic_of(partition) == copy.target:
                for _at, value in records:
                    made[source_of(value)].append(value)
        for (partition, at), values in made.items():
            if len(values) > 1:
                yield Anomaly("copied twice", f"{partition} at {at}: {', '.join(sorted(values))}")
            if at >= copy.committed.get(partition, 0):
                yield Anomaly("not copied", f"{partition} at {at} has the copy {values[0]}, and is not committed")
        for partition, records in self.history.final.items():
            if topic_of(partition) == copy.source:
                for at, _value in records:
                    if at < copy.committed.get(partition, 0) and (partition, at) not in made:
                        yield Anomaly("not copied", f"{partition} at {at} is committed, and has no copy")


END = 1 << 62  # later than anything


def _first_between(ascending: list[int], low: int, high: int) -> int | None:
    at = bisect_right(ascending, low)
    return ascending[at] if at < len(ascending) and ascending[at] < high else None


def topic_of(partition: str) -> str:
    return partition.rpartition("-")[0]


def copy_of(partition: str, offset: int, maker: str) -> str:
    return f"{partition}@{offset}@{maker}"


def source_of(value: str) -> tuple[str, int]:
    partition, offset, _maker = value.split("@")
    return partition, int(offset)
