"""R19: values come back exactly, types included, or are refused with their path and type."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessioncache.errors import InvalidValueError, LimitExceededError
from sessioncache.primitives.values import MAX_DEPTH, MAX_INTEGER_DIGITS, decode_value, encode_value
from sessioncache.settings import MAX_VALUE_BYTES


class Level(IntEnum):
    """An int that is not exactly an int."""

    ONE = 1


class Colour(StrEnum):
    """A str that is not exactly a str."""

    RED = "red"


class Text(str):
    """A subclass of str."""

    __slots__ = ()


class Items(list[int]):
    """A subclass of list."""


@dataclass
class Record:
    """Not JSON."""

    name: str


Point = namedtuple("Point", "x y")


def has_pair(text: str) -> bool:
    """Whether a high and a low lone surrogate stand side by side, which JSON cannot tell from one character."""
    return any("\ud800" <= a <= "\udbff" and "\udc00" <= b <= "\udfff" for a, b in itertools.pairwise(text))


TEXTS = st.text(st.characters(), max_size=20).filter(lambda text: not has_pair(text))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXTS, below, max_size=4), max_leaves=20
)


def exactly(value: Any) -> Any:
    """Something that is equal only for the same value of the same types, with the same order of keys."""
    if type(value) is dict:
        return dict, [(key, exactly(below)) for key, below in value.items()]
    if type(value) is list:
        return list, [exactly(below) for below in value]
    return type(value), repr(value)


@given(VALUES)
def test_a_value_comes_back_exactly(value: Any) -> None:
    assert exactly(decode_value(encode_value("k", value))) == exactly(value)


@given(VALUES)
def test_the_text_means_to_any_json_reader_what_it_means_to_us(value: Any) -> None:
    assert exactly(json.loads(encode_value("k", value))) == exactly(value)


@given(VALUES)
def test_the_text_is_utf8_without_surrogates(value: Any) -> None:
    encode_value("k", value).decode("utf-8")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        1,
        1.0,
        0,
        -0.0,
        2**53 + 1,
        2**63,
        2**64,
        2**70,
        -(2**70),
        0.1 + 0.2,
        1e300,
        5e-324,
        1.7976931348623157e308,
        "",
        "a\0b",
        "\ud800",
        "\udfff\ud800",
        "é😀",
        '"\\\n\u2028',
        {"b": 1, "a": 2},
        {"": [{}, [], [[]]], "\0": "\udc00"},
        {"\ud800": 1},
        [1, 1.0, True, None, "1"],
    ],
    ids=ascii,
)
def test_the_hard_ones_come_back_exactly(value: Any) -> None:
    assert exactly(decode_value(encode_value("k", value))) == exactly(value)


def test_the_longest_integer_comes_back_exactly() -> None:
    largest = 10**MAX_INTEGER_DIGITS - 1
    assert decode_value(encode_value("k", [largest, -largest])) == [largest, -largest]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_longer_integer_is_refused(sign: int) -> None:
    with pytest.raises(InvalidValueError, match="more than 4300 digits"):
        encode_value("k", sign * 10**MAX_INTEGER_DIGITS)


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        Decimal("1.5"),
        Fraction(1, 2),
        1j,
        datetime.now(UTC),
        date(2026, 1, 1),
        UUID(int=1),
        b"bytes",
        bytearray(b"bytes"),
        {1, 2},
        frozenset({1}),
        (1, 2),
        Point(1, 2),
        Level.ONE,
        Colour.RED,
        Text("x"),
        Items([1]),
        defaultdict(int),
        OrderedDict(a=1),
        Counter("a"),
        Record("x"),
        range(3),
        len,
        object(),
        int,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_exactly_json_is_refused_with_path_and_type(value: object) -> None:
    for wrap, path in (
        (value, "cfg"),
        ({"items": [1, 2, {"price": value}]}, "cfg.items[2].price"),
        ([value], "cfg[0]"),
    ):
        with pytest.raises(InvalidValueError) as refused:
            encode_value("cfg", wrap)
        assert (refused.value.path, refused.value.type_name) == (path, type(value).__name__)
        assert path in str(refused.value)


@pytest.mark.parametrize("name", [1, 1.5, None, True, b"k", (1,), Text("k"), Colour.RED], ids=repr)
def test_a_dict_key_that_is_not_exactly_a_str_is_refused(name: Any) -> None:
    with pytest.raises(InvalidValueError) as refused:
        encode_value("cfg", {"a": [{name: 1}]})
    assert (refused.value.path, refused.value.type_name) == ("cfg.a[0]", type(name).__name__)


@pytest.mark.parametrize("text", ["\ud83d\ude00", "a\ud800\udc00b"], ids=ascii)
def test_a_high_and_a_low_surrogate_side_by_side_are_refused(text: str) -> None:
    for value, path in ((text, "k"), ({"a": [text]}, "k.a[0]"), ({text: 1}, "k.(key)")):
        with pytest.raises(InvalidValueError) as refused:
            encode_value("k", value)
        assert refused.value.path == path


def test_a_refusal_does_not_tell_the_value() -> None:
    with pytest.raises(InvalidValueError) as refused:
        encode_value("k", {"a": Decimal("8765.4321")})
    assert "8765" not in str(refused.value)


def nested(levels: int, *, of: type, leaf: Any = 1) -> Any:
    """Lists or dicts inside each other."""
    value: Any = leaf
    for _ in range(levels):
        value = [value] if of is list else {"a": value}
    return value


@pytest.mark.parametrize("leaf", [1, 1.5, "text", None], ids=repr)
@pytest.mark.parametrize("of", [list, dict])
def test_the_deepest_nesting_comes_back_whatever_it_holds(of: type, leaf: Any) -> None:
    deepest = nested(MAX_DEPTH, of=of, leaf=leaf)
    assert decode_value(encode_value("k", deepest)) == deepest


@pytest.mark.parametrize("leaf", [1, "text", []], ids=repr)
@pytest.mark.parametrize("of", [list, dict])
@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 100_000])
def test_a_deeper_nesting_is_refused(of: type, levels: int, leaf: Any) -> None:
    with pytest.raises(InvalidValueError, match="nested more than 256 levels") as refused:
        encode_value("k", nested(levels, of=of, leaf=leaf))
    assert refused.value.path.startswith("k[0][0]" if of is list else "k.a.a")
    assert refused.value.type_name == of.__name__


@pytest.mark.parametrize("value", [math.nan, Decimal(1), {1: 1}], ids=repr)
def test_what_lies_deepest_is_checked_too(value: Any) -> None:
    with pytest.raises(InvalidValueError):
        encode_value("k", nested(MAX_DEPTH - 1, of=list, leaf=value))


def test_a_value_that_contains_itself_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append({"again": cycle})
    with pytest.raises(InvalidValueError, match="or contains itself"):
        encode_value("k", cycle)


@pytest.mark.timeout(60)
def test_a_value_that_contains_itself_twice_is_refused_before_it_fills_the_memory() -> None:
    parent: dict[str, Any] = {"children": []}
    parent["children"] += [{"parent": parent}, {"parent": parent}]
    with pytest.raises(LimitExceededError, match="or contains itself"):
        encode_value("k", parent)


def test_a_value_that_is_mentioned_twice_is_fine() -> None:
    shared = [1]
    assert decode_value(encode_value("k", [shared, shared])) == [[1], [1]]


def test_a_value_has_at_most_a_mebibyte_of_text() -> None:
    assert len(encode_value("k", "a" * (MAX_VALUE_BYTES - 2))) == MAX_VALUE_BYTES
    with pytest.raises(LimitExceededError, match="'k' has 1048577 bytes as JSON, at most 1048576"):
        encode_value("k", "a" * (MAX_VALUE_BYTES - 1))


def test_the_limit_counts_what_a_surrogate_needs() -> None:
    with pytest.raises(LimitExceededError):
        encode_value("k", "\ud800" * (MAX_VALUE_BYTES // 6 + 1))


def test_every_decoding_is_a_new_object() -> None:
    text = encode_value("k", {"a": [1]})
    first = decode_value(text)
    first["a"].append(2)
    assert decode_value(text) == {"a": [1]}
