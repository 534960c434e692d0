import errno
import json
import shutil
import struct
from pathlib import Path

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.record.records import Record, build_batch
from kbroker.storage.identity import (
    DataDirectoryError,
    MetaProperties,
    format_uuid,
    parse_uuid,
    random_uuid,
    read_meta,
    write_meta,
)
from kbroker.storage.log_dir import flock_of
from kbroker.storage.log_dirs import LogDirs
from kbroker.storage.strays import sort_out


def open_dirs(*paths: Path, node_id: int = 1, cluster_id: str | None = None) -> LogDirs:
    return LogDirs.open(list(paths), node_id, BrokerClock(), cluster_id)


def test_a_new_directory_is_formatted_once(tmp_path: Path) -> None:
    first = open_dirs(tmp_path / "d")
    meta = first.dirs[0].meta
    assert first.dirs[0].formatted
    first.release()
    second = open_dirs(tmp_path / "d")
    assert not second.dirs[0].formatted
    assert second.dirs[0].meta == meta
    second.release()


def test_meta_properties_of_apache_are_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Mon Nov 16 03:44:36 UTC 2026\nnode.id=1\ndirectory.id=dcNs8wBOnsOCbxOFzG4CwQ\nversion=1\n"
        "cluster.id=BmkrvrcsTGWJLf2ana81ng\n"
    )
    expected = MetaProperties("BmkrvrcsTGWJLf2ana81ng", 1, parse_uuid("dcNs8wBOnsOCbxOFzG4CwQ"))
    assert read_meta(tmp_path) == expected
    write_meta(tmp_path, expected)
    assert read_meta(tmp_path) == expected


GOOD_META = "node.id=1\ndirectory.id=dcNs8wBOnsOCbxOFzG4CwQ\nversion=1\ncluster.id=BmkrvrcsTGWJLf2ana81ng\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (GOOD_META, "", "does not tell its version"),
        ("version=1\n", "", "does not tell its version"),
        ("version=1", "version=0", "has version 0"),
        ("version=1", "version=", "is no version"),
        ("node.id=1\n", "", "does not tell its node.id"),
        ("node.id=1", "node.id=x", "'x' is no node.id"),
        ("node.id=1", "node.id=-1", "is no node.id"),
        ("node.id=1", "node.id=99999999999", "is no node.id"),
        ("node.id=1", "node.id=2", "belongs to node 2"),
        ("node.id=1", "node.id=1\nnode.id=2", "line 2"),
        ("node.id=1", "node.ie=1", "does not tell its node.id"),
        ("directory.id=dcNs8wBOnsOCbxOFzG4CwQ\n", "", "does not tell its directory.id"),
        ("dcNs8wBOnsOCbxOFzG4CwQ", "dcNs8wBOnsOCbxOFzG4Cw", "is no directory.id"),
        ("dcNs8wBOnsOCbxOFzG4CwQ", "dcNs8w!OnsOCbxOFzG4CwQ", "is no directory.id"),
        ("cluster.id=BmkrvrcsTGWJLf2ana81ng\n", "", "does not tell its cluster.id"),
        ("BmkrvrcsTGWJLf2ana81ng", "Bmkrvrcs\x07GWJLf2ana81ng", "line 4"),
        ("BmkrvrcsTGWJLf2ana81ng", "Bmkr vrcs", "is no cluster.id"),
        ("BmkrvrcsTGWJLf2ana81ng", "Bmkrvrcs\x80", "is not text"),
        ("version=1\n", "version=1\nnoise\n", "line 4"),
    ],
)
def test_damaged_meta_properties_are_refused_in_one_sentence(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = GOOD_META.replace(old, new)
    assert text != GOOD_META
    (tmp_path / "meta.properties").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataDirectoryError, match=said) as refusal:
        open_dirs(tmp_path)
    assert str(tmp_path) in str(refusal.value)
    assert str(refusal.value).count("\n") == 0
    assert (tmp_path / "meta.properties").read_bytes() == text.encode("latin-1")


def test_meta_properties_that_say_the_same_twice_are_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(GOOD_META * 2)
    assert read_meta(tmp_path) == MetaProperties("BmkrvrcsTGWJLf2ana81ng", 1, parse_uuid("dcNs8wBOnsOCbxOFzG4CwQ"))


@pytest.mark.parametrize(
    "trace", ["orders-0", "orders-0.0123456789abcdef0123456789abcdef-stray", "__cluster_metadata-0"]
)
def test_partitions_without_meta_properties_are_not_formatted_over(tmp_path: Path, trace: str) -> None:
    (tmp_path / trace).mkdir()
    with pytest.raises(DataDirectoryError, match=f"holds {trace}: it is not safe to format"):
        open_dirs(tmp_path)
    assert not (tmp_path / "meta.properties").exists()


def test_meta_properties_that_are_a_directory_are_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").mkdir()
    with pytest.raises(DataDirectoryError, match="cannot be read"):
        open_dirs(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ],
)
def test_a_damaged_checkpoint_is_told_and_costs_no_start(tmp_path: Path, name: str) -> None:
    open_dirs(tmp_path).close(broker_epoch=1)
    (tmp_path / name).write_bytes(b"0\n1\nt 0 \xff\n")
    dirs = open_dirs(tmp_path)
    (broken,) = dirs.dirs[0].broken
    assert name in str(broken)
    dirs.release()
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    dirs = open_dirs(tmp_path)
    assert [name in str(one) for one in dirs.dirs[0].broken] == [True]
    dirs.release()


def test_a_marker_that_cannot_be_removed_is_refused(tmp_path: Path) -> None:
    open_dirs(tmp_path).release()
    (tmp_path / ".kafka_cleanshutdown").mkdir()
    dirs = open_dirs(tmp_path)
    assert not dirs.dirs[0].clean
    with pytest.raises(DataDirectoryError, match="cannot be removed"):
        dirs.begin()
    dirs.release()


def test_a_log_that_ends_before_its_checkpoint_has_lost_records(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    log = dirs.open_log("t", 0, random_uuid(), {})
    log.append(build_batch([Record(timestamp=1, value=b"v")]))
    dirs.close(broker_epoch=1)
    again = open_dirs(tmp_path)
    again.open_log("t", 0, log.topic_id, {})
    assert again.losses() == []
    again.release()
    shutil.rmtree(tmp_path / "t-0")
    again = open_dirs(tmp_path)
    again.open_log("t", 0, log.topic_id, {})
    assert again.losses() == [("t", 0, 0, 1)]
    again.release()


def test_a_topic_made_anew_has_not_lost_what_an_earlier_one_of_its_name_had(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    log = dirs.open_log("t", 0, random_uuid(), {})
    log.append(build_batch([Record(timestamp=1, value=b"v")]))
    log.flush()
    dirs.checkpoint()
    shutil.rmtree(dirs.delete_logs([("t", 0)])[0])
    made = dirs.open_log("t", 0, random_uuid(), {})
    made.make()
    dirs.release()  # a kill before the next checkpoint
    again = open_dirs(tmp_path)
    again.open_log("t", 0, made.topic_id, {})
    assert again.losses() == []
    again.release()


def test_a_topic_to_be_made_anew_has_not_lost_what_lies_there_deleted(tmp_path: Path) -> None:
    """Its creation was committed, and a kill came before its directory was made."""
    dirs = open_dirs(tmp_path)
    log = dirs.open_log("t", 0, random_uuid(), {})
    log.append(build_batch([Record(timestamp=1, value=b"v")]))
    log.flush()
    dirs.checkpoint()
    assert dirs.delete_logs([("t", 0)])
    dirs.release()
    topic_id = random_uuid()
    for _ in ("the next start, killed before it checkpoints", "the one after it, which finds nothing deleted"):
        again = open_dirs(tmp_path)
        sort_out(again, {("t", 0): topic_id}, set)
        again.open_log("t", 0, topic_id, {}, new=True)
        assert again.losses() == []
        again.release()


def test_what_is_deleted_is_struck_out_before_its_files_go(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    log = dirs.open_log("t", 0, random_uuid(), {})
    log.append(build_batch([Record(timestamp=1, value=b"v")]))
    log.flush()
    dirs.checkpoint()
    for path in dirs.delete_logs([("t", 0)]):
        shutil.rmtree(path)
    dirs.release()
    again = open_dirs(tmp_path)
    again.open_log("t", 0, random_uuid(), {}, new=True)
    assert again.losses() == []
    again.release()


def test_the_directories_of_one_broker_share_a_cluster_and_differ_in_their_ids(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "a", tmp_path / "b")
    assert dirs.dirs[0].meta.cluster_id == dirs.dirs[1].meta.cluster_id
    assert len(set(dirs.directory_ids)) == 2
    dirs.release()


def test_directories_of_two_clusters_are_not_mixed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        open_dirs(tmp_path / name).release()
    with pytest.raises(DataDirectoryError, match="belongs to cluster"):
        open_dirs(tmp_path / "a", tmp_path / "b")
    open_dirs(tmp_path / "a").release()  # the refusal left nothing locked


def test_a_directory_that_cannot_be_made_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirectoryError, match="cannot be made"):
        open_dirs(tmp_path / "file" / "d")


def test_a_clean_stop_leaves_its_broker_epoch_for_the_next_start_alone(tmp_path: Path) -> None:
    open_dirs(tmp_path).close(broker_epoch=17)
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 17}
    again = open_dirs(tmp_path)
    assert again.dirs[0].clean
    assert again.previous_broker_epoch == 17
    again.release()  # a start that was refused
    again = open_dirs(tmp_path)
    assert again.dirs[0].clean
    again.begin()
    again.release()
    third = open_dirs(tmp_path)
    assert not third.dirs[0].clean
    assert third.previous_broker_epoch == -1
    third.release()


def test_a_log_keeps_its_offsets_over_a_clean_stop(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    topic_id = random_uuid()
    log = dirs.open_log("t", 0, topic_id, {})
    log.make()
    assert (tmp_path / "t-0" / "partition.metadata").read_text() == f"version: 0\ntopic_id: {format_uuid(topic_id)}"
    assert log.log_end_offset == 0
    dirs.close(1)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 0\n"


def test_a_very_long_name_is_cut_when_its_directory_is_deleted(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    dirs.open_log("x" * 249, 0, random_uuid(), {}).make()
    (retired,) = dirs.delete_logs([("x" * 249, 0), ("unknown", 0)])
    assert len(retired.name) == 255
    assert retired.name.endswith("-delete")
    dirs.release()


def test_ids_are_written_as_kafka_writes_them() -> None:
    assert format_uuid(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert parse_uuid("AAAAAAAAAAAAAAAAAAAAAQ") == bytes(15) + b"\x01"
    assert not any(format_uuid(random_uuid()).startswith("-") for _ in range(500))


def test_a_log_that_was_never_made_is_deleted_without_a_trace(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    dirs.open_log("never", 0, random_uuid(), {})
    dirs.open_log("made", 0, random_uuid(), {}).make()
    (retired,) = dirs.delete_logs([("never", 0), ("made", 0)])
    assert retired.name.startswith("made-0.")
    assert not list(tmp_path.glob("never*"))
    dirs.release()


def test_a_log_that_was_made_in_part_is_deleted_whole(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    log = dirs.open_log("t", 0, random_uuid(), {})
    (tmp_path / "t-0" / f"{0:020d}.log").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        log.make()
    assert (tmp_path / "t-0" / "partition.metadata").exists()
    (retired,) = dirs.delete_logs([("t", 0)])
    assert retired.name.startswith("t-0.")
    dirs.open_log("t", 0, random_uuid(), {}).make()
    dirs.release()


def test_a_directory_whose_log_could_not_be_opened_is_deleted(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / "t-0").mkdir()
    (tmp_path / "b" / "t-0" / "partition.metadata").write_text("damaged")
    with pytest.raises(ValueError, match="not a topic id"):
        dirs.open_log("t", 0, random_uuid(), {})
    (retired,) = dirs.delete_logs([("t", 0)])
    assert retired.parent == tmp_path / "b"
    dirs.release()


def test_a_directory_that_vanished_is_deleted_already(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    dirs.open_log("t", 0, random_uuid(), {}).append(build_batch([Record(timestamp=1, value=b"x")]))
    shutil.rmtree(tmp_path / "t-0")
    assert dirs.delete_logs([("t", 0)]) == []
    dirs.release()


def test_a_clean_stop_makes_no_files_for_a_log_that_has_none(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    dirs.open_log("t", 0, random_uuid(), {})
    assert dirs.close(1) == []
    assert not (tmp_path / "t-0").exists()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_log_that_cannot_be_closed_costs_its_directory_the_marker_and_nothing_else(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    dirs = open_dirs(*paths)
    id_of = {topic: random_uuid() for topic in ("bad", "good", "far")}
    for topic, home in (("bad", 0), ("good", 0), ("far", 1)):
        log = dirs.open_log(topic, 0, id_of[topic], {}, dirs.directory_ids[home])
        assert log.append(build_batch([Record(timestamp=1, value=b"x")])).error == 0
    shutil.rmtree(paths[0] / "bad-0")
    (problem,) = dirs.close(1)
    assert problem.filename == str(paths[0] / "bad-0")
    assert [(path / ".kafka_cleanshutdown").exists() for path in paths] == [False, True]
    again = open_dirs(*paths)
    assert [again.open_log(topic, 0, id_of[topic], {}).log_end_offset for topic in ("good", "far")] == [1, 1]
    again.release()


def test_a_log_that_could_not_be_opened_is_checked_by_the_next_start(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    (tmp_path / "t-0").touch()
    with pytest.raises(OSError, match="exists"):
        dirs.open_log("t", 0, random_uuid(), {})
    assert dirs.close(1) == []
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_stop_that_cannot_write_lets_go_of_its_directories(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    (tmp_path / "recovery-point-offset-checkpoint").mkdir()
    (problem,) = dirs.close(1)
    assert isinstance(problem, IsADirectoryError)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    (tmp_path / "recovery-point-offset-checkpoint").rmdir()
    open_dirs(tmp_path).release()


def test_a_folder_with_foreign_files_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    home = tmp_path / "project"
    home.mkdir()
    (home / "main.py").write_text("")
    (home / "notes.txt").write_text("")
    with pytest.raises(DataDirectoryError, match=r"is not a data directory: it holds main.py and 1 more"):
        open_dirs(tmp_path / "new", home)
    assert sorted(path.name for path in home.iterdir()) == ["main.py", "notes.txt"]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("trace", ["orders-0", "recovery-point-offset-checkpoint", "bootstrap.checkpoint"])
def test_a_refused_directory_without_meta_properties_gets_no_lock_file(tmp_path: Path, trace: str) -> None:
    (tmp_path / trace).mkdir()
    with pytest.raises(DataDirectoryError, match="not safe to format"):
        open_dirs(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [trace]


def test_a_directory_of_another_node_gets_no_lock_file(tmp_path: Path) -> None:
    write_meta(tmp_path, MetaProperties("c", 2, random_uuid()))
    with pytest.raises(DataDirectoryError, match="belongs to node 2"):
        open_dirs(tmp_path / "new", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


@pytest.mark.parametrize("name", ["lost+found", ".lock", "meta.properties.tmp"])
def test_a_new_volume_or_a_killed_first_start_is_formatted(tmp_path: Path, name: str) -> None:
    if name == "lost+found":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("")
    dirs = open_dirs(tmp_path)
    assert dirs.dirs[0].formatted
    dirs.release()


def test_a_lock_of_the_whole_file_is_packed_in_the_platforms_order_of_fields() -> None:
    linux, macos = flock_of(3, "linux"), flock_of(3, "darwin")  # struct flock of each system's <fcntl.h>
    assert linux == struct.pack("<h", 3) + bytes(26)
    assert macos == bytes(20) + struct.pack("<h", 3) + bytes(2)


def test_a_kernel_without_locks_of_open_files_still_keeps_a_second_broker_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown_command(*arguments: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr("fcntl.fcntl", unknown_command)
    first = open_dirs(tmp_path / "d")
    with pytest.raises(DataDirectoryError, match="in use by another broker"):
        open_dirs(tmp_path / "d")
    first.release()
    open_dirs(tmp_path / "d").release()
