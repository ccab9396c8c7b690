"""Increments that Lua cannot compute are computed exactly here, or refused."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessioncache.errors import InvalidValueError, TypeMismatchError
from sessioncache.primitives import arithmetic


@given(st.integers(), st.integers())
def test_whole_numbers_are_added_exactly(value: int, by: int) -> None:
    assert arithmetic.add("n", value, by) == value + by
    assert type(arithmetic.add("n", value, by)) is int


def test_a_float_makes_the_sum_a_float() -> None:
    assert arithmetic.add("n", 0.1, 0.2) == 0.1 + 0.2
    assert type(arithmetic.add("n", 1, 1.0)) is float


@pytest.mark.parametrize("value", [None, True, "1", [1], {"a": 1}], ids=repr)
def test_what_is_no_number_cannot_be_incremented(value: Any) -> None:
    with pytest.raises(TypeMismatchError) as refused:
        arithmetic.add("n", value, 1)
    assert refused.value.key == "n"


@pytest.mark.parametrize("by", [None, True, "1", math.nan, math.inf, Decimal(1)], ids=repr)
def test_what_is_no_number_cannot_be_added(by: object) -> None:
    with pytest.raises(InvalidValueError) as refused:
        arithmetic.check("n", by)
    assert (refused.value.path, refused.value.type_name) == ("n", type(by).__name__)


@pytest.mark.parametrize(("value", "by"), [(1e308, 1e308), (10**400, 0.5), (0.5, 10**400)], ids=["inf", "int", "by"])
def test_a_sum_that_no_float_holds_is_refused(value: float, by: float) -> None:
    with pytest.raises(InvalidValueError):
        arithmetic.add("n", value, by)
