"""Each transcript happens again, line by line, and a shard made from its log is the live one."""

from __future__ import annotations

from pathlib import Path

import pytest

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
