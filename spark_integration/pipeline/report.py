"""The console output of the pipeline: one table with a row per step, and under the audit a row per fate.

The rows are text of fixed widths, printed when their step ends, so a log file has the same table as a terminal. A
terminal also shows a progress bar while a step runs.
"""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from spark_integration.pipeline.audit import Balance
    from spark_integration.pipeline.settings import Settings
    from spark_integration.pipeline.skew import Skew

STEP, SECONDS, RECORDS = 15, 7, 9  # the widths of the first three columns
INDENT = STEP + SECONDS + RECORDS + 6
WIDEST = 110
LEGEND = (
    ("step", "what ran; indented rows divide up the records of the step above them"),
    ("seconds", "wall-clock time of the step"),
    ("records", "records of Kafka that the step handled; in indented rows, how many of them"),
    ("meaning", "what the step did, or what the number counts"),
)


@dataclass(frozen=True)
class Row:
    step: str
    meaning: str
    records: int | None = None
    seconds: float | None = None


def lines(row: Row, width: int) -> list[str]:
    """Returns a row as text; a meaning that is wider than the rest of the width continues below itself."""
    seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
    records = "" if row.records is None else f"{row.records:,}"
    return _columns(row.step, seconds, records, row.meaning, width)


def header(width: int) -> list[str]:
    return [*_columns("step", "seconds", "records", "meaning", width), "─" * width]


def legend(width: int) -> list[str]:
    """Returns a line for each column, to print beneath the table."""
    indent = " " * 9
    wrapped = (textwrap.wrap(f"{name:<9}{words}", width, subsequent_indent=indent) for name, words in LEGEND)
    return ["─" * width, *(line for one in wrapped for line in one)]


def _columns(step: str, seconds: str, records: str, meaning: str, width: int) -> list[str]:
    first, *rest = textwrap.wrap(meaning, max(width - INDENT, 20)) or [""]
    left = f"{step:<{STEP}}  {seconds:>{SECONDS}}  {records:>{RECORDS}}  "
    return [(left + first).rstrip(), *(" " * INDENT + line for line in rest)]


def books(found: Balance, settings: Settings) -> list[Row]:
    """Returns a row for each fate of the input's records; all but `counted twice` add up to the input."""
    hours = settings.lateness_ms / 3_600_000
    meanings = {
        "counted": (found.counted, "counted in a total at the first attempt"),
        "duplicate": (found.duplicate, "copies of an event that arrived before; dropped"),
        "late": (found.late, f"reached Kafka more than {hours:g} h after the event; in Parquet, in no total"),
        "retried": (found.retried, "failed at the first attempt, counted at a later one"),
        "dead": (found.dead, f"failed for good, in {settings.dead_topic} or in the archive of a repair"),
        "waiting": (found.waiting, f"failed, waiting in {settings.retry_topic} for the next attempt"),
        "lost": (found.lost, "records without a fate: must be 0"),
        "counted twice": (found.twice, "events in the totals more than once: must be 0"),
    }
    return [Row(f"  {name}", meaning, count) for name, (count, meaning) in meanings.items()]


def dead_by_error(errors: Iterable[str]) -> list[Row]:
    """Returns a row for each error, the most frequent first; pages that the catalogue lacks are one error."""
    kinds = Counter(error.partition(": /")[0] for error in errors)
    return [Row("  error", kind, count) for kind, count in kinds.most_common()]


def skew_summary(found: Skew) -> str:
    """Returns one sentence: how full the fullest partition is, and which keys make it so."""
    salts = found.salts()
    hot = [f"{key} ({share:.0%} of all records, salt {salts[key]})" for key, _, share in found.keys if key in salts]
    fullest = f"the fullest of {len(found.partitions)} partitions holds {found.hottest:.2f} times its fair share"
    return f"{fullest}; hot keys: {', '.join(hot)}" if hot else f"{fullest}; no key is hot"


@dataclass
class Step:
    """What a running step reports: its row's number and meaning, the rows beneath, and how far it has come."""

    show: Callable[[int, int], None]
    records: int | None = None
    meaning: str = ""
    rows: list[Row] = field(default_factory=list)


class Report:
    """Prints the table: `step` for each of its rows, `close` for the legend."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(console.width, WIDEST) if console.is_terminal else WIDEST
        self._print(header(self._width))

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Times the block and prints its row. A block that raises gets a row with the reason."""
        start = time.monotonic()
        with bars(self._console) as progress:
            task = progress.add_task(name, total=None)
            step = Step(lambda done, end: progress.update(task, completed=done, total=end))
            try:
                yield step
            except BaseException as error:
                step.meaning = f"failed: {_reason(error)}"
                raise
            finally:
                progress.stop()
                self._print(lines(Row(name, step.meaning, step.records, time.monotonic() - start), self._width))
        for row in step.rows:
            self._print(lines(row, self._width))

    def close(self) -> None:
        self._print(legend(self._width))

    def _print(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def bars(console: Console) -> Progress:
    """Returns a progress bar that disappears when it ends, and that only a terminal shows."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _reason(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
