"""The partition of a group is the one Java would choose."""

from __future__ import annotations

import pytest

from kbroker.coordinator.placement import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("polygenelubricants", -(1 << 31)),
        ("Gruppe-ß", 738167021),
        ("\U0001f600", 1772899),
    ],
)
def test_hash_is_that_of_java(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_the_number_without_an_absolute_value_counts_as_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0
