"""docs/race.svg: six pairs of bars, every bar with its number and unit, and no label over another label or a bar."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from bench import picture, report
from bench.outcome import Race

RESULTS = Path(__file__).parent / "results"
SVG = "{http://www.w3.org/2000/svg}"
GLYPH = 0.62  # the mean width of a character of DejaVu Sans, a wide font, as a share of the font size
Box = tuple[float, float, float, float]


@pytest.fixture(scope="module")
def race() -> Race:
    complete = [one for one in map(Race.load, sorted(RESULTS.glob("race-*.json"))) if not picture.missing(one)]
    return complete[-1]


def texts(svg: ET.Element) -> dict[Box, str]:
    """Returns each text with its box: left, top, right, bottom."""
    found = {}
    for one in svg.iter(f"{SVG}text"):
        size, text = float(one.get("font-size", "12")), one.text or ""
        width, x, y = GLYPH * size * len(text), float(one.attrib["x"]), float(one.attrib["y"])
        left = x - width if one.get("text-anchor") == "end" else x
        found[left, y - 0.8 * size, left + width, y + 0.2 * size] = text
    return found


def bars(svg: ET.Element) -> list[Box]:
    boxes = []
    for one in svg.iter(f"{SVG}rect"):
        x, y, width, height = (float(one.attrib[name]) for name in ("x", "y", "width", "height"))
        boxes.append((x, y, x + width, y + height))
    return boxes


def overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_picture_shows_six_pairs_of_bars_with_a_number_and_unit_beside_each(race: Race) -> None:
    svg = ET.fromstring(picture.draw(race))
    drawn = bars(svg)[2:]  # the first two are the legend's
    assert len(drawn) == 12
    for bar in drawn:
        beside = [
            text for box, text in texts(svg).items() if box[2] <= bar[0] and bar[1] < (box[1] + box[3]) / 2 < bar[3]
        ]
        numbers = [text for text in beside if text.split()[0].replace(",", "").replace(".", "").isdigit()]
        assert any(text.split()[-1] in {"s", "MiB", "µs"} for text in numbers), beside


def test_lengths_of_a_pair_of_bars_have_the_ratio_of_their_figures(race: Race) -> None:
    drawn = [right - left for left, _, right, _ in bars(ET.fromstring(picture.draw(race)))[2:]]
    for number, one in enumerate(picture.HEADLINES):
        row = one.find(race)
        assert row is not None
        ours, theirs = one.values(row)
        assert drawn[2 * number] / drawn[2 * number + 1] == pytest.approx(ours / theirs, rel=0.02)


@pytest.mark.parametrize("factor", [1, 0.1, 10], ids=["as measured", "a tenth", "tenfold"])
def test_labels_overlap_neither_each_other_nor_bars_nor_the_edge(race: Race, factor: float) -> None:
    scaled = [replace(row, ours=[factor * value for value in row.ours]) for row in race.rows]
    svg = ET.fromstring(picture.draw(replace(race, rows=scaled)))
    labels = texts(svg)
    touching = [(labels[one], labels[other]) for one, other in combinations(labels, 2) if overlap(one, other)]
    assert touching == []
    assert [text for box, text in labels.items() for bar in bars(svg) if overlap(box, bar)] == []
    assert [text for box, text in labels.items() if box[0] < 0 or box[2] > picture.WIDTH] == []


def test_kept_picture_is_the_one_this_code_draws_from_a_kept_race() -> None:
    kept = (report.DOCS / "race.svg").read_text()
    races = [one for one in map(Race.load, RESULTS.glob("race-*.json")) if not picture.missing(one)]
    assert kept in [picture.draw(one) for one in races]


def test_race_without_one_of_the_six_figures_leaves_page_and_picture_alone(
    race: Race, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "DOCS", tmp_path)
    partial = replace(race, rows=[row for row in race.rows if row.work != "a fresh broker"])
    with pytest.raises(ValueError, match="did not measure a fresh broker: seconds to first record"):
        report.write(partial)
    assert list(tmp_path.iterdir()) == []
