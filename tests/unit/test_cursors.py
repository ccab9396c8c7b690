"""Positions in lists, and cursors: what one list wrote only that list reads, and exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessioncache.errors import InvalidNameError
from sessioncache.primitives.cursors import ORDERS, Owner, Position, read_cursor, write_cursor
from sessioncache.primitives.names import MAX_NAME_BYTES
from sessioncache.primitives.revisions import LARGEST
from sessioncache.primitives.scopes import app_id, bucket_of, org_id, org_user_id, user_id

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
OWNERS = st.builds(Owner, NAMES, NAMES | st.none(), NAMES | st.none())
IDS = st.text("0123456789abcdef", min_size=32, max_size=32)
POSITIONS = st.builds(Position, st.integers(0, LARGEST), NAMES.filter(bool), IDS)


@given(OWNERS, st.sampled_from(ORDERS), POSITIONS)
def test_a_cursor_gives_back_its_position(owner: Owner, order: str, position: Position) -> None:
    assert read_cursor(owner, order, write_cursor(owner, order, position)) == position  # type: ignore[arg-type]


@given(OWNERS, OWNERS, st.sampled_from(ORDERS), st.sampled_from(ORDERS), POSITIONS)
def test_a_cursor_is_read_by_its_own_list_only(
    one: Owner, other: Owner, order: str, other_order: str, position: Position
) -> None:
    cursor = write_cursor(one, order, position)  # type: ignore[arg-type]
    if (one, order) != (other, other_order):
        with pytest.raises(InvalidNameError):
            read_cursor(other, other_order, cursor)  # type: ignore[arg-type]


@given(st.text(max_size=80))
def test_a_text_that_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidNameError, match="cursor"):
        read_cursor(Owner("", "app", None), "updated", text)


@given(POSITIONS, st.data())
def test_a_cursor_that_was_cut_or_grew_is_refused(position: Position, data: st.DataObject) -> None:
    owner = Owner("", "app", None)
    cursor = write_cursor(owner, "created", position)
    with pytest.raises(InvalidNameError):
        read_cursor(owner, "created", cursor[: data.draw(st.integers(0, 40))])
    for longer in (cursor + "=", cursor + " ", cursor + "\n", " " + cursor, cursor + "!"):
        with pytest.raises(InvalidNameError):
            read_cursor(owner, "created", longer)


@pytest.mark.parametrize("position", [Position(2**63, "s", "0" * 32), Position(1, "a\0b", "0" * 32)])
def test_a_cursor_made_up_to_disturb_the_database_is_refused(position: Position) -> None:
    owner = Owner("", "app", None)
    with pytest.raises(InvalidNameError, match="not one that a list returned"):
        read_cursor(owner, "updated", write_cursor(owner, "updated", position))


def test_a_cursor_of_the_longest_id_is_short_enough_for_urls() -> None:
    cursor = write_cursor(Owner("", "a", None), "updated", Position(LARGEST, "s" * MAX_NAME_BYTES, "f" * 32))
    assert len(cursor) < 400


def test_positions_sort_newest_first_then_by_id_then_by_scope() -> None:
    in_order = [Position(9, "z", "f"), Position(5, "B", "f"), Position(5, "a", "1"), Position(5, "a", "2")]
    mixed = [in_order[number] for number in (2, 0, 3, 1)]
    assert sorted(mixed, key=lambda position: position.place) == in_order


def test_an_owner_is_a_user_an_app_an_org_or_a_user_name_in_an_org() -> None:
    owners = [Owner("o", "a", "u"), Owner("o", "a", None), Owner("o", None, "u"), Owner("o", None, None)]
    assert [owner.kind for owner in owners] == ["user", "app", "org_user", "org"]
    assert [owner.id for owner in owners] == [
        user_id("o", "a", "u"),
        app_id("o", "a"),
        org_user_id("o", "u"),
        org_id("o"),
    ]
    assert owners[0].buckets(256) == [bucket_of(256, "o", "a", "u")]
    assert all(owner.buckets(4) == [0, 1, 2, 3] for owner in owners[1:])


def test_an_empty_user_is_a_user_and_not_everybody() -> None:
    assert Owner("", "a", "").kind == "user"
    assert Owner("", None, "").kind == "org_user"
