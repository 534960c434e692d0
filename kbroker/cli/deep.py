"""`kbroker doctor --deep`: a line a finding, then what was read."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kbroker.storage.examine import Finding, Report

SOUND, DAMAGED, CANNOT_LOOK = 0, 1, 2
_WORTH_A_BAR_BYTES = 200 << 20


def look(directory: Path) -> int:
    """The exit code."""
    from kbroker.cli.doctor import is_locked
    from kbroker.quorum.examine import examine_metadata
    from kbroker.storage.examine import examine, size_of

    if not directory.is_dir() or not os.access(directory, os.R_OK | os.X_OK):
        return _cannot(f"{directory} is not a directory that this user may read.")
    if is_locked(directory):
        return _cannot(f"A broker has {directory} open: stop it first.")
    try:
        with _bar(size_of(directory)) as progress:
            report = examine(directory, progress)
        found = [*report.findings, *examine_metadata(directory)]
    except OSError as problem:
        return _cannot(f"{problem.filename or directory} cannot be read: {problem.strerror}.")
    for finding in found:
        click.echo(f"{click.style('✗', fg='red')} {_line(finding, directory)}")
    if found:
        count = f"{len(found)} findings" if len(found) > 1 else "1 finding"
        click.echo(f"{click.style('✗', fg='red')} {count} in {directory}: read {_what(report)}")
        return DAMAGED
    click.echo(f"{click.style('✓', fg='green')} {directory} is sound: read {_what(report)}")
    return SOUND


def _cannot(sentence: str) -> int:
    click.echo(f"kbroker: {sentence}", err=True)
    return CANNOT_LOOK


def _line(finding: Finding, directory: Path) -> str:
    path = finding.path.relative_to(directory)
    where = [f"byte {finding.position}"] if finding.position >= 0 else []
    where += [f"offset {finding.offset}"] if finding.offset >= 0 else []
    what = finding.what.removeprefix(str(finding.path)).strip()
    return f"{path}{' at ' if where else ''}{', '.join(where)}: {what}; {finding.advice}"


def _what(report: Report) -> str:
    return (
        f"{report.partitions} partitions, {report.segments} segments, {report.batches} batches, "
        f"{report.records} records, {report.bytes / 1e6:.1f} MB"
    )


@contextmanager
def _bar(total_bytes: int) -> Iterator[Callable[[int], None]]:
    """On a terminal and for a while only: rich is not loaded otherwise."""
    if total_bytes < _WORTH_A_BAR_BYTES or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    lock = threading.Lock()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=total_bytes)

        def advance(count: int) -> None:
            with lock:
                progress.advance(task, count)

        yield advance
