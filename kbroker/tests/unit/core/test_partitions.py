from __future__ import annotations

import pytest

from kbroker._core.partitions import PartitionHandle
from kbroker._core.views import ViewHandle


def test_a_partition_without_a_log_is_not_led() -> None:
    handle = PartitionHandle(0)
    assert (handle.leader_id, handle.leader_epoch, handle.is_leader, handle.high_watermark) == (-1, -1, False, -1)
    assert handle.produce(b"x").error == 6


def test_a_table_is_replaced_whole() -> None:
    view = ViewHandle()
    view.publish([("a", b"a" * 16, False, [PartitionHandle(0), PartitionHandle(1)])], [(1, "host", 9092, None)])
    view.publish([])
    assert view.version == 2


def test_partitions_are_listed_from_0_without_gaps() -> None:
    with pytest.raises(ValueError, match="without gaps"):
        ViewHandle().publish([("a", b"a" * 16, False, [PartitionHandle(1)])])


def test_an_id_has_16_bytes() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        ViewHandle().publish([("a", b"a", False, [])])


def test_names_and_ids_are_unique_in_a_table() -> None:
    with pytest.raises(ValueError, match="once"):
        ViewHandle().publish([("a", b"a" * 16, False, []), ("b", b"a" * 16, False, [])])


def test_a_table_that_could_not_be_built_changes_nothing() -> None:
    view = ViewHandle()
    view.publish([("a", b"a" * 16, False, [])])
    with pytest.raises(ValueError, match="16 bytes"):
        view.publish([("a", b"a" * 16, False, []), ("b", b"b", False, [])])
    assert view.version == 1
