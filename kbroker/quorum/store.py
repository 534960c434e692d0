"""The file quorum-state: the last epoch, its leader or whom this node voted for. Written whole and renamed into place.

    {"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],
     "data_version":0}

That is version 0, of static voters (controller.quorum.voters). Version 1, of dynamic ones (KIP-853), names the
directory voted for instead of the voters:

    {"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from kbroker.quorum.core import NOBODY, Election
from kbroker.storage.checkpoints import read_small, write_whole
from kbroker.storage.identity import format_uuid

FILE_NAME = "quorum-state"
_MOST = 2**31 - 1  # an epoch must have one after it


class BrokenQuorumStateError(ValueError):
    """The file does not hold what it should; epochs and votes are unknown, so the node must not take part."""


def read_election(directory: Path) -> Election:
    """What was last persisted; a node that never voted is in epoch 0."""
    path = directory / FILE_NAME
    try:
        content = read_small(path)
    except FileNotFoundError:
        return Election()
    except OSError as problem:
        raise BrokenQuorumStateError(f"{path} cannot be read: {problem.strerror}.") from None
    try:
        held = json.loads(content)
        version = held["data_version"]
        fields = (held["leaderEpoch"], held["leaderId"], held["votedId"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BrokenQuorumStateError(
            f"{path} is damaged: it holds no election state; restore it from a backup."
        ) from None
    numbers = (version, *fields)
    if version not in (0, 1) or not all(type(one) is int and NOBODY <= one < _MOST for one in numbers):
        raise BrokenQuorumStateError(f"{path} does not hold an election state of version 0 or 1.")
    epoch, leader_id, voted_id = fields
    return Election(max(epoch, 0), leader_id, voted_id)


def write_election(directory: Path, election: Election, voters: Iterable[int]) -> None:
    """Version 0. Durable when it returns: an epoch is used only afterwards."""
    held = {
        "clusterId": "",
        "leaderId": election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": election.voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in sorted(voters)],
        "data_version": 0,
    }
    _write(directory, held)


def write_dynamic_election(directory: Path, election: Election, voted_directory_id: bytes) -> None:
    """Version 1."""
    held = {
        "leaderId": election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": election.voted_id,
        "votedDirectoryId": format_uuid(voted_directory_id),
        "data_version": 1,
    }
    _write(directory, held)


def _write(directory: Path, held: dict[str, object]) -> None:
    write_whole(directory / FILE_NAME, json.dumps(held, separators=(",", ":")).encode())
