"""The checker objects to a broker whose guarantees are off, one at a time, and to no other.

    make plays                                      all of them; `-k fences` one
    pytest bench/campaigns/jepsen/plays.py

Each play is a short run of the real clients. A guarantee of the control plane is off in the broker itself (broken.py),
one of the data plane on the wire to it (lies.py). The name does not begin with test: they are slow, and asked for.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bench.campaigns.jepsen import lies
from bench.campaigns.jepsen.broken import GUARANTEES, VARIABLE
from bench.campaigns.jepsen.checker import check
from bench.campaigns.jepsen.lies import Lie
from bench.campaigns.jepsen.stage import CAST, Cast, Stage
from bench.campaigns.jepsen.trouble import Trouble
from bench.campaigns.jepsen.worker import QUEUE

SEED = 1
BROKEN = "bench.campaigns.jepsen.broken"
LIGHT: Cast = tuple(one for one in CAST if one[1] == "python")
WRITES = 100


def writes(stage: Stage) -> None:
    stage.go_on("writer", WRITES)


def copies(stage: Stage) -> None:
    """A copier aborts one transaction in ten of its own accord."""
    stage.go_on("copier", 30)


def copier_dies(stage: Stage) -> None:
    stage.go_on("copier", 5)
    for name in [actor.id for actor in stage.actors if actor.role == "copier"]:
        stage.suffer(trouble(stage, "kill client", name))
    stage.go_on("copier", 5)


def reader_comes_late(stage: Stage) -> None:
    """It reads many batches at once. At the end everything shall be seen."""
    stage.go_on("writer", WRITES)
    stage.suffer(trouble(stage, "kill client", "python-reader0"))
    stage.go_on("reader", 5)
    stage.proxy.be_true()


def feeds(stage: Stage) -> None:
    stage.go_on("feeder", 40)


def writers_are_replaced(stage: Stage) -> None:
    """Mostly in the middle of a transaction, and they come back when their successors have committed."""
    for _ in range(3):
        for actor in [actor for actor in stage.actors if actor.role == "writer" and actor.language == "python"]:
            stage.go_on(actor.id, 2)
            ghost = stage.replace(actor)
            stage.go_on(actor.id, 2)
            os.kill(ghost.pid, signal.SIGCONT)


def one_vanishes(stage: Stage) -> None:
    """In the middle of its transaction, and nobody takes its transactional id over."""
    settings = {"bootstrap.servers": stage.bootstrap, "transactional.id": "vanishes", "transaction.timeout.ms": 2_000}
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(QUEUE, b"never to be seen", partition=0)
    assert producer.flush(60) == 0


def broker_dies(stage: Stage) -> None:
    for _ in range(3):
        stage.go_on("writer", 15)
        stage.suffer(trouble(stage, "kill broker"))
    stage.go_on("writer", 5)


def everything(stage: Stage) -> None:
    for script in (writes, copier_dies, reader_comes_late, feeds, writers_are_replaced, broker_dies, one_vanishes):
        script(stage)


def trouble(stage: Stage, kind: str, whom: str = "") -> Trouble:
    names = [actor.id for actor in stage.actors]
    chance = (names.index(whom) + 0.5) / len(names) if whom else 0.0
    return Trouble(0.0, kind, 0.0, chance)


@dataclass(frozen=True)
class Play:
    off: str  # what is off
    script: Callable[[Stage], None]
    found: str  # the anomaly that it must be
    lie: type[Lie] | None = None
    cast: Cast = CAST


PLAYS = (
    Play("aborts", writes, "aborted read", cast=LIGHT),
    Play("commits", writes, "torn", cast=LIGHT),
    Play("markers", writes, "unseen"),
    Play("fences", writers_are_replaced, "lost"),
    Play("timeouts", one_vanishes, "unseen", cast=LIGHT),
    Play("offsets", copier_dies, "copied twice"),
    Play("undone_offsets", copies, "not copied", cast=LIGHT),
    Play("pending_offsets", copies, "not copied"),
    Play("state", broker_dies, "unseen"),
    Play("tails", broker_dies, "lost"),
    Play("isolation", writes, "early read", lies.Uncommitted),
    Play("aborted", writes, "aborted read", lies.NothingAborted),
    Play("completeness", reader_comes_late, "skipped", lies.Holes),
    Play("idempotence", feeds, "duplicate", lies.Twice),
    Play("acknowledged", writes, "misplaced", lies.Shifted),
    Play("order", writes, "inversion", lies.Reversed),
    Play("values", writes, "invented", lies.Garbled),
)


def kinds(stage: Stage, script: Callable[[Stage], None]) -> set[str]:
    try:
        stage.begin()
        script(stage)
        return {anomaly.kind for anomaly in check(stage.finish())}
    finally:
        stage.close()


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.off)
def test_the_checker_objects_without(play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "" if play.lie else play.off)
    found = kinds(Stage(tmp_path, SEED, cast=play.cast, module=BROKEN, lie=play.lie), play.script)
    print(f"without {play.off}: {', '.join(sorted(found))}")
    assert play.found in found


@pytest.mark.parametrize("cast", [LIGHT, CAST], ids=["python", "all"])
def test_the_checker_is_silent_with_every_guarantee(cast: Cast, tmp_path: Path) -> None:
    assert kinds(Stage(tmp_path, SEED, cast=cast, module=BROKEN, lie=Lie), everything) == set()


def test_every_guarantee_that_can_be_off_has_its_play() -> None:
    assert {play.off for play in PLAYS if play.lie is None} == {*GUARANTEES}
    assert {play.lie for play in PLAYS if play.lie is not None} == {*Lie.__subclasses__()}
