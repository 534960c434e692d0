"""A race as text: a line for the terminal."""

from __future__ import annotations

from bench.outcome import Row

HEADING = f"{'work':43} {'figure':24} {'kbroker':>11} {'rival':>11} {'ratio':>8}  {'bar':11}"


def number(value: float) -> str:
    """About four digits, however large."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def line(row: Row) -> str:
    bar = row.bar.text if row.bar else ""
    figures = f"{number(row.kbroker):>11} {number(row.other):>11} {row.ratio_text:>8}"
    return f"{row.work:43} {row.figure:24} {figures}  {bar:11} {row.verdict}"
