"""What one call may change, and what is said of one that would change more."""

from __future__ import annotations

import re

import pytest

from sessioncache import LimitExceededError
from sessioncache.hot.layout import Layout
from sessioncache.hot.messages import Operation, Part
from sessioncache.hot.scripts import load_script
from sessioncache.hot.write import Write
from sessioncache.primitives.scopes import app_ref, user_ref
from sessioncache.settings import MAX_CALL_BYTES, MAX_CALL_KEYS, MAX_REPLACED_BYTES, MAX_VALUE_BYTES


def puts(count: int, size: int = 1) -> list[Operation]:
    """That many keys are set to values of that size."""
    return [Operation(b"S", f"k{number}", b"1" * size) for number in range(count)]


def check(*changes: list[Operation]) -> None:
    """Check a write of these changes, in a scope each."""
    layout = Layout("t", 8)
    places = [layout.place(user_ref(8, "org", "app", "ada")), layout.place(app_ref(8, "org", "app"))]
    Write([Part(*one) for one in zip(places, changes, strict=True)]).check_size()


def test_all_scopes_of_a_call_count_together() -> None:
    check(puts(MAX_CALL_KEYS - 1), puts(1))
    with pytest.raises(LimitExceededError, match=f"{MAX_CALL_KEYS + 1} keys, at most {MAX_CALL_KEYS} .*split the call"):
        check(puts(MAX_CALL_KEYS), puts(1))


def test_bytes_count_together() -> None:
    half = MAX_CALL_BYTES // 2
    check(puts(2, half - 5), puts(1, 10))
    with pytest.raises(LimitExceededError, match=f"{MAX_CALL_BYTES + 1} bytes .*at most {MAX_CALL_BYTES} .*split"):
        check(puts(2, half - 5), puts(1, 11))


def test_the_scripts_have_the_same_limits() -> None:
    text = load_script("write").text.decode()
    assert re.findall(r"MOST_REPLACED = (\d+)", text) == [str(MAX_REPLACED_BYTES)]
    fork = load_script("fork").text.decode()
    assert re.findall(r"MOST_KEYS, MOST_BYTES = (\d+), (\d+)", fork) == [(str(MAX_CALL_KEYS), str(MAX_CALL_BYTES))]
    assert re.findall(r"local FEW = (\d+)", text) == [str(MAX_REPLACED_BYTES // MAX_VALUE_BYTES)]
