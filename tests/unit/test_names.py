"""R20: names are kept verbatim or refused, and exactly three prefixes have a meaning."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessioncache.errors import InvalidNameError
from sessioncache.primitives.names import MAX_NAME_BYTES, Key, KeyScope, check_name, new_session_id, split_key

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=64)


@pytest.mark.parametrize(
    ("key", "scope", "name"),
    [
        ("x", KeyScope.SESSION, "x"),
        ("user:x", KeyScope.USER, "x"),
        ("app:x", KeyScope.APP, "x"),
        ("temp:x", KeyScope.TEMP, "x"),
        ("app:temp:x", KeyScope.APP, "temp:x"),
        ("user:app:", KeyScope.USER, "app:"),
        ("user:", KeyScope.USER, ""),
        ("app:", KeyScope.APP, ""),
        ("temp:", KeyScope.TEMP, ""),
        ("foo:x", KeyScope.SESSION, "foo:x"),
        ("APP:x", KeyScope.SESSION, "APP:x"),
        ("User:x", KeyScope.SESSION, "User:x"),
        (" user:x", KeyScope.SESSION, " user:x"),
        ("user", KeyScope.SESSION, "user"),
        (":", KeyScope.SESSION, ":"),
        (" ", KeyScope.SESSION, " "),
    ],
)
def test_only_the_first_of_the_three_prefixes_counts_in_exactly_its_case(key: str, scope: KeyScope, name: str) -> None:
    assert split_key(key) == Key(scope, name)


@given(st.sampled_from(["", "user:", "app:", "temp:", "foo:", "USER:"]), NAMES)
def test_a_key_that_was_taken_apart_is_put_together_verbatim(prefix: str, name: str) -> None:
    assert str(split_key(prefix + name)) == prefix + name


@given(NAMES, NAMES)
def test_different_keys_are_different_places(one: str, other: str) -> None:
    assert (split_key(one) == split_key(other)) == (one == other)


@given(NAMES)
def test_a_name_is_kept_verbatim(name: str) -> None:
    assert check_name("a user", name) is name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "must not be empty"),
        ("a\0b", "contains a NUL character"),
        ("a\ud800", "contains a lone surrogate"),
        ("\udfff", "contains a lone surrogate"),
        ("a" * 257, "has 257 bytes of UTF-8, at most 256"),
        ("é" * 129, "has 258 bytes of UTF-8, at most 256"),
        (b"bytes", "must be a str, not bytes"),
        (None, "must be a str, not NoneType"),
        (7, "must be a str, not int"),
        (KeyScope.USER, "must be a str, not KeyScope"),
    ],
)
def test_a_name_that_cannot_be_kept_is_refused(name: object, why: str) -> None:
    with pytest.raises(InvalidNameError, match=re.escape(f"a session id {why}")):
        check_name("a session id", name)


@pytest.mark.parametrize("name", ["a" * MAX_NAME_BYTES, "é" * (MAX_NAME_BYTES // 2), "😀" * (MAX_NAME_BYTES // 4)])
def test_a_name_may_have_256_bytes_of_utf8(name: str) -> None:
    assert check_name("a user", name) == name


def test_a_name_may_be_empty_where_the_caller_says_so() -> None:
    assert check_name("an org", "", empty=True) == ""


@pytest.mark.parametrize("prefix", ["", "user:", "app:", "temp:"])
def test_the_limit_of_a_key_does_not_count_its_prefix(prefix: str) -> None:
    assert split_key(prefix + "k" * MAX_NAME_BYTES).name == "k" * MAX_NAME_BYTES
    with pytest.raises(InvalidNameError, match="has 257 bytes"):
        split_key(prefix + "k" * (MAX_NAME_BYTES + 1))


@pytest.mark.parametrize("prefix", ["", "user:", "app:", "temp:"])
@pytest.mark.parametrize("rest", ["a\0", "\udc00"])
def test_what_no_database_stores_is_refused_behind_every_prefix(prefix: str, rest: str) -> None:
    with pytest.raises(InvalidNameError):
        split_key(prefix + rest)


@pytest.mark.parametrize("key", [b"user:x", None, 1, ("user:", "x")])
def test_a_key_is_a_str(key: object) -> None:
    with pytest.raises(InvalidNameError, match=f"a key must be a str, not {type(key).__name__}"):
        split_key(key)


def test_an_empty_session_key_is_refused() -> None:
    with pytest.raises(InvalidNameError, match="must not be empty"):
        split_key("")


def test_a_new_session_id_is_a_usable_name_of_96_random_bits() -> None:
    ids = {new_session_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch("sess_[0-9a-f]{24}", check_name("a session id", one)) for one in ids)
