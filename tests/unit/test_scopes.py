"""Ids and buckets: fixed for ever by test vectors, and different for different identities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessioncache.hot.fields import fields_of, head_of, key_field
from sessioncache.hot.layout import Layout, parents
from sessioncache.primitives.entries import Head
from sessioncache.primitives.revisions import LARGEST
from sessioncache.primitives.scopes import (
    ScopeKind,
    ScopeRef,
    app_id,
    app_ref,
    bare_id,
    bucket_of,
    hash_id,
    key_id,
    org_id,
    org_user_id,
    session_ref,
    session_scope_id,
    user_id,
    user_ref,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
IDENTITIES = st.one_of(st.tuples(NAMES, NAMES), st.tuples(NAMES, NAMES, NAMES), st.tuples(NAMES, NAMES, NAMES, NAMES))


@pytest.mark.parametrize(
    ("found", "vector"),
    [
        (session_scope_id("org", "app", "user", "sess_1"), "4861016e4813f3c3dccedf987ca7fe30"),
        (session_scope_id("", "", "", ""), "a1c8756ec0a27875f02185a3f42f9cd7"),
        (session_scope_id("örg", "アプリ", "😀", "é"), "40a17bb3d27c4b8f0a12368e5993ed32"),
        (user_id("org", "app", "user"), "5883d5f8ed48654e56d1a04dd6530606"),
        (user_id("", "", ""), "1d6f39bbbb41bf8390920e651b46b8ac"),
        (app_id("org", "app"), "c4f1093efdf740a93c33073e77e560b3"),
        (app_id("", ""), "03d0aec8e1fae5e02f41172a07351753"),
        (key_id("", "key"), "0689fff4e62a6fa09c4ba4bceae9fe3c"),
        (key_id("ns", "key"), "3d07468619cf69b8a35c82075bb96db7"),
        (bare_id("org", "sess_1"), "16592e73c4a649f4835e7ad9d96e4556"),
        (org_id("org"), "09c2148dfbcad6f640bbf52149697aaa"),
        (org_id(""), "d2be1d80afaf035f470d638264823f90"),
        (org_user_id("org", "user"), "5ee61d4be36238597ff42dc5849be901"),
        (org_user_id("", ""), "5dca8a80a7d1a2b9a1f91bd015af65c6"),
    ],
)
def test_an_id_is_what_both_tiers_of_existing_installations_hold(found: str, vector: str) -> None:
    assert found == vector


@pytest.mark.parametrize(
    ("buckets", "of_user", "of_app", "of_empty_app", "of_empty_user"),
    [(1, 0, 0, 0, 0), (256, 73, 172, 71, 137), (16_384, 4681, 6572, 5959, 11657)],
)
def test_a_bucket_is_where_existing_installations_keep_it(
    buckets: int, of_user: int, of_app: int, of_empty_app: int, of_empty_user: int
) -> None:
    found = (bucket_of(buckets, "org", "app", "user"), bucket_of(buckets, "org", "app"))
    assert found == (of_user, of_app)
    assert (bucket_of(buckets, "", ""), bucket_of(buckets, "", "", "")) == (of_empty_app, of_empty_user)


def identify(parts: tuple[str, ...]) -> str:
    """The scope id of an app, a user or a session, by the number of parts."""
    return {2: app_id, 3: user_id, 4: session_scope_id}[len(parts)](*parts)  # type: ignore[operator,no-any-return]


@given(IDENTITIES, IDENTITIES)
def test_no_two_identities_share_an_id(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (identify(one) == identify(other)) == (one == other)


@given(st.lists(NAMES, min_size=2, max_size=4), st.data())
def test_moving_a_letter_from_one_name_to_the_next_is_another_identity(parts: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(parts) - 2))
    moved = [*parts[:at], parts[at] + "x", parts[at + 1], *parts[at + 2 :]]
    other = [*parts[:at], parts[at], "x" + parts[at + 1], *parts[at + 2 :]]
    assert hash_id("t", *moved) != hash_id("t", *other)


@given(NAMES, NAMES)
def test_every_domain_has_ids_of_its_own(one: str, other: str) -> None:
    assert len({app_id(one, other), bare_id(one, other), key_id(one, other), org_user_id(one, other)}) == 4


@given(NAMES, NAMES, NAMES, NAMES)
def test_a_session_lives_in_the_bucket_of_its_user(org: str, app: str, user: str, session: str) -> None:
    assert session_ref(256, org, app, user, session).bucket == user_ref(256, org, app, user).bucket


@given(NAMES, NAMES, st.integers(1, 16_384))
def test_a_bucket_exists(org: str, app: str, buckets: int) -> None:
    assert 0 <= app_ref(buckets, org, app).bucket < buckets


def test_buckets_are_used_evenly() -> None:
    counts = [0] * 64
    for number in range(6_400):
        counts[bucket_of(64, "", "app", f"user-{number}")] += 1
    assert min(counts) > 60
    assert max(counts) < 150


def test_keys_of_redis_carry_ids_and_no_names() -> None:
    place = Layout("p", 256).place(session_ref(256, "org", "app", "user", "sess_1"))
    assert place.control == b"p:{73}:ctl"
    assert place.hash == b"p:{73}:h:s4861016e4813f3c3dccedf987ca7fe30"
    assert place.temp == b"p:{73}:temp:4861016e4813f3c3dccedf987ca7fe30"


def test_a_session_names_as_parents_all_that_it_is_listed_by() -> None:
    by_app = (app_id("org", "app"), user_id("org", "app", "user"), bare_id("org", "sess_1"))
    ids = (*by_app, org_id("org"), org_user_id("org", "user"))
    assert parents(session_ref(256, "org", "app", "user", "sess_1")) == "".join(ids).encode()
    assert parents(user_ref(256, "org", "app", "user")) == b""


def test_the_bucket_is_found_in_the_beginning_of_its_keys() -> None:
    assert Layout("p", 256).bucket_of_base(b"p:{73}:") == 73


@given(NAMES)
def test_no_key_is_taken_for_a_head_field(key: str) -> None:
    flat = fields_of(Head("", "", "", "", 0), ScopeKind.SESSION)
    assert key_field(key) not in flat[::2]
    assert key_field(key) == b"=" + key.encode()


REVISIONS = st.integers(0, LARGEST)


@given(
    st.builds(
        Head,
        org=NAMES,
        app=NAMES,
        user=NAMES,
        session=NAMES,
        revision=REVISIONS,
        birth=REVISIONS,
        cleared=REVISIONS,
        title=NAMES,
        message_count=st.integers(0),
        token_total=st.integers(0),
        forked_from=NAMES,
        values_revision=REVISIONS,
        updated=REVISIONS,
    )
)
def test_a_head_comes_back_from_its_fields(head: Head) -> None:
    flat = fields_of(head, ScopeKind.SESSION)
    assert head_of(dict(zip(flat[::2], flat[1::2], strict=True))) == head


def test_the_member_of_the_dirty_index_tells_kind_and_id() -> None:
    assert ScopeRef(ScopeKind.USER, "", "", id="ab").member == "uab"
