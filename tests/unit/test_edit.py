"""Drafts: what differs from what was read is what is written, nested changes included."""

from __future__ import annotations

from decimal import Decimal

import pytest

from sessioncache.errors import InvalidValueError
from sessioncache.handle.edit import Draft, KeyChange
from sessioncache.hot.messages import ABSENT
from sessioncache.primitives.revisions import encode_revision

READ = encode_revision(7)


def draft() -> Draft:
    """A draft of three keys."""
    return Draft({"cart": READ + b'{"items":[1]}', "name": READ + b'"Ada"', "n": READ + b"1"})


def test_a_draft_that_is_only_read_changes_nothing() -> None:
    one = draft()
    assert (one["cart"], dict(one)["name"], len(one)) == ({"items": [1]}, "Ada", 3)
    assert one.changes() == []


def test_a_change_deep_inside_counts() -> None:
    one = draft()
    one["cart"]["items"].append(2)
    assert one.changes() == [KeyChange("cart", b'{"items":[1,2]}', READ)]


def test_a_key_set_to_what_it_was_is_no_change() -> None:
    one = draft()
    one["name"] = "Bob"
    one["name"] = "Ada"
    assert one.changes() == []


def test_a_change_expects_the_revision_that_was_read() -> None:
    one = draft()
    one["name"] = "Bob"
    assert one.changes() == [KeyChange("name", b'"Bob"', READ)]


def test_a_new_key_expects_that_there_is_none() -> None:
    one = draft()
    one["new"] = None
    assert one.changes() == [KeyChange("new", b"null", ABSENT)]


def test_a_deleted_key_expects_the_revision_that_was_read() -> None:
    one = draft()
    del one["name"]
    assert one.changes() == [KeyChange("name", None, READ)]
    assert "name" not in one
    assert list(one) == ["cart", "n"]


def test_a_key_deleted_and_set_again_to_another_value_is_one_change() -> None:
    one = draft()
    del one["name"]
    one["name"] = "Bob"
    assert one.changes() == [KeyChange("name", b'"Bob"', READ)]


def test_a_key_deleted_and_set_again_to_what_it_was_is_no_change() -> None:
    one = draft()
    del one["name"]
    one["name"] = "Ada"
    assert one.changes() == []


def test_a_new_key_that_was_deleted_again_is_no_change() -> None:
    one = draft()
    one["new"] = 1
    del one["new"]
    assert one.changes() == []


def test_a_whole_number_and_the_same_float_differ() -> None:
    one = draft()
    one["n"] = 1.0
    assert one.changes() == [KeyChange("n", b"1.0", READ)]


@pytest.mark.parametrize("key", ["absent", "name"])
def test_what_is_not_there_cannot_be_read_or_deleted(key: str) -> None:
    one = draft()
    one.pop("name")
    with pytest.raises(KeyError):
        one[key]
    with pytest.raises(KeyError):
        del one[key]


def test_the_dict_methods_work() -> None:
    one = draft()
    one.setdefault("tags", []).append("new")
    one.update(n=2)
    assert one.pop("cart") == {"items": [1]}
    assert {change.key for change in one.changes()} == {"tags", "n", "cart"}


def test_a_value_put_in_is_taken_as_it_is_at_the_end() -> None:
    one, items = draft(), [1]
    one["items"] = items
    items.append(2)
    assert one.changes() == [KeyChange("items", b"[1,2]", ABSENT)]


def test_what_is_not_json_is_refused_at_the_end_with_its_path() -> None:
    one = draft()
    one["cart"]["price"] = Decimal(1)
    with pytest.raises(InvalidValueError) as refused:
        one.changes()
    assert refused.value.path == "cart.price"


def test_changes_inside_do_not_reach_what_was_read() -> None:
    read = {"cart": READ + b"[1]"}
    Draft(read)["cart"].append(2)
    assert read == {"cart": READ + b"[1]"}
    assert Draft(read)["cart"] == [1]
