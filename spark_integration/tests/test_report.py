"""The table of `make pipeline` as text, without Spark and without a broker."""

from __future__ import annotations

import io
from contextlib import closing

import pytest
from rich.console import Console

from spark_integration.pipeline import Settings, report
from spark_integration.pipeline.audit import Balance
from spark_integration.pipeline.skew import Skew

SETTINGS = Settings("127.0.0.1:9092", "somewhere")
BALANCE = Balance(
    input=1_234_567, counted=1_230_000, duplicate=4_000, late=500, retried=60, dead=7, waiting=0, lost=0, twice=0
)


def _printed(width: int, *, terminal: bool) -> str:
    screen = io.StringIO()
    console = Console(file=screen, width=width, force_terminal=terminal)
    with closing(report.Report(console)) as table, table.step("audit") as step:
        step.records, step.meaning = BALANCE.input, "records of the input; each has one of these fates:"
        step.rows = report.books(BALANCE, SETTINGS)
    return screen.getvalue()


def test_table_without_a_terminal_is_plain_text_with_a_legend_for_every_column() -> None:
    printed = _printed(80, terminal=False)
    columns, _, audit, *_ = printed.splitlines()
    assert "\x1b" not in printed
    assert columns.split() == ["step", "seconds", "records", "meaning"]
    assert audit.startswith("audit ")
    assert "1,234,567  records of the input" in audit
    legend = {line.split()[0] for line in printed.rpartition("─")[2].splitlines() if line}
    assert legend == set(columns.split())


@pytest.mark.parametrize("width", [80, 100])
def test_rows_fit_the_width_and_meanings_start_in_one_column(width: int) -> None:
    rows = report.books(BALANCE, SETTINGS)
    start = report.header(width)[0].index("meaning")
    for row in rows:
        first, *rest = report.lines(row, width)
        assert len(max((first, *rest), key=len)) <= width
        assert first[:start].split() == [*row.step.split(), f"{row.records:,}"]
        assert all(line[:start].strip() == "" for line in rest)
        assert " ".join([first[start:], *(line.strip() for line in rest)]) == row.meaning


def test_fates_in_the_books_add_up_to_the_input_and_each_has_a_meaning() -> None:
    rows = report.books(BALANCE, SETTINGS)
    assert sum(row.records or 0 for row in rows if row.step.strip() != "counted twice") == BALANCE.input
    assert len({row.meaning for row in rows}) == len(rows)


def test_step_that_raises_gets_a_row_with_the_reason() -> None:
    screen = io.StringIO()
    table = report.Report(Console(file=screen, width=100))
    with pytest.raises(OSError, match="disk full"), table.step("run"):
        raise OSError("disk full\n\tat some.Class")
    assert screen.getvalue().splitlines()[-1].endswith("failed: OSError: disk full")


def test_dead_letters_of_unknown_pages_are_one_error() -> None:
    errors = ["page: not in the catalogue: /never/1", "page: not in the catalogue: /never/2", "not a JSON object"]
    rows = [(row.meaning, row.records) for row in report.dead_by_error(errors)]
    assert rows == [("page: not in the catalogue", 2), ("not a JSON object", 1)]


def test_skew_summary_names_hot_keys_with_their_salt() -> None:
    found = Skew(100, {0: 0.7, 1: 0.3}, [("hot", 0, 0.6), ("cool", 1, 0.1)])
    assert report.skew_summary(found) == (
        "the fullest of 2 partitions holds 1.40 times its fair share; hot keys: hot (60% of all records, salt 4)"
    )
    assert report.skew_summary(Skew(1, {0: 1.0}, [])).endswith("no key is hot")
