from pathlib import Path

import pytest

from kbroker.storage.checkpoints import BrokenCheckpointError, read_offsets, write_offsets, write_whole


def test_a_checkpoint_is_apaches_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    write_offsets(path, {("orders", 0): 4711, ("my.topic", 12): 0})
    assert path.read_bytes() == b"0\n2\norders 0 4711\nmy.topic 12 0\n"
    assert read_offsets(path) == {("orders", 0): 4711, ("my.topic", 12): 0}


def test_a_missing_or_empty_checkpoint_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    assert read_offsets(path) == {}
    path.touch()
    assert read_offsets(path) == {}


@pytest.mark.parametrize("text", ["1\n0\n", "0\n2\na 0 1\n", "0\nx\n", "0\n1\na 0\n", "0\n1\na b c\n", "0"])
def test_a_broken_checkpoint_is_told_from_an_empty_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    path.write_text(text)
    with pytest.raises(BrokenCheckpointError):
        read_offsets(path)


def test_a_file_is_replaced_whole_and_leaves_no_other(tmp_path: Path) -> None:
    write_whole(tmp_path / "f", b"one")
    write_whole(tmp_path / "f", b"two")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"two"
