"""The small files of a data directory: what was written is read, and whatever else stands there is told from it.

Each reader either answers or raises its own error; nothing else escapes, and a file with one byte changed never reads
as something the writer could not have meant.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._core.clock import BrokerClock
from kbroker._core.log.examine import Examination
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import Record, build_batch
from kbroker.quorum.core import Election
from kbroker.quorum.frames import BrokenMetadataError
from kbroker.quorum.snapshot import read_snapshot, write_bootstrap
from kbroker.quorum.store import BrokenQuorumStateError, read_election, write_election
from kbroker.storage.checkpoints import BrokenCheckpointError, read_offsets, write_offsets
from kbroker.storage.examine import examine_snapshot, read_epochs
from kbroker.storage.identity import DataDirectoryError, MetaProperties, read_meta, write_meta
from kbroker.storage.log_dir import read_topic_id

QUICK = settings(max_examples=150, deadline=None)
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True)
OFFSETS = st.dictionaries(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**59), max_size=8)


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kbroker-small-") as directory:
        yield Path(directory)


def must_name(path: Path, problem: Exception) -> None:
    """One sentence, and it says which file."""
    assert str(path) in str(problem)
    assert "\n" not in str(problem)


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """The content with a byte changed, cut, grown or replaced."""
    places = st.integers(0, max(len(content) - 1, 0))
    return st.one_of(
        st.tuples(places, st.integers(1, 255)).map(
            lambda at: content[: at[0]] + bytes([content[at[0]] ^ at[1]]) + content[at[0] + 1 :] if content else b""
        ),
        places.map(lambda at: content[:at]),
        st.binary(min_size=1, max_size=40).map(lambda more: content + more),
        st.binary(max_size=200),
    )


@QUICK
@given(OFFSETS, st.data())
def test_offset_checkpoints(offsets: dict[tuple[str, int], int], data: st.DataObject) -> None:
    with scratch() as directory:
        path = directory / "recovery-point-offset-checkpoint"
        write_offsets(path, offsets)
        assert read_offsets(path) == offsets
        path.write_bytes(data.draw(damaged(path.read_bytes())))
        try:
            read = read_offsets(path)
        except BrokenCheckpointError as problem:
            must_name(path, problem)
        else:
            assert all(partition >= 0 and 0 <= offset < 2**63 for (_, partition), offset in read.items())


@QUICK
@given(st.integers(0, 10**6), st.binary(min_size=16, max_size=16), st.data())
def test_meta_properties(node_id: int, directory_id: bytes, data: st.DataObject) -> None:
    with scratch() as directory:
        meta = MetaProperties("BmkrvrcsTGWJLf2ana81ng", node_id, directory_id)
        write_meta(directory, meta)
        assert read_meta(directory) == meta
        path = directory / "meta.properties"
        path.write_bytes(data.draw(damaged(path.read_bytes())))
        try:
            read = read_meta(directory)
        except DataDirectoryError as problem:
            must_name(path, problem)
        else:
            assert read is not None
            assert len(read.directory_id) == 16
            assert read.cluster_id.isascii()


@QUICK
@given(st.integers(0, 2**31 - 2), st.integers(-1, 100), st.data())
def test_quorum_state(epoch: int, leader_id: int, data: st.DataObject) -> None:
    with scratch() as directory:
        election = Election(epoch, leader_id, -1)
        write_election(directory, election, [1])
        assert read_election(directory) == election
        path = directory / "quorum-state"
        path.write_bytes(data.draw(damaged(path.read_bytes())))
        try:
            read = read_election(directory)
        except BrokenQuorumStateError as problem:
            must_name(path, problem)
        else:
            assert 0 <= read.epoch < 2**31 - 1


@QUICK
@given(st.data())
def test_snapshots_of_the_metadata_log(data: st.DataObject) -> None:
    with scratch() as directory:
        write_bootstrap(directory, 7)
        path = directory / "bootstrap.checkpoint"
        whole, content = read_snapshot(path), path.read_bytes()
        changed = data.draw(damaged(content))
        path.write_bytes(changed)
        try:
            read = read_snapshot(path)
        except BrokenMetadataError as problem:
            must_name(path, problem)
        else:
            assert read == whole  # a leader epoch that no checksum covers, at most


@QUICK
@given(st.data())
def test_the_files_of_a_partition(data: st.DataObject) -> None:
    """partition.metadata, leader-epoch-checkpoint and producer snapshots: the log opens or is refused, and tells."""
    with scratch() as root:
        directory = root / "t-0"
        log = PartitionLog.open(directory, BrokerClock(), {}, topic_id=bytes(range(16)))
        for i in range(3):
            batch = build_batch([Record(value=b"v")], producer_id=5, producer_epoch=0, base_sequence=i)
            assert log.append(batch, leader_epoch=i).error == 0
        log.close()
        assert read_topic_id(directory) == bytes(range(16))
        assert read_epochs(directory / "leader-epoch-checkpoint") == [(0, 0), (1, 1), (2, 2)]
        (snapshot,) = directory.glob("*.snapshot")
        assert list(examine_snapshot(snapshot)) == []
        name = data.draw(st.sampled_from(["partition.metadata", "leader-epoch-checkpoint", snapshot.name]))
        path = directory / name
        content = path.read_bytes()
        changed = data.draw(damaged(content))
        path.write_bytes(changed)
        topic_id = read_topic_id(directory)
        assert topic_id is None or len(topic_id) == 16
        try:
            read_epochs(directory / "leader-epoch-checkpoint")
        except ValueError:
            assert name == "leader-epoch-checkpoint"
        if name == snapshot.name and changed != content:
            assert list(examine_snapshot(path)), "a changed snapshot passes for a whole one"
        try:
            again = PartitionLog.open(directory, BrokerClock(), {}, clean=data.draw(st.booleans()))
        except ValueError:
            assert name == "partition.metadata"
            return
        assert again.log_end_offset == 3
        epochs = again.epochs()
        assert epochs == sorted(epochs)
        again.close()


@QUICK
@given(st.binary(max_size=400), st.binary(max_size=60), st.binary(max_size=60), st.data())
def test_an_examination_survives_any_bytes(log: bytes, index: bytes, times: bytes, data: st.DataObject) -> None:
    with scratch() as directory:
        path = directory / "0.log"
        whole = b"".join(build_batch([Record(value=b"v" * 9)], base_offset=i, codec=i) for i in range(5))
        content = data.draw(st.one_of(st.just(log), damaged(whole), damaged(whole).map(lambda head: head + whole)))
        path.write_bytes(content)
        walk = Examination(path, 0, index[: len(index) // 8 * 8], times[: len(times) // 12 * 12])
        steps = 0
        while walk.step(data.draw(st.integers(1, 300)) if steps < 5 else 1 << 20):
            steps += 1
        assert walk.position == len(content)
        if content == whole:
            assert walk.batches == 5
            assert not [fault for fault in walk.faults if fault.suffix == ".log"]


def test_a_changed_byte_is_found_wherever_it_is(tmp_path: Path) -> None:
    """All but the leader epoch and what leaves the offsets ascending: no checksum covers those."""
    whole = b"".join(build_batch([Record(value=b"v" * 9)], base_offset=i, leader_epoch=0) for i in range(3))
    size = len(whole) // 3
    path = tmp_path / "0.log"
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        walk = Examination(path, 0)
        while walk.step():
            pass
        uncovered = at % size < 8 or 12 <= at % size < 16
        assert walk.faults or uncovered, at
        assert walk.batches >= 2, at


@pytest.mark.parametrize("text", [b"", b"0\n", b"0\n1\n1\n", b"1\n0\n", b"0\n1\n-1 0\n", b"0\n1\n0 0\n0 0\n", b"\xff"])
def test_a_leader_epoch_checkpoint_of_another_form_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"leader-epoch|ascii"):
        read_epochs(path)
