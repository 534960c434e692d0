"""What the judge holds against a broker that shows aborted records, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.campaigns.decay import nursery, payers
from bench.campaigns.decay.judge import judge
from bench.campaigns.decay.reading import Content
from bench.campaigns.decay.rot import Harm

PRODUCER, OTHER = 7, 8
VALUE = b"aborted"
WHOLE = {1: (PRODUCER, False), 2: (OTHER, True), 3: (PRODUCER, True)}  # offset 0 was aborted by the marker at 1
REMOVE, FLIP = (Harm(how, ".log", "paid-0/00000000000000000001.log") for how in ("remove", "flip"))


def content(markers: dict[int, tuple[int, bool]], *, shown: bool) -> Content:
    return Content(0, 0, 4, {0: (0, None, VALUE)}, [], {0: VALUE} if shown else {}, markers)


def judge_it(monkeypatch: pytest.MonkeyPatch, harm: Harm, before: Content, now: Content) -> None:
    monkeypatch.setattr(payers, "ABORTED", {VALUE: PRODUCER})
    monkeypatch.setattr(nursery, "PRODUCED", {VALUE})
    place = payers.PLACE
    judge(Path(), [harm], {place: before}, {place: 0}, {place: now}, [])


def without(*gone: int) -> dict[int, tuple[int, bool]]:
    return {at: marker for at, marker in WHOLE.items() if at not in gone}


def test_a_transaction_that_a_lost_file_has_made_a_committed_one_may_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    judge_it(monkeypatch, REMOVE, content(WHOLE, shown=False), content(without(1), shown=True))


@pytest.mark.parametrize(
    ("harm", "before", "now"),
    [
        pytest.param(REMOVE, WHOLE, WHOLE, id="its marker is there"),
        pytest.param(REMOVE, WHOLE, without(1, 3), id="no marker of its producer is left: it is open"),
        pytest.param(REMOVE, WHOLE, {3: (PRODUCER, False)}, id="the next marker aborts"),
        pytest.param(REMOVE, without(1, 3), WHOLE, id="it was open, and its coordinator aborts it"),
        pytest.param(REMOVE, without(1, 3), without(1), id="it was open, and nobody has committed it"),
        pytest.param(FLIP, WHOLE, without(1), id="the file was there, and the broker left it out"),
    ],
)
def test_no_other_aborted_record_may_be_shown(
    monkeypatch: pytest.MonkeyPatch,
    harm: Harm,
    before: dict[int, tuple[int, bool]],
    now: dict[int, tuple[int, bool]],
) -> None:
    judge_it(monkeypatch, harm, content(before, shown=False), content(now, shown=False))
    with pytest.raises(AssertionError, match="aborted records are shown at"):
        judge_it(monkeypatch, harm, content(before, shown=False), content(now, shown=True))
