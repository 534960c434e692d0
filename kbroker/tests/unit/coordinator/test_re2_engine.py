"""A member's expression is matched in time linear in the names, whatever it is made of."""

from __future__ import annotations

import pytest

from kbroker.coordinator.re2_engine import Re2, _compiled
from kbroker.errors import InvalidRegularExpressionError


def test_whole_names_match() -> None:
    assert Re2().matching("a.|(b)c", ["a1", "bc", "abc", "a"]) == {"a1", "bc"}


def test_groups_within_groups_cost_nothing() -> None:
    """What each of 1,500 groups has matched would be noted for each character of each name."""
    deep = "(" * 1_500 + "a+" + ")" * 1_500
    assert _compiled(deep).groups == 0
    assert Re2().matching(deep, ["a" * 200, "b"]) == {"a" * 200}


def test_what_is_no_expression_is_refused() -> None:
    with pytest.raises(InvalidRegularExpressionError, match="RE2"):
        Re2().check("(")
