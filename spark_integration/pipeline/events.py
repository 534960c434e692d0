"""Realistic traffic, the same for the same seed: pages by Zipf's law, late, repeated and malformed events.

A stream is a number of records as they are sent. Most are plain. Some name a page that the catalogue learns of only
`soon`, or `never` does by itself; some happened `late`, hours before they are sent; some are broken by a bug that
`repair` knows how to undo (`cut`, `worded`, `negative`, `renamed`), or beyond repair (`junk`); and some are copies of a
record shortly before. What must come out is counted while they are made.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

PAGES = [f"/page/{number}" for number in range(200)]
SOON = [f"/soon/{number}" for number in range(5)]
NEVER = [f"/never/{number}" for number in range(5)]
ACTIONS = ("view", "click", "buy")
BROKEN = ("cut", "worded", "negative", "renamed")
SHARES = {"soon": 0.010, "never": 0.005, "late": 0.010, "junk": 0.003} | dict.fromkeys(BROKEN, 0.003)
COPIES = 0.03
ZIPF = 1.1
_ZIPF_WEIGHTS = list(itertools.accumulate(1 / rank**ZIPF for rank in range(1, len(PAGES) + 1)))
SPAN_MS = 1_200_000  # the events happened in the twenty minutes before the start,
DELAYS_MS = ((0.80, 2_000), (0.95, 300_000), (1.0, 1_500_000))  # or so much earlier, most of them a little
HOURS_LATE_MS = 10_800_000

# How a record of a kind fares: at first, and after repair and replay of the dead letters.
_FATES = {
    "plain": ("counted", "counted"),
    "soon": ("retried", "retried"),
    "never": ("dead", "retried"),
    "late": ("late", "late"),
    "junk": ("dead", "dead"),
} | dict.fromkeys(BROKEN, ("dead", "retried"))
_FATES_OF_COPIES = {"late": ("late", "late")} | dict.fromkeys(BROKEN, ("dead", "duplicate"))

Key = tuple[int, str]
Totals = dict[Key, tuple[int, int]]


@dataclass(frozen=True)
class Sent:
    kind: str
    key: bytes
    value: bytes
    page: str
    at: int
    quantity: int


@dataclass
class Truth:
    """What must come out, at first and after the dead letters were repaired and replayed.

    Totals are (events, quantity) per (start of the window, page). Fates are of records: they add up to the input.
    """

    window_ms: int
    first: Totals = field(default_factory=dict)
    repaired: Totals = field(default_factory=dict)
    fates_first: Counter[str] = field(default_factory=Counter)
    fates_repaired: Counter[str] = field(default_factory=Counter)

    def sent(self, record: Sent) -> None:
        if record.kind in ("plain", "soon"):
            self._count(self.first, record)
        if record.kind not in ("late", "junk"):
            self._count(self.repaired, record)
        self._fare(*_FATES[record.kind])

    def copied(self, record: Sent) -> None:
        self._fare(*_FATES_OF_COPIES.get(record.kind, ("duplicate", "duplicate")))

    def to_json(self) -> str:
        def rows(totals: Totals) -> list[list[object]]:
            return [[*key, *value] for key, value in sorted(totals.items())]

        fates = {"fates_first": self.fates_first, "fates_repaired": self.fates_repaired}
        totals = {"first": rows(self.first), "repaired": rows(self.repaired)}
        return json.dumps({"window_ms": self.window_ms} | totals | fates)

    @staticmethod
    def from_json(text: str) -> Truth:
        def totals(rows: list[list[Any]]) -> Totals:
            return {(start, page): (events, quantity) for start, page, events, quantity in rows}

        read = json.loads(text)
        fates = (Counter(read["fates_first"]), Counter(read["fates_repaired"]))
        return Truth(read["window_ms"], totals(read["first"]), totals(read["repaired"]), *fates)

    def _fare(self, first: str, repaired: str) -> None:
        self.fates_first[first] += 1
        self.fates_repaired[repaired] += 1

    def _count(self, totals: Totals, record: Sent) -> None:
        key = (record.at - record.at % self.window_ms, record.page)
        events, quantity = totals.get(key, (0, 0))
        totals[key] = (events + 1, quantity + record.quantity)


def by_page(page: str, number: int) -> str:
    return page


def stream(
    count: int, seed: int, start_ms: int, truth: Truth, key_of: Callable[[str, int], str] = by_page
) -> Iterator[Sent]:
    """`count` records; `key_of` is asked for the Kafka key of a page's event, for those who salt."""
    chance = random.Random(seed)
    kinds, shares = ["plain", *SHARES], [1 - sum(SHARES.values()), *SHARES.values()]
    recent: list[Sent] = []
    for number in range(count):
        if recent and chance.random() < COPIES:
            again = chance.choice(recent)
            truth.copied(again)
            yield again
            continue
        kind = chance.choices(kinds, shares)[0]
        happened = start_ms - SPAN_MS + number * SPAN_MS // count
        record = _event(chance, kind, f"{seed:x}-{number:08x}", happened, key_of)
        truth.sent(record)
        if kind != "junk":
            recent = [*recent[-299:], record]
        yield record


def _event(chance: random.Random, kind: str, event_id: str, happened: int, key_of: Callable[[str, int], str]) -> Sent:
    if kind in ("soon", "never"):
        page = chance.choice(SOON if kind == "soon" else NEVER)
    else:
        page = chance.choices(PAGES, cum_weights=_ZIPF_WEIGHTS)[0]
    roll = chance.random()
    at = happened - chance.randrange(next(most for share, most in DELAYS_MS if roll < share))
    if kind == "late":
        at -= HOURS_LATE_MS
    event = {
        "event_id": event_id,
        "page": page,
        "user": f"user-{chance.randrange(5_000)}",
        "action": chance.choice(ACTIONS),
        "quantity": chance.randrange(1, 10),
        "at": at,
    }
    key = key_of(page, chance.getrandbits(16))
    return Sent(kind, key.encode(), _written(event, kind, chance), page, at, int(str(event["quantity"])))


def _written(event: dict[str, object], kind: str, chance: random.Random) -> bytes:
    match kind:
        case "junk":
            return b"\xff" + chance.randbytes(20)
        case "cut":
            return json.dumps(event)[:-1].encode()
        case "worded":
            event = event | {"quantity": f"{event['quantity']} pcs"}
        case "negative":
            event = event | {"quantity": -int(str(event["quantity"]))}
        case "renamed":
            event = {"url" if name == "page" else name: value for name, value in event.items()}
    return json.dumps(event).encode()


def repair(value: bytes) -> bytes | None:
    """The event as it was meant, or None where nobody can tell."""
    try:
        text = value.decode()
        event = json.loads(text if text.endswith("}") else text + "}")
    except ValueError:
        return None
    if "url" in event:
        event["page"] = event.pop("url")
    event["quantity"] = abs(int(str(event["quantity"]).split()[0]))
    return json.dumps(event).encode()
