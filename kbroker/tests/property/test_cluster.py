"""The image is a function of its records; files that were not written by us are read or refused, never worse."""

import contextlib
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.cluster.brokers import leave, unfence
from kbroker.cluster.image import ClusterImage
from kbroker.cluster.placement import Candidate, place
from kbroker.cluster.topics import NewTopic, create_partitions, create_topics, delete_topics
from kbroker.quorum.frames import BrokenMetadataError, read_batches
from kbroker.quorum.snapshot import image_records
from kbroker.quorum.store import BrokenQuorumStateError, read_election
from kbroker.storage.checkpoints import BrokenCheckpointError, read_offsets
from kbroker.storage.identity import DataDirectoryError, read_meta
from kbroker.tests.unit.cluster.given import cluster, rules

NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "", ".", "bad name", "c" * 249, "d" * 250, "__cluster_metadata"])
TOPICS = st.builds(
    NewTopic,
    NAMES,
    st.integers(-3, 6),
    st.integers(-3, 4),
    st.lists(st.tuples(st.integers(-1, 3), st.lists(st.integers(0, 4), max_size=3)), max_size=3),
    st.dictionaries(
        st.sampled_from(["retention.ms", "nope", "cleanup.policy"]), st.none() | st.text(max_size=5), max_size=2
    ),
)
MOVES = st.one_of(
    st.tuples(st.just("create"), st.lists(TOPICS, max_size=3)),
    st.tuples(st.just("delete"), st.lists(NAMES, max_size=2)),
    st.tuples(st.just("grow"), st.tuples(NAMES, st.integers(-1, 9))),
    st.tuples(st.just("leave"), st.tuples(st.integers(1, 3), st.booleans())),
    st.tuples(st.just("return"), st.integers(1, 3)),
)


@given(st.lists(MOVES, max_size=12), st.booleans())
@settings(deadline=None)
def test_any_run_of_decisions_can_be_applied_and_told_again(moves: list, elr: bool) -> None:  # type: ignore[type-arg]
    image = cluster(1, 2, 3, elr=elr)
    held = rules()  # one for the whole run: no two topics have the same id
    for kind, what in moves:
        if kind == "create":
            records = create_topics(image, what, held).records
        elif kind == "delete":
            records = delete_topics(image, what, []).records
        elif kind == "grow":
            records = create_partitions(image, what[0], what[1], None, held)[1]
        elif kind == "leave":
            records = leave(image, what[0], clean=what[1])
        else:
            records = unfence(image, what, 10 + what)
        for record in records:
            image.apply(record)
        for _, index, partition in image.partitions():
            assert partition.leader == -1 or partition.leader in partition.isr, (index, partition)
            assert set(partition.isr) <= set(partition.replicas)
            assert len(partition.directories) == len(partition.replicas)
    told = ClusterImage()
    for record in image_records(image):
        told.apply(record)
    assert (told.topics, told.configs, told.brokers) == (image.topics, image.configs, image.brokers)


@given(
    st.lists(st.tuples(st.sampled_from([None, "r1", "r2", "r3"]), st.booleans()), min_size=1, max_size=9),
    st.integers(1, 20),
    st.integers(1, 9),
    st.integers(),
)
def test_placement_uses_distinct_brokers_and_a_live_leader(
    brokers: list[tuple[str | None, bool]], partitions: int, factor: int, seed: int
) -> None:
    candidates = [Candidate(number, rack, fenced) for number, (rack, fenced) in enumerate(brokers)]
    if factor > len(brokers) or all(fenced for _, fenced in brokers):
        return
    for replicas in place(candidates, partitions, factor, Random(seed).shuffle):
        assert len(set(replicas)) == factor
        assert not candidates[replicas[0]].fenced


@given(st.binary(max_size=300))
def test_any_bytes_are_a_metadata_log_or_refused(data: bytes) -> None:
    try:
        list(read_batches(data))
    except BrokenMetadataError:
        return


@given(st.binary(max_size=120))
def test_any_bytes_as_one_of_the_small_files_are_read_or_refused(tmp_path_factory, data: bytes) -> None:  # type: ignore[no-untyped-def]
    directory: Path = tmp_path_factory.getbasetemp()
    for name in ("quorum-state", "meta.properties", "recovery-point-offset-checkpoint"):
        (directory / name).write_bytes(data)
    with contextlib.suppress(BrokenQuorumStateError):
        read_election(directory)
    with contextlib.suppress(DataDirectoryError):
        read_meta(directory)
    with contextlib.suppress(BrokenCheckpointError):
        read_offsets(directory / "recovery-point-offset-checkpoint")
