"""Each transcript happens again, line by line, and a shard made from its log is the live one."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kbroker.coordinator.txn.answers import ANSWERS
from kbroker.tests.transcripts import txn_script
from kbroker.tests.transcripts.script import FOLDER, Script, blocks


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_what_is_written_happens(path: Path) -> None:
    script = Script()
    for command, expected in blocks(path.read_text()):
        assert script.play(command) == expected, command
        script.stage.check_replay()


@pytest.mark.parametrize("path", sorted(txn_script.FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_what_is_written_happens_to_transactions(path: Path) -> None:
    script = txn_script.TxnScript()
    for command, expected in blocks(path.read_text()):
        assert script.play(command) == expected, command
        script.stage.check_replay()


def _asked(command: str) -> str:
    """What a command comes to, whoever it is about: the verb, and what is not as usual."""
    verb, *words = shlex.split(command)
    return " ".join([verb, *(word for word in words if word.partition("=")[0] in ("version", "epoch", "going"))])


def test_every_request_meets_every_state() -> None:
    wanted = {"init", "init going=1", "init going=1 epoch=-1", "add", "add epoch=-1", "add version=0", "describe"}
    wanted |= {"verify", "verify epoch=-1", "wait", "reload"}
    wanted |= {f"{end}{how}" for end in ("commit", "abort") for how in ("", " epoch=-1", " version=0")}
    wanted |= {f"{end} version=0 epoch=-1" for end in ("commit", "abort")}
    met = set()
    for path in txn_script.FOLDER.glob("*.txt"):
        script = txn_script.TxnScript()
        for command, _ in blocks(path.read_text()):
            met |= {(one.state, _asked(command)) for one in script.stage.shard.transactions.values()}
            script.play(command)
    assert {(state, request) for state in ANSWERS for request in wanted} <= met
