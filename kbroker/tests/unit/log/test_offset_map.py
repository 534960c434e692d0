"""The hash by which compaction knows keys, against the vectors of SipHash's authors."""

import pytest

from kbroker._core.log.offset_map import hash_of

SECRET = bytes(range(16))


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (2, "8177228da4a45dc7fca38bdef60affe4"),
        (3, "9c70b60c5267a94e5f33b6b02985ed51"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
    ],
)
def test_keys_are_hashed_as_siphash_says(length: int, expected: str) -> None:
    assert hash_of(SECRET, bytes(range(length))).hex() == expected


def test_another_secret_makes_another_hash() -> None:
    assert hash_of(SECRET, b"key") != hash_of(SECRET[::-1], b"key")
