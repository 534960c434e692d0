"""What still counts of a log whose keys replace one another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker._core.record.codecs import LZ4, NONE
from kbroker._core.record.latest import Latest
from kbroker._core.record.records import BrokenRecords, Record, build_batch, iterate

COMMIT, ABORT = b"\x00\x00\x00\x01", b"\x00\x00\x00\x00"
KEYS = st.sampled_from([b"a", b"b", b"c", b"", None])
VALUES = st.one_of(st.none(), st.binary(max_size=3))
PLAIN, IN_TRANSACTION, MARKER = range(3)
BATCHES = st.lists(
    st.tuples(
        st.sampled_from([PLAIN, PLAIN, IN_TRANSACTION, MARKER]),
        st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4),
        st.sampled_from([NONE, LZ4]),
        st.integers(7, 8),
    ),
    max_size=12,
)


def batch(base_offset: int, *pairs: tuple[bytes | None, bytes | None], **more: int | bool) -> bytes:
    return build_batch([Record(key=key, value=value) for key, value in pairs], base_offset=base_offset, **more)


def taken(*batches: bytes, start: int = 0) -> Latest:
    latest = Latest(start)
    latest.take(b"".join(batches))
    return latest


def test_the_last_record_of_each_key_is_kept_in_the_logs_order() -> None:
    latest = taken(batch(0, (b"a", b"1"), (b"b", b"2")), batch(2, (b"a", b"3")), batch(3, (b"c", None)))
    assert latest.entries() == [(1, -1, b"b", b"2"), (2, -1, b"a", b"3"), (3, -1, b"c", None)]
    assert latest.next_offset == 4


def test_what_is_in_a_transaction_is_kept_whole_with_its_end() -> None:
    latest = taken(
        batch(0, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        batch(1, (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=1, transactional=True),
        batch(2, (COMMIT, b"\x00" * 6), producer_id=7, producer_epoch=0, transactional=True, control=True),
        batch(3, (ABORT, b"\x00" * 6), producer_id=8, producer_epoch=0, transactional=True, control=True),
        batch(4, (b"a", b"3")),
    )
    assert latest.entries() == [
        (0, 7, b"a", b"1"),
        (1, 7, b"a", b"2"),
        (2, 7, None, True),
        (3, 8, None, False),
        (4, -1, b"a", b"3"),
    ]


def test_a_marker_that_compaction_has_emptied_ends_nothing_with_a_commit() -> None:
    emptied = build_batch([], base_offset=5, last_offset=5, producer_id=7, transactional=True, control=True)
    assert taken(emptied).entries() == [(5, 7, None, False)]


def test_records_before_the_start_are_passed_over() -> None:
    latest = taken(batch(0, (b"a", b"1"), (b"b", b"2")), start=1)
    assert latest.entries() == [(1, -1, b"b", b"2")]


def test_a_broken_batch_is_told_with_where_it_begins() -> None:
    good, bad = batch(0, (b"a", b"1")), bytearray(batch(1, (b"a", b"2")))
    bad[-2] ^= 1
    latest = Latest(0)
    with pytest.raises(BrokenRecords):
        latest.take(good + bytes(bad))
    assert latest.next_offset == 1


@given(data=st.binary(max_size=200))
def test_bytes_of_any_kind_are_taken_or_refused(data: bytes) -> None:
    latest = Latest(0)
    try:
        latest.take(data)
    except BrokenRecords:
        return
    assert not data


@given(drawn=BATCHES, flips=st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(1, 255)), max_size=2))
def test_the_same_is_kept_as_of_records_gone_through_one_by_one(
    drawn: list[tuple[int, list[tuple[bytes | None, bytes | None]], int, int]], flips: list[tuple[int, int]]
) -> None:
    log, offset = [], 0
    expected: list[tuple[int, int, bytes | None, bytes | bool | None]] = []
    for kind, pairs, codec, producer in drawn:
        if kind == MARKER:
            log.append(batch(offset, (COMMIT, b""), producer_id=producer, transactional=True, control=True))
            expected.append((offset, producer, None, True))
        else:
            who = {"producer_id": producer, "transactional": True} if kind == IN_TRANSACTION else {}
            log.append(batch(offset, *pairs, codec=codec, **who))
            for one in iterate(log[-1]):
                key = one.key or b""
                if kind == PLAIN:
                    expected = [told for told in expected if told[1] != -1 or told[2] != key]
                expected.append((one.offset, who.get("producer_id", -1), key, one.value))
        offset += 1 if kind == MARKER else len(pairs)
    data = b"".join(log)
    assert taken(data).entries() == expected
    harmed = bytearray(data)
    for place, change in flips:
        if harmed:
            harmed[place % len(harmed)] ^= change
    try:
        Latest(0).take(bytes(harmed))
    except BrokenRecords:
        assert bytes(harmed) != data
