"""A race as text and picture: lines for the terminal, docs/performance.md and docs/race.svg.

`python -m bench.report RESULTS.json` writes both again from a race that was kept.
"""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path

from bench import picture
from bench.outcome import Race, Row

DOCS = Path(__file__).parents[1] / "docs"
HEADING = f"{'work':43} {'figure':24} {'kbroker':>11} {'rival':>11} {'ratio':>8}  {'bar':11}"
SECTION = "<!-- {name} -->\n.*?<!-- end of [a-z]+ -->\n"  # what other benches write on the page

PAGE = """\
# Performance

Written by `make race`, last for commit {commit} at {at} on {cores} cores of {cpu}, {memory}, Linux {kernel}. Medians of
{rounds} rounds.

![Start, memory, latency, CPU per message, small requests and restart of kbroker and Apache Kafka](race.svg)

{tables}
{judgement}

## How it was measured

- **Interleaved.** Both brokers run on the same machine in one run and take turns at each work; who goes first changes
  from round to round. Machines are shared and noisy, so the figures to read are the ratios.
- **Apache Kafka 4.3.1**, one KRaft node, with the heap and collector of its own start script, warmed for {warm:g}
  minutes with the same works.
- **Memory is settled** before each turn (`bench/settle.py`): the free memory is in the page cache, as on any machine
  that has been up for a while. Else a virtual machine fetches each page from its host, at four times the cost of the
  work: see [fresh memory](#fresh-memory).
- **The system's settings are left alone.** Where its congestion control is bbr, Apache Kafka's replies are paced even
  on loopback; kbroker and the native clients choose reno there.
- **CPU** is the broker process's own CPU clock. Clients saturate before the brokers do: read CPU per message before
  messages per second. With librdkafka the client's own CPU stands beside it: where that is more than a second per
  second, messages per second are the client's.
- **Raw works** send prepared frames from a native load generator (`bench/wireload.pyx`); 4 x 4 stands for four
  connections with four requests unanswered on each. It drops reply bytes inside the kernel.
- **Latency** runs from just before `send` to the last byte of the reply (`bench/wirelatency.pyx`), 100 bytes a record,
  acks=all. *Low load* is one request about every millisecond, so that the broker sleeps before each one; *back to back*
  is the next request at once. *To consumer* is a Fetch that waits on another connection.
- **1,000 connections** take turns at {crowd} one-record Produce requests a second in all, which both brokers keep up
  with.
- **A fresh broker**: from the start of the process on an empty directory until a topic is created, a record produced
  and fetched. Formatting Apache Kafka's directory is not counted. Memory per connection is what a thousand of them add,
  each after two requests.
- **Restart**: after a clean stop, from the start of the process until Metadata gives all 2,000 partitions a leader.
- **A Python thread spins** in the broker's process, or another process beside it, for as long as the work lasts; the
  rival is a kbroker that has the machine's two cores to itself.
- **A bare echo** is a process that reads the same frames and sends prepared replies (`bench/wirefloor.pyx`): what the
  kernel's loopback and its wake-ups take on this machine before a broker has done anything.

`bench/results` keeps every round of every race.
"""


def number(value: float) -> str:
    """About three digits, however large."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def line(row: Row) -> str:
    bar = row.bar.text if row.bar else ""
    figures = f"{number(row.kbroker):>11} {number(row.other):>11} {row.ratio_text:>8}"
    return f"{row.work:43} {row.figure:24} {figures}  {bar:11} {row.verdict}"


def table(rival: str, rows: list[Row]) -> str:
    lines = [f"| work | figure | kbroker | {rival} | ratio | aim | |", "| --- | --- | --: | --: | --: | --- | --- |"]
    for work, figures in groupby(rows, key=lambda row: row.work):
        shown = work
        for row in figures:
            bar = row.bar.text if row.bar else ""
            values = f"{number(row.kbroker)} | {number(row.other)} | {row.ratio_text}"
            lines.append(f"| {shown} | {row.figure} | {values} | {bar} | {row.verdict} |")
            shown = ""
    return "\n".join(lines) + "\n"


def judgement(race: Race) -> str:
    judged = [row for row in race.rows if row.met is not None]
    short = [f"{row.work}: {row.figure}" for row in judged if not row.met]
    met = f"{len(judged) - len(short)} of {len(judged)} aims are met."
    return f"{met} Short of theirs are {'; '.join(short)}." if short else met


def page(race: Race) -> str:
    from bench.works.latency import REQUESTS_PER_SECOND

    tables = [table(rival, list(rows)) for rival, rows in groupby(race.rows, key=lambda row: row.rival)]
    return PAGE.format(
        **race.machine,
        commit=race.commit,
        at=race.at,
        rounds=race.rounds,
        warm=race.warm_minutes,
        tables="\n".join(tables),
        judgement=judgement(race),
        crowd=f"{REQUESTS_PER_SECOND:,}",
    )


def write(race: Race) -> None:
    """Writes page and picture; other sections stay. Raises ValueError first if a figure of the picture is missing."""
    drawn = picture.draw(race)
    path = DOCS / "performance.md"
    kept = re.findall(SECTION.format(name=r"\w+"), path.read_text(), flags=re.DOTALL) if path.exists() else []
    path.write_text(page(race) + "".join(f"\n{one}" for one in kept))
    (DOCS / "race.svg").write_text(drawn)


GROUPS_SECTION = """\
## Groups

Written by `make race-groups`, last for commit {commit} at {at} on {cores} cores of {cpu}, {memory}, Linux {kernel}.
Medians of {rounds} rounds, interleaved, Apache Kafka 4.3.1 warmed for {warm:g} minutes with the same works;
`group.initial.rebalance.delay.ms` is 0 on both.

{table}
{judgement}

- **Commits and heartbeats** come from the native load generator, each group on a connection of its own: one partition
  a commit, and heartbeats of members in good standing. 16 x 8 stands for 16 connections with eight requests unanswered
  on each.
- **One more joins**: from its first JoinGroup until all 101 members have their assignments. The others ask without a
  pause whether they shall join again (`bench/crowd.py`). **500 groups** of one member each form at once. The client is
  one thread for all of them; what it takes itself stands beside.
- **First record**: librdkafka's consumers, from subscribe() until each of them has a record of its own partition: the
  median of {firsts} groups a round.
- **Come and go**: for seconds, with heartbeats every 50 ms; how long whoever joins, or joins again, waits for an
  assignment.
"""
TRANSACTIONS_SECTION = """\
## Transactions

Written by `make race-transactions`, last for commit {commit} at {at} on {cores} cores of {cpu}, {memory}, Linux
{kernel}. Medians of {rounds} rounds, interleaved, Apache Kafka 4.3.1 warmed for {warm:g} minutes with the same works;
`transaction.state.log.num.partitions` is 1 on both.

{table}
{judgement}

- **Producers** on the wire, in one thread (`bench/transactors.py`): each one fills and commits a transaction and begins
  the next at once, or, with 400/s, as many as that in all at an even pace. 1 x 100 B is one record in one partition;
  100 x 1 KiB lie in four. Their flow is that of transaction version 2 (KIP-890), in which batches add their partitions
  and each end bumps the epoch; *older flow* adds partitions by a request of their own. *With offsets* a group's offset
  is part of each transaction.
- **Commit** is the time from the request that ends a transaction until its answer has arrived; with librdkafka that of
  `commit_transaction()`, which waits for the records, too. Eight producers without a pause commit several times as
  often on the one broker as on the other, and one thread reads all answers: their times are compared at the even pace.
- **Waiting**: a producer whose transaction before has not ended yet asks again after 20 ms, as Java's does.
"""
FRESH_SECTION = """\
## Fresh memory

Written by `make race-fresh`, last for commit {commit} at {at} on {cores} cores of {cpu}, {memory}, Linux {kernel}.
Medians of {rounds} rounds, interleaved, Apache Kafka 4.3.1 warmed for {warm:g} minutes with the same works.

{table}
{judgement}

- **Fresh memory** is what a virtual machine has never touched, as on every CI runner: its host supplies each page at
  the first write. Before each turn `bench/fresh.py` allocates and holds the free pages that the machine has already, so
  the broker writes into fresh ones. **µs to touch a page** is what the last 64 MiB of that cost: under 1 where the
  machine has the page already, 2 to 20 where it is fresh. It depends on the host and changes from minute to minute.
- **What the fresh page costs** is the kernel's allocation of page cache inside `write`: CPU per GB divided by the pages
  of a GB is about the cost of touching a page. Both brokers pay it; kbroker's own buffers are reused and stay settled.
  While one network thread is full, the relief thread allocates pages on a second core
  ([ADR 0015](adr/0015-a-relief-thread-for-large-requests.md)).
"""
SECTIONS = {"groups": GROUPS_SECTION, "transactions": TRANSACTIONS_SECTION, "fresh": FRESH_SECTION}


def write_section(kind: str, race: Race) -> None:
    from bench.works.groups import FIRSTS

    text = SECTIONS[kind].format(
        **race.machine,
        commit=race.commit,
        at=race.at,
        rounds=race.rounds,
        warm=race.warm_minutes,
        table=table("Apache Kafka", race.rows),
        judgement=judgement(race),
        firsts=FIRSTS,
    )
    put_section(kind, text)


def put_section(name: str, text: str) -> None:
    """Puts what another bench found behind the race, in the place of what it found before."""
    path = DOCS / "performance.md"
    old = path.read_text()
    section = f"<!-- {name} -->\n{text.rstrip()}\n<!-- end of {name} -->\n"
    new, found = re.subn(SECTION.format(name=name), lambda _: section, old, flags=re.DOTALL)
    path.write_text(new if found else f"{old.rstrip()}\n\n{section}")


def main(kept: Path) -> None:
    """A race's kind stands in the name of its file."""
    kind = kept.name.partition("-")[0]
    if kind in SECTIONS:
        write_section(kind, Race.load(kept))
    elif kind == "race":
        write(Race.load(kept))
    else:
        sys.exit(f"{kept} was not kept by a race: whoever kept it writes its own section, when it is run again.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
