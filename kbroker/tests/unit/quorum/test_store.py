from pathlib import Path

import pytest

from kbroker.quorum.core import Election
from kbroker.quorum.store import (
    BrokenQuorumStateError,
    read_election,
    write_dynamic_election,
    write_election,
)


def test_the_file_is_apaches_to_the_byte(tmp_path: Path) -> None:
    write_election(tmp_path, Election(1, 1, -1), [1])
    assert (tmp_path / "quorum-state").read_text() == (
        '{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}'
    )


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read_election(tmp_path) == Election()
    write_election(tmp_path, Election(7, -1, 3), [1, 2, 3])
    assert read_election(tmp_path) == Election(7, -1, 3)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"data_version":9}', "\x00", '{"leaderEpoch":"x"}'])
def test_a_broken_file_stops_the_node(tmp_path: Path, text: str) -> None:
    (tmp_path / "quorum-state").write_text(text)
    with pytest.raises(BrokenQuorumStateError):
        read_election(tmp_path)


def test_dynamic_voters_have_apaches_second_version(tmp_path: Path) -> None:
    write_dynamic_election(tmp_path, Election(2, 1, -1), bytes(16))
    assert (tmp_path / "quorum-state").read_text() == (
        '{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    assert read_election(tmp_path) == Election(2, 1, -1)
