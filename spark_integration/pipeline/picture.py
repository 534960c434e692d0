"""Draws a run: input rate, processing rate, lag and batch time of each batch, restarts as dashed lines.

Each batch is a point. Only the lag has a line between its points, because only the lag is a level that lasts between
batches; the line is interrupted at restarts. The colours are legible on a white page and on a dark one.
"""

from __future__ import annotations

from html import escape
from typing import Any

WIDTH, LEFT, RIGHT, TOP, PANEL, GAP = 830, 180, 20, 66, 84, 22
TICKS_MOST = 8
TEXT, FAINT, RESTART = "#7b8590", "#7b859055", "#d9534f"
FONT = "font-family='system-ui,-apple-system,Segoe UI,DejaVu Sans,sans-serif'"
PANELS = (
    ("input_rate", "input", "rows/s arriving", "#3d8bfd"),
    ("processing_rate", "processing", "rows/s processed", "#2aa876"),
    ("lag", "lag", "rows not yet read", "#e08e0b"),
    ("batch_ms", "batch time", "ms per batch", "#a06cd5"),
)


def draw(lines: list[dict[str, Any]], name: str) -> str:
    """`lines` are those of `progress.jsonl`; there may be none yet."""
    batches = [line for line in lines if "batch" in line]
    starts = [line["started"] for line in lines if "started" in line]
    times = [line["at"] for line in batches] + starts
    first, last = min(times, default=0.0), max(times, default=1.0)
    scale = (WIDTH - LEFT - RIGHT) / max(last - first, 1e-9)
    height = TOP + len(PANELS) * (PANEL + GAP) + 10
    rows = sum(int(line["input_rows"]) for line in batches)
    title = f"{name}: {rows:,} rows in {len(batches)} batches over {last - first:.0f} s"
    title += f", {len(starts) - 1} restarts" if len(starts) > 1 else ""
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' {FONT} font-size='12' fill='{TEXT}'>",
        f"<text x='8' y='20' font-size='15' font-weight='600'>{escape(title)}</text>",
        *_legend(),
    ]
    for number, (field, label, unit, colour) in enumerate(PANELS):
        told = [line for line in batches if line[field] is not None]
        points = [(LEFT + (line["at"] - first) * scale, float(line[field])) for line in told]
        runs = [LEFT + (start - first) * scale for start in starts] if field == "lag" else None
        parts += _panel(points, TOP + number * (PANEL + GAP), (label, unit, colour), runs)
    bottom = height - GAP - 4
    for start in starts[1:]:
        x = LEFT + (start - first) * scale
        parts.append(f"<path d='M{x:.1f} {TOP - 6}V{bottom}' stroke='{RESTART}' stroke-dasharray='4 4'/>")
    for second in ticks(last - first):
        x = LEFT + second * scale
        parts.append(f"<path d='M{x:.1f} {bottom - 6}v5' stroke='{TEXT}'/>")
        parts.append(f"<text x='{x:.1f}' y='{height - 8}' text-anchor='middle'>{second:,} s</text>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def ticks(seconds: float) -> list[int]:
    """Returns the seconds that the time axis names: multiples of 1, 2 or 5 times a power of ten, few enough to fit."""
    steps = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
    step = next(step for step in steps if seconds / step < TICKS_MOST)
    return list(range(0, int(seconds) + 1, step))


def _legend() -> list[str]:
    return [
        f"<circle cx='14' cy='38' r='3' fill='{TEXT}'/><text x='24' y='42'>one batch</text>",
        f"<path d='M108 38h18' stroke='{PANELS[2][3]}' stroke-width='1.6'/>",
        "<text x='132' y='42'>lag between batches</text>",
        f"<path d='M276 31v14' stroke='{RESTART}' stroke-dasharray='4 4'/>",
        "<text x='284' y='42'>restart of the driver</text>",
    ]


def _panel(
    points: list[tuple[float, float]], top: float, what: tuple[str, str, str], runs: list[float] | None
) -> list[str]:
    """Returns one figure's axis, labels and points. With the start of each run, a line connects the points of a run."""
    label, unit, colour = what
    most = max((value for _, value in points), default=0.0) or 1.0
    bottom = top + PANEL
    parts = [
        f"<path d='M{LEFT} {bottom}H{WIDTH - RIGHT}' stroke='{FAINT}'/>",
        f"<text x='8' y='{top + 16}' font-weight='600' fill='{colour}'>{label}</text>",
        f"<text x='{LEFT - 8}' y='{top + 10}' text-anchor='end'>{most:,.0f}</text>",
        f"<text x='{LEFT - 8}' y='{bottom}' text-anchor='end'>0</text>",
        f"<text x='8' y='{top + 32}'>{unit}</text>",
    ]
    at = [(x, bottom - value / most * (PANEL - 6)) for x, value in points]
    if runs is not None:
        for start, end in zip([0.0, *runs], [*runs, float("inf")], strict=True):
            run = [f"{x:.1f} {y:.1f}" for x, y in at if start <= x < end]
            if len(run) > 1:
                parts.append(f"<path d='M{' L'.join(run)}' fill='none' stroke='{colour}' stroke-width='1.6'/>")
    parts += [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{colour}'/>" for x, y in at]
    return parts
