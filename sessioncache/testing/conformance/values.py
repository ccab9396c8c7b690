"""Values: exactly the JSON types come back exactly; all else is refused, and nothing of the call is applied."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest

from sessioncache.errors import InvalidValueError, LimitExceededError
from sessioncache.testing.conformance.base import Cache, Conformance, OpenCache, exact, raised


class _Number(IntEnum):
    ONE = 1


class _Text(str):
    __slots__ = ()


VALUES: dict[str, Any] = {
    "null": None,
    "yes": True,
    "no": False,
    "zero": 0,
    "one as a float": 1.0,
    "minus zero": -0.0,
    "two to the 53rd and one": 2**53 + 1,
    "two to the 70th": 2**70,
    "minus ten to the 300th": -(10**300),
    "a sum": 0.1 + 0.2,
    "the smallest float": 5e-324,
    "the largest float": 1.7976931348623157e308,
    "empty text": "",
    "NUL": "a\0b",
    "a high lone surrogate": "a\ud800b",
    "a low lone surrogate": "\udfff",
    "beyond the BMP": "😀 é e\u0301 \u2028 \x7f",
    "quotes": '"\\/\b\n\r\t',
    "empty list": [],
    "empty dict": {},
    "nested": [1, [2.0, {"x": [None, {"y": ""}]}], "z"],
    "keys in their order": {"b": 1, "a": 2, "": 3, "B": 4, "\ud800": 5, "a\0": 6},
    "numbers of both types": [1, 1.0, True, 0, 0.0, False, -0.0],
    "a long text": "x" * 100_000,
    "deep": [[[[[[[[[[1]]]]]]]]]],
}

NO_VALUES: dict[str, Any] = {
    "NaN": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "Decimal": Decimal("1.5"),
    "datetime": datetime(2026, 1, 1, tzinfo=UTC),
    "bytes": b"x",
    "set": {1},
    "tuple": (1, 2),
    "callable": print,
    "complex": 1j,
    "object": object(),
    "IntEnum": _Number.ONE,
    "subclass of str": _Text("x"),
    "defaultdict": defaultdict(int),
    "OrderedDict": OrderedDict(),
    "a dict with a number as key": {1: "x"},
    "a dict with None as key": {None: "x"},
    "a high followed by a low lone surrogate": "\ud83d\ude00",
}

PREFIXES = ["", "user:", "app:", "temp:"]


class TestValues(Conformance):
    """What goes in comes out."""

    @pytest.mark.parametrize("prefix", PREFIXES)
    async def test_values_come_back_exactly(self, cache: Cache, open_cache: OpenCache, prefix: str) -> None:
        made = await cache.create("ada", session_id="s1")
        await made.update({prefix + name: value for name, value in VALUES.items()})
        async with open_cache(app=cache.app, org=cache.org) as other:
            found = await other.get("ada", "s1")
            for name, value in VALUES.items():
                assert exact(found.state[prefix + name]) == exact(value), name
                assert exact(await found.get(prefix + name)) == exact(value), name
                assert exact(made.state[prefix + name]) == exact(value), name

    async def test_values_are_exact_after_a_flush(self, cache: Cache, open_cache: OpenCache) -> None:
        made = await cache.create("ada", session_id="s1", state=VALUES)
        await made.flush()
        async with open_cache(app=cache.app, org=cache.org) as other:
            found = await other.get("ada", "s1")
            assert {name: exact(value) for name, value in found.state.items()} == {
                name: exact(value) for name, value in VALUES.items()
            }

    async def test_a_stored_null_is_no_deletion(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": None})
        assert await made.get("a", "default") is None
        assert "a" in made.state
        assert await made.delete("a") is True
        assert await made.get("a", "default") == "default"

    async def test_a_dict_replaces_and_is_not_merged(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": {"x": 1, "deep": {"y": 1}}})
        await made.set("a", {"deep": {"z": 2}})
        assert await made.get("a") == {"deep": {"z": 2}}

    async def test_objects_handed_in_and_out_are_never_shared(self, cache: Cache) -> None:
        value = {"items": [1]}
        made = await cache.create("ada", state={"first": value})
        await made.set("second", value)
        value["items"].append(2)
        for key in ("first", "second"):
            made.state[key]["items"].append(3)
            (await made.get(key))["items"].append(4)
            assert made.state[key] == {"items": [1]}
            assert await made.get(key) == {"items": [1]}

    @pytest.mark.parametrize("what", NO_VALUES)
    async def test_what_is_no_json_value_is_refused(self, cache: Cache, what: str) -> None:
        made = await cache.create("ada", state={"a": "old"})
        for value in (NO_VALUES[what], [NO_VALUES[what]], {"x": NO_VALUES[what]}):
            await raised(InvalidValueError, made.set("a", value))
            await raised(InvalidValueError, made.append("l", value))
            await raised(InvalidValueError, cache.create("ada", session_id="s2", state={"a": value}))
        await made.refresh()
        assert dict(made.state) == {"a": "old"}
        assert len((await cache.list()).items) == 1

    async def test_a_refusal_names_path_and_type(self, cache: Cache) -> None:
        made = await cache.create("ada")
        error = await raised(InvalidValueError, made.set("cfg", {"items": [{}, {}, {"price": Decimal(1)}]}))
        assert (error.path, error.type_name) == ("cfg.items[2].price", "Decimal")
        error = await raised(InvalidValueError, made.set("user:x", {1}))
        assert (error.path, error.type_name) == ("user:x", "set")

    async def test_nothing_of_a_refused_call_is_applied(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "gone": 1})
        wrong = {"a": 2, "user:u": 2, "app:p": 2, "temp:t": 2, "z": math.nan}
        await raised(InvalidValueError, made.update(wrong, delete=["gone"]))
        found = await cache.get("ada", made.id)
        assert dict(found.state) == {"a": 1, "gone": 1}
        assert found.revision == made.revision

    async def test_a_value_has_at_most_a_mebibyte_of_json_text(self, cache: Cache) -> None:
        most = "x" * (1024 * 1024 - 2)
        made = await cache.create("ada", state={"a": most})
        for key in ("a", "user:a", "app:a", "temp:a"):
            await raised(LimitExceededError, made.set(key, most + "x"))
        await made.set("l", ["x" * (1024 * 1024 - 10)])
        await raised(LimitExceededError, made.append("l", "y" * 10))
        assert await made.get("a") == most

    async def test_a_value_that_contains_itself_is_refused(self, cache: Cache) -> None:
        made = await cache.create("ada")
        endless: list[Any] = []
        endless.append(endless)
        await raised(ValueError, made.set("a", endless))
        assert await made.get("a") is None
