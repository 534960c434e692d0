"""docs/compatibility.md, from the results of a run. Nothing in it depends on the machine or the hour."""

from __future__ import annotations

import re
from pathlib import Path

from compat_tests.harness import Results, Row
from compat_tests.oracle.jars import KAFKA_VERSION

_SIGN = {"same": "same", "differs": "differs", "skipped": "skipped"}


_ORDER = ("Clients", "Java tools", "Kafka Streams", "Data directory", "Spark", "Wire")


def write_table(results: Results, target: Path) -> None:
    """Replaces the sections that this run has results for and keeps the others: Spark has a run of its own."""
    target.parent.mkdir(parents=True, exist_ok=True)
    sections = _sections(target.read_text()) if target.exists() else {}
    sections |= _sections(render(results))
    known = [title for title in _ORDER if title in sections]
    titles = ["", *known, *(title for title in sections if title and title not in known)]
    target.write_text("\n".join(sections[title].strip() + "\n" for title in titles))


def _sections(text: str) -> dict[str, str]:
    """Title to text; what stands before the first title is under the empty one."""
    parts = ("\n" + text).split("\n## ")
    return {"": parts[0].strip(), **{part.partition("\n")[0]: "## " + part for part in parts[1:]}}


def render(results: Results) -> str:
    rows = list(results.rows.values())
    wire = [row for row in rows if row.client.startswith("wire ")]
    shared = [row for row in rows if row.client in results.client_versions]
    other = [row for row in rows if row not in wire and row not in shared]
    parts = [
        "# Compatibility",
        "",
        "Written by `make compat` and `make spark-oracle`; do not edit. Each scenario runs on kbroker and on Apache "
        f"Kafka {KAFKA_VERSION} with the same client, unchanged, and the two outcomes are compared. *same*: no "
        "difference. *differs*: the reason is given below the table.",
        "",
        *_clients(results, shared),
        *_single_column(other),
        *_wire(wire),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _clients(results: Results, rows: list[Row]) -> list[str]:
    clients = sorted({row.client for row in rows})
    if not clients:
        return []
    verdicts = {(row.client, row.scenario): row for row in rows}
    scenarios = list(dict.fromkeys(row.scenario for row in rows))
    titles = [f"{client} {results.client_versions[client]}" for client in clients]
    lines = ["## Clients", "", "| scenario | " + " | ".join(titles) + " |"]
    lines.append("| --- |" + " --- |" * len(clients))
    for scenario in scenarios:
        cells = [_cell(verdicts.get((client, scenario))) for client in clients]
        lines.append(f"| {scenario} | " + " | ".join(cells) + " |")
    return [*lines, "", *_reasons(rows)]


def _single_column(rows: list[Row]) -> list[str]:
    lines: list[str] = []
    for group in dict.fromkeys(row.client for row in rows):
        members = [row for row in rows if row.client == group]
        lines += [f"## {group[:1].upper()}{group[1:]}", "", "| scenario | outcome |", "| --- | --- |"]
        lines += [f"| {row.scenario} | {_cell(row)} |" for row in members]
        lines += ["", *_reasons(members)]
    return lines


def _wire(rows: list[Row]) -> list[str]:
    """Raw requests by API: too many cases to list, so counted; what differs is listed."""
    if not rows:
        return []
    lines = ["## Wire", "", "The same requests to both brokers, in every version; answers compared field by field.", ""]
    lines += ["| API | cases | same | differs, as listed |", "| --- | --- | --- | --- |"]
    for api in dict.fromkeys(row.client for row in rows):
        members = [row for row in rows if row.client == api]
        same = sum(row.verdict == "same" for row in members)
        lines.append(f"| {api.removeprefix('wire ')} | {len(members)} | {same} | {len(members) - same} |")
    return [*lines, "", *_reasons(rows)]


def _cell(row: Row | None) -> str:
    return " " if row is None else _SIGN[row.verdict]


def _reasons(rows: list[Row]) -> list[str]:
    """Each reason once, with the scenarios it holds for; many versions of one wire case are one scenario."""
    told: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        if row.verdict != "same":
            scenario = re.sub(r"^v\d+, ", "", row.scenario)
            told.setdefault((row.client.removeprefix("wire "), row.reason), {})[scenario] = None
    lines = [f"- {client}: {reason} ({_some(list(scenarios))})" for (client, reason), scenarios in told.items()]
    return [*lines, ""] if lines else []


def _some(scenarios: list[str]) -> str:
    return ", ".join(scenarios) if len(scenarios) <= 3 else f"{len(scenarios)} cases, such as {scenarios[0]}"
