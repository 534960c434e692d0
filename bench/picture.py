"""Draws docs/race.svg: six figures of a race, kbroker's bar above Apache Kafka's, absolute numbers beside them.

All bars are scaled so that shorter is better, each pair to its own longer bar: a rate is drawn as the time that a
million requests take. The greys and colours keep a contrast of at least 3:1 on a white page and on a dark one, because
an SVG inside a page cannot know the page's background. Apache Kafka's bars are outlined, not only coloured otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

from bench.outcome import Race, Row

WIDTH, MARGIN = 830, 6  # a repository page shows images at most this wide
NUMBERS_END, BARS_START, BARS_END = 366, 376, 726
TOP, PAIR, BAR, BETWEEN = 64, 50, 14, 4
TEXT, KBROKER, APACHE = "#727a83", "#1a7fd4", "#8a929b"
FONT = "font-family='system-ui,-apple-system,Segoe UI,DejaVu Sans,sans-serif'"
RIVAL = "Apache Kafka"
MILLION = 1_000_000


@dataclass(frozen=True)
class Headline:
    """One pair of bars: which figure of which work it shows, and in which words."""

    title: str
    meaning: str
    work: str
    figure: str
    unit: str
    better: str
    worse: str
    rate: bool = False

    def find(self, race: Race) -> Row | None:
        """Returns the row of the race against Apache Kafka that this pair shows, or None if it was not measured."""
        wanted = (self.work, self.figure, RIVAL)
        return next((row for row in race.rows if (row.work, row.figure, row.rival) == wanted), None)

    def values(self, row: Row) -> tuple[float, float]:
        """Returns the medians of kbroker and of Apache Kafka in this pair's unit, less being better."""
        if self.rate:
            return MILLION / row.kbroker, MILLION / row.other
        return row.kbroker, row.other

    def judgement(self, ours: float, theirs: float) -> str:
        times = theirs / ours
        if 0.95 < times < 1.05:
            return "equal"
        word, times = (self.better, times) if times > 1 else (self.worse, 1 / times)
        return f"{times:.0f}x {word}" if times >= 9.95 else f"{times:.1f}x {word}"


HEADLINES = (
    Headline(
        title="Start",
        meaning="until the first record is read back",
        work="a fresh broker",
        figure="seconds to first record",
        unit="s",
        better="faster",
        worse="slower",
    ),
    Headline(
        title="Memory",
        meaning="resident, idle after the start",
        work="a fresh broker",
        figure="MiB idle",
        unit="MiB",
        better="less",
        worse="more",
    ),
    Headline(
        title="Latency",
        meaning="produce to ack, acks=all, 99th percentile",
        work="produce to ack, low load",
        figure="p99 µs",
        unit="µs",
        better="lower",
        worse="higher",
    ),
    Headline(
        title="CPU per message",
        meaning="broker, a million records of 100 bytes",
        work="librdkafka produce, 100 B, acks=all",
        figure="CPU s per million",
        unit="s",
        better="less",
        worse="more",
    ),
    Headline(
        title="Small requests",
        meaning="a million one-record produce requests",
        work="raw produce, one 100 B record, 16 x 8",
        figure="requests/s",
        unit="s",
        better="faster",
        worse="slower",
        rate=True,
    ),
    Headline(
        title="Restart",
        meaning="2,000 partitions, after a clean stop",
        work="500 topics x 4 partitions, restart",
        figure="seconds",
        unit="s",
        better="faster",
        worse="slower",
    ),
)


def missing(race: Race) -> list[str]:
    """Returns the figures that the picture needs and the race did not measure."""
    return [f"{one.work}: {one.figure}" for one in HEADLINES if one.find(race) is None]


def draw(race: Race) -> str:
    """Returns the SVG. Raises ValueError if the race lacks one of the six figures."""
    if missing(race):
        raise ValueError(f"the race did not measure {'; '.join(missing(race))}")
    height = TOP + PAIR * len(HEADLINES) + 24
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' role='img' width='{WIDTH}' height='{height}' "
        f"viewBox='0 0 {WIDTH} {height}' {FONT} font-size='12' fill='{TEXT}'>",
        f"<title>kbroker and Apache Kafka 4.3.1 on the same machine, commit {escape(race.commit)}</title>",
        f"<text x='{MARGIN}' y='22' font-size='17' font-weight='600'>kbroker and Apache Kafka 4.3.1</text>",
        f"<text x='{MARGIN}' y='41'>Shorter bars are better.</text>",
        *legend(),
    ]
    for number, one in enumerate(HEADLINES):
        row = one.find(race)
        assert row is not None
        parts += pair(one, one.values(row), TOP + PAIR * number)
    machine = f"{race.machine['cores']} cores of {race.machine['cpu']}"
    source = f"Both on {machine}, taking turns; medians of {race.rounds} rounds. Commit {race.commit}, {race.at[:10]}."
    parts.append(f"<text x='{MARGIN}' y='{height - 8}' font-size='11'>{escape(source)}</text>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def legend() -> list[str]:
    return [
        box(BARS_START, 12, BAR, ours=True),
        f"<text x='{BARS_START + 20}' y='23' font-size='13' font-weight='600'>kbroker</text>",
        box(BARS_START + 96, 12, BAR, ours=False),
        f"<text x='{BARS_START + 116}' y='23' font-size='13'>{RIVAL}</text>",
    ]


def box(x: float, y: float, width: float, *, ours: bool) -> str:
    """Returns a bar: kbroker's is filled, Apache Kafka's outlined over a faint fill of the same outer size."""
    if ours:
        return f"<rect x='{x}' y='{y}' width='{width:.1f}' height='{BAR}' rx='2' fill='{KBROKER}'/>"
    inner = max(width - 1, 0.5)
    return (
        f"<rect x='{x + 0.5}' y='{y + 0.5}' width='{inner:.1f}' height='{BAR - 1}' rx='2' "
        f"fill='{APACHE}' fill-opacity='.3' stroke='{APACHE}'/>"
    )


def pair(one: Headline, values: tuple[float, float], y: float) -> list[str]:
    """Returns one figure's title, numbers, two bars and judgement; both numbers have the same decimals."""
    ours, theirs = values
    decimals = max(0, 1 - math.floor(math.log10(min(values))))
    parts = [
        f"<text x='{MARGIN}' y='{y + 12}' font-size='14' font-weight='600'>{escape(one.title)}</text>",
        f"<text x='{MARGIN}' y='{y + 29}'>{escape(one.meaning)}</text>",
        f"<text x='{WIDTH - MARGIN}' y='{y + BAR + 7}' text-anchor='end' font-size='14' font-weight='600' "
        f"fill='{KBROKER}'>{one.judgement(ours, theirs)}</text>",
    ]
    for number, value in enumerate(values):
        top, weight = y + number * (BAR + BETWEEN), " font-weight='600'" if number == 0 else ""
        text = f"{value:,.{decimals}f} {one.unit}"
        parts.append(f"<text x='{NUMBERS_END}' y='{top + 12}' text-anchor='end' font-size='13'{weight}>{text}</text>")
        length = max((BARS_END - BARS_START) * value / max(values), 2.0)
        parts.append(box(BARS_START, top, length, ours=number == 0))
    return parts
