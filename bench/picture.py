"""The race as a picture: for every judged figure a bar from 1, where both are equal, on a logarithmic scale.

To the right kbroker is ahead, to the left behind; the small upright stroke is the aim. The greys and colours are such
that they can be read on a white page and on a dark one: what shows the picture does not tell it which it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from bench.outcome import Race, Row

WIDTH, LEFT, RIGHT, TOP, LINE = 940, 400, 70, 64, 21
TEXT, FAINT = "#7b8590", "#7b859055"
FONT = "font-family='system-ui,-apple-system,Segoe UI,DejaVu Sans,sans-serif'"
# What kind of figure it is, by a word in it: its colour, and how the kind is called.
KINDS = (
    ("CPU", "#2aa876", "broker CPU"),
    ("iB", "#a06cd5", "memory"),
    ("/s", "#3d8bfd", "throughput"),
    ("", "#e08e0b", "time"),
)
NICE = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16, 32, 64, 128, 256)


def advantage(row: Row) -> float:
    """How many times better kbroker is; below 1 it is worse."""
    return 1 / row.ratio if row.less_is_better else row.ratio


def aim(row: Row) -> float | None:
    if row.bar is None or not math.isinf(row.bar.figure_max):
        return None
    return 1 / row.bar.ratio_max if row.less_is_better else row.bar.ratio_min


def kind(row: Row) -> tuple[str, str]:
    return next((colour, name) for word, colour, name in KINDS if word in row.figure)


def draw(race: Race) -> str:
    rows = [row for row in race.rows if row.bar is not None and row.rival == "Apache Kafka" and row.ratio > 0]
    values = [value for row in rows for value in (advantage(row), aim(row) or 1.0)]
    low = max(mark for mark in NICE if mark <= max(min([*values, 0.99]), NICE[0]))
    high = min((mark for mark in NICE if mark >= max([*values, 2.0])), default=NICE[-1])
    step = (WIDTH - LEFT - RIGHT) / math.log(high / low)

    def x(value: float) -> float:
        return LEFT + step * math.log(min(max(value, low), high) / low)

    height = TOP + LINE * len(rows) + 12
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' {FONT} font-size='12' fill='{TEXT}'>",
        f"<title>kbroker against Apache Kafka 4.3.1, commit {escape(race.commit)}</title>",
        *legend(),
    ]
    for mark in (mark for mark in NICE if low <= mark <= high):
        label = "equal" if mark == 1 else f"{mark:g}x" if mark > 1 else f"1/{1 / mark:g}"
        colour = TEXT if mark == 1 else FAINT
        parts.append(f"<path d='M{x(mark):.1f} {TOP - 8}V{height - 8}' stroke='{colour}'/>")
        parts.append(f"<text x='{x(mark):.1f}' y='{TOP - 14}' text-anchor='middle'>{label}</text>")
    for number, row in enumerate(rows):
        parts += one_bar(row, TOP + LINE * number, x, new_work=number == 0 or rows[number - 1].work != row.work)
    return "\n".join([*parts, "</svg>"]) + "\n"


def legend() -> list[str]:
    parts = ["<text x='8' y='20' font-size='15' font-weight='600'>How many times better than Apache Kafka 4.3.1</text>"]
    at = WIDTH - 430.0
    for _, colour, name in KINDS:
        parts.append(f"<rect x='{at}' y='10' width='12' height='12' rx='2' fill='{colour}'/>")
        parts.append(f"<text x='{at + 17}' y='20'>{name}</text>")
        at += 36 + 6.5 * len(name)
    parts.append(
        f"<path d='M{at + 5} 9V23' stroke='{TEXT}' stroke-width='2.5'/><text x='{at + 15}' y='20'>the aim</text>"
    )
    return parts


def one_bar(row: Row, y: float, x: Callable[[float], float], *, new_work: bool) -> list[str]:
    value, wanted, middle = advantage(row), aim(row), y + 14
    start, end = sorted((x(1), x(value)))
    parts = [f"<text x='{LEFT - 150}' y='{middle}' text-anchor='end'>{escape(row.work)}</text>"] if new_work else []
    parts.append(f"<text x='{LEFT - 8}' y='{middle}' text-anchor='end' opacity='.8'>{escape(row.figure)}</text>")
    width = max(end - start, 1.5)
    parts.append(f"<rect x='{start:.1f}' y='{y + 3}' width='{width:.1f}' height='15' rx='2' fill='{kind(row)[0]}'/>")
    if wanted is not None and wanted != 1:
        parts.append(f"<path d='M{x(wanted):.1f} {y + 1}v19' stroke='{TEXT}' stroke-width='2.5'/>")
    beside = max(end, x(wanted or 1)) + 6
    text = f"{value:.2f}x" if value < 10 else f"{value:.0f}x"
    parts.append(f"<text x='{beside:.1f}' y='{middle}' font-weight='600'>{text}</text>")
    return parts
