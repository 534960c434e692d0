"""Warnings that clients cause: one line per minute for events that are alike."""

import io
import json

from kbroker.observe import repeats
from kbroker.observe.logging import BrokerLog
from kbroker.observe.repeats import Repeats


class Bench:
    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.log = BrokerLog("json", "info", self.stream)
        self.now = 0.0
        self.repeats = Repeats(self.log, lambda: self.now)

    def lines(self) -> list[tuple[str, int]]:
        self.log.close()
        found = (json.loads(line) for line in self.stream.getvalue().splitlines())
        return [(line["peer"], line["count"]) for line in found]


def test_events_that_are_alike_are_one_line_per_minute_and_the_next_line_counts_them() -> None:
    bench = Bench()
    for second in range(121):
        bench.now = float(second)
        bench.repeats.warning("closed", "10.0.0.1", peer="10.0.0.1", count=2)
    assert bench.lines() == [("10.0.0.1", 2), ("10.0.0.1", 120), ("10.0.0.1", 120)]


def test_events_of_different_clients_are_lines_of_their_own() -> None:
    bench = Bench()
    for peer in ("10.0.0.1", "10.0.0.2", "10.0.0.1"):
        bench.repeats.warning("closed", peer, peer=peer)
    assert bench.lines() == [("10.0.0.1", 1), ("10.0.0.2", 1)]


def test_memory_is_bounded_whatever_clients_do() -> None:
    bench = Bench()
    for number in range(3 * repeats.KEYS_MAX):
        bench.repeats.warning("closed", number, peer="10.0.0.1")
    assert len(bench.repeats._kinds) == repeats.KEYS_MAX
    bench.log.close()
