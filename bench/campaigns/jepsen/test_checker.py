"""The checker is silent on histories that could be, and objects to each that could not."""

from __future__ import annotations

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.campaigns.jepsen.checker import check, copy_of
from bench.campaigns.jepsen.history import Copy, History, Operation, Outcome, Reign, Seen, Send, read


def transaction(
    name: str, began: int, sends: list[Send], *, outcome: Outcome = Outcome.OK, seen: list[Seen] | None = None
) -> Operation:
    process, _, number = name.partition("/")
    return Operation(
        process,
        int(number),
        began,
        transactional=True,
        outcome=outcome,
        committing=began + 5,
        ended=began + 8,
        sends=sends,
        seen=seen or [],
    )


def good() -> History:
    """Two writers, one that aborts, a reader, and a copier that has come half-way."""
    return History(
        operations=[
            transaction("a/1", 10, [Send("q-0", "a1", 0), Send("q-1", "a2", 0)]),
            transaction("b/1", 20, [Send("q-0", "b1", 2), Send("q-1", "b2", 2)], outcome=Outcome.FAILED),
            transaction("a/2", 30, [Send("q-0", "a3", 4)], seen=[Seen("q-1", 0, "a2", 1, 32)]),
            transaction("a/3", 35, [Send("q-0", "a4"), Send("q-1", "a5")], outcome=Outcome.UNKNOWN),
            Operation(
                "r",
                1,
                40,
                transactional=False,
                outcome=Outcome.OK,
                seen=[Seen("q-0", 0, "a1", 1, 50), Seen("q-0", 4, "a3", 1, 50), Seen("q-0", 6, "a4", 1, 50)],
            ),
            Operation("f", 1, 50, transactional=False, outcome=Outcome.OK, sends=[Send("in-0", "f1", 0)]),
            Operation("f", 2, 52, transactional=False, outcome=Outcome.OK, sends=[Send("in-0", "f2", 1)]),
            copied(60, "in-0", 0, "c-1"),
        ],
        final={
            "q-0": [(0, "a1"), (4, "a3"), (6, "a4")],
            "q-1": [(0, "a2"), (4, "a5")],
            "in-0": [(0, "f1"), (1, "f2")],
            "out-0": [(0, copy_of("in-0", 0, "c-1"))],
        },
        copies=[Copy("in", "out", {"in-0": 1})],
    )


def copied(began: int, partition: str, at: int, maker: str, *, to: int = 0) -> Operation:
    return transaction(f"c/{began}", began, [Send("out-0", copy_of(partition, at, maker), to)])


def kinds(history: History) -> set[str]:
    return {anomaly.kind for anomaly in check(history)}


def test_a_history_that_could_be() -> None:
    assert check(good()) == []


def test_invented() -> None:
    history = good()
    history.final["q-0"].append((8, "nobody's"))
    assert kinds(history) == {"invented"}


def test_two_values() -> None:
    history = good()
    history.operations[4].seen[0] = Seen("q-0", 0, "a3", 1, 50)
    assert "two values" in kinds(history)


def test_duplicate() -> None:
    history = good()
    history.final["q-0"].append((8, "a4"))
    assert "duplicate" in kinds(history)


def test_aborted_read() -> None:
    history = good()
    history.operations[4].seen.insert(1, Seen("q-0", 2, "b1", 1, 50))
    assert kinds(history) == {"aborted read"}


def test_early_read() -> None:
    history = good()
    history.operations[4].seen[0] = Seen("q-0", 0, "a1", 1, 14)
    assert kinds(history) == {"early read"}


def test_lost_of_a_transaction() -> None:
    history = good()
    history.final["q-1"].pop(0)
    assert "lost" in kinds(history)


def test_lost_of_a_send_by_itself() -> None:
    history = good()
    history.final["in-0"].pop()
    assert kinds(history) == {"lost"}


def test_misplaced() -> None:
    history = good()
    history.operations[0].sends[0].offset = 1
    assert kinds(history) == {"misplaced"}


def test_torn_of_unknown_outcome() -> None:
    history = good()
    history.final["q-1"].pop()
    assert kinds(history) == {"torn"}


def test_torn_of_a_commit_that_was_told() -> None:
    history = good()
    history.final["q-1"].pop(0)
    assert kinds(history) == {"lost", "torn"}


def test_torn_of_an_abort_that_was_told() -> None:
    history = good()
    history.final["q-0"].insert(1, (2, "b1"))
    history.operations[4].seen.insert(1, Seen("q-0", 2, "b1", 1, 50))
    assert kinds(history) == {"aborted read", "torn"}


def test_unseen() -> None:
    history = good()
    history.hanging["q-1"] = (5, 6)
    assert kinds(history) == {"unseen"}


def reigning(*reigns: Reign) -> History:
    """The three transactions of writer a, which stand one after the other in q-0, under these."""
    history = good()
    for at, reign in zip((0, 2, 3), reigns, strict=True):
        history.operations[at].process = f"a.{reign.asked}"
        history.operations[at].reign = reign
    return history


def test_zombie() -> None:
    first, second = Reign("a", 1, 5), Reign("a", 25, 28)
    assert kinds(reigning(first, second, first)) == {"zombie"}


def test_a_transactional_id_that_is_taken_back() -> None:
    assert check(reigning(Reign("a", 1, 5), Reign("a", 25, 28), Reign("a", 31, 33))) == []


def test_two_who_take_a_transactional_id_at_one_time() -> None:
    first, second = Reign("a", 1, 30), Reign("a", 25, 28)
    assert check(reigning(first, second, first)) == []


def test_torn_offsets_without_their_copy() -> None:
    history = good()
    history.operations[-1].outcome = Outcome.UNKNOWN
    history.final["out-0"].clear()
    assert kinds(history) == {"not copied"}


def test_a_copy_that_another_made_when_the_first_was_aborted() -> None:
    history = good()
    given_up = copied(58, "in-0", 0, "c-0")
    given_up.outcome, given_up.sends[0].offset = Outcome.UNKNOWN, None
    history.operations.insert(-1, given_up)
    assert check(history) == []


def test_torn_copy_without_its_offsets() -> None:
    history = good()
    history.copies[0].committed = {}
    assert kinds(history) == {"not copied"}


def test_inversion() -> None:
    history = good()
    history.operations[0].sends.append(Send("q-0", "a0"))
    history.final["q-0"] = [(0, "a1"), (4, "a3"), (6, "a4"), (8, "a0")]
    assert "inversion" in kinds(history)


def test_backwards() -> None:
    history = good()
    history.operations[4].seen.append(Seen("q-0", 4, "a3", 1, 51))
    assert kinds(history) == {"backwards"}


def test_going_back_is_allowed_in_another_life() -> None:
    history = good()
    history.operations[4].seen.append(Seen("q-0", 4, "a3", 2, 51))
    assert check(history) == []


def test_skipped() -> None:
    history = good()
    del history.operations[4].seen[1]
    assert kinds(history) == {"skipped"}


def test_circle() -> None:
    history = good()
    history.operations[0].seen.append(Seen("q-0", 4, "a3", 1, 45))
    assert kinds(history) == {"circle"}


def test_mistake() -> None:
    history = good()
    history.mistakes.append("[error    ] a transaction cannot be ended")
    assert kinds(history) == {"mistake"}


def test_copied_twice() -> None:
    history = good()
    history.operations.append(copied(70, "in-0", 0, "c-2", to=2))
    history.final["out-0"].append((2, copy_of("in-0", 0, "c-2")))
    assert kinds(history) == {"copied twice"}


def test_lines_of_a_client_that_was_killed_in_mid_write() -> None:
    lines = [
        {"event": "taken", "id": "w", "asked": 5, "at": 8},
        {"event": "begin", "op": 1, "at": 10},
        {"event": "send", "partition": "q-0", "value": "x"},
        {"event": "sent", "value": "x", "offset": 3},
        {"event": "committing", "at": 12},
        {"event": "end", "outcome": "ok", "at": 14},
        {"event": "begin", "op": 2, "at": 20},
        {"event": "send", "partition": "q-0", "value": "y"},
    ]
    told = [json.dumps(line) for line in lines]
    first, second = read("w", [*told, '{"event": "comm'], transactional=True)
    assert (first.outcome, first.sends[0].offset, first.committing) == (Outcome.OK, 3, 12)
    assert second.outcome is Outcome.FAILED
    assert first.reign == second.reign == Reign("w", 5, 8)
    second = list(read("w", [*told, '{"event": "committing", "at": 22}'], transactional=True))[1]
    assert second.outcome is Outcome.UNKNOWN


class Model:
    """A log with transactions, markers and read_committed readers: whatever it does is a good history."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.clock = 0
        self.ends = {"q-0": 0, "q-1": 0, "in-0": 0, "out-0": 0}
        self.visible: dict[str, list[tuple[int, str]]] = {name: [] for name in self.ends}
        self.open: dict[str, set[int]] = {name: set() for name in self.ends}  # first offsets of open transactions
        self.position: dict[tuple[str, str], int] = {}
        self.committed = 0
        self.operations: list[Operation] = []
        self.running: list[tuple[Operation, dict[str, int], list[tuple[str, int, str]]]] = []

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def append(self, partition: str) -> int:
        self.ends[partition] += 1
        return self.ends[partition] - 1

    def poll(self, process: str, partition: str) -> list[Seen]:
        stable = min({self.ends[partition], *self.open[partition]})
        start = self.position.get((process, partition), 0)
        found = [(at, value) for at, value in sorted(self.visible[partition]) if start <= at < stable]
        found = found[: self.chance.randrange(4)]
        if found:
            self.position[process, partition] = found[-1][0] + 1
        return [Seen(partition, at, value, 1, self.tick()) for at, value in found]

    def begin(self, number: int) -> None:
        operation = Operation(f"w{number}", number, self.tick(), transactional=True)
        first: dict[str, int] = {}
        wrote = []
        for count in range(self.chance.randrange(1, 4)):
            partition = self.chance.choice(("q-0", "q-1"))
            at, value = self.append(partition), f"v{number}-{count}"
            if partition not in first:
                first[partition] = at
                self.open[partition].add(at)
            operation.sends.append(Send(partition, value, at if self.chance.random() < 0.8 else None))
            wrote.append((partition, at, value))
        if self.chance.random() < 0.5:
            operation.seen = self.poll(operation.process, self.chance.choice(("q-0", "q-1")))
        self.running.append((operation, first, wrote))

    def end(self) -> None:
        operation, first, wrote = self.running.pop(self.chance.randrange(len(self.running)))
        commit = self.chance.random() < 0.6
        operation.committing = self.tick() if commit or self.chance.random() < 0.3 else None
        operation.outcome = Outcome.OK if commit else Outcome.FAILED
        if self.chance.random() < 0.3 and operation.committing is not None:
            operation.outcome = Outcome.UNKNOWN
        for partition, at in first.items():
            self.open[partition].discard(at)
            self.append(partition)  # the marker
        if commit:
            for partition, at, value in wrote:
                self.visible[partition].append((at, value))
        operation.ended = self.tick()
        self.operations.append(operation)

    def copy(self, number: int) -> None:
        fed = self.append("in-0")
        self.visible["in-0"].append((fed, f"f{number}"))
        self.operations.append(
            Operation(
                "f", number, self.tick(), transactional=False, outcome=Outcome.OK, sends=[Send("in-0", f"f{number}")]
            )
        )
        if self.chance.random() < 0.5 and self.committed <= fed:
            value = copy_of("in-0", self.committed, f"c-{number}")
            at = self.append("out-0")
            operation = copied(self.tick(), "in-0", self.committed, f"c-{number}", to=at)
            self.committed += 1
            self.visible["out-0"].append((at, value))
            self.operations.append(operation)

    def run(self, steps: int) -> History:
        for number in range(steps):
            match self.chance.randrange(4):
                case 0 | 1:
                    self.begin(number)
                case 2 if self.running:
                    self.end()
                case _:
                    self.copy(number)
                    self.operations.append(
                        Operation("r", number, self.tick(), transactional=False, seen=self.poll("r", "q-0"))
                    )
        while self.running:
            self.end()
        final = {name: sorted(records) for name, records in self.visible.items()}
        return History(self.operations, final, [Copy("in", "out", {"in-0": self.committed})])


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(1, 40))
def test_silent_on_everything_a_right_broker_can_do(seed: int, steps: int) -> None:
    assert check(Model(random.Random(seed)).run(steps)) == []


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(10, 40), data=st.data())
def test_a_record_that_vanishes_is_missed(seed: int, steps: int, data: st.DataObject) -> None:
    history = Model(random.Random(seed)).run(steps)
    owed = {send.value for one in history.operations if one.outcome is Outcome.OK for send in one.sends}
    held = [(name, record) for name, records in history.final.items() for record in records if record[1] in owed]
    if not held:
        return
    name, record = data.draw(st.sampled_from(held))
    history.final[name].remove(record)
    assert any(anomaly.kind == "lost" and record[1] in anomaly.text for anomaly in check(history))
