"""Records and dates: ids, times, texts."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from sessioncache import Record
from sessioncache.primitives.revisions import DIGITS, LARGEST, encode_revision, revision_time
from sessioncache.primitives.scopes import session_ref
from sessioncache.primitives.timestamps import date_of, dated, json_of, json_size
from sessioncache.records import record_id, record_of, upsert_of

SESSION = session_ref(256, "org", "app", "ada", "s1")


@pytest.mark.parametrize(
    ("key", "expected"),
    [("a", "rec_9a22df877912eba4bb34fb48"), ("é", "rec_b59482a30440cc97dbdfc27d")],
)
def test_ids_are_fixed(key: str, expected: str) -> None:
    assert record_id(SESSION, key) == expected


def test_ids_differ_by_session_and_key() -> None:
    others = [session_ref(256, *names) for names in (("", "app", "ada", "s1"), ("org", "app", "ada", "s2"))]
    assert len({record_id(one, key) for one in (SESSION, *others) for key in ("a", "b", "a ")}) == 9


@pytest.mark.parametrize("at", [0, 1, 2**53 + 1, LARGEST])
@pytest.mark.parametrize("json", [b"1", b'"@"', b"[]"])
def test_a_date_comes_off_as_it_was_put_on(json: bytes, at: int) -> None:
    text = dated(json, at)
    assert (date_of(text), json_of(text), json_size(text)) == (at, json, len(json))
    value = encode_revision(5) + text
    assert (date_of(value, DIGITS), json_of(value, DIGITS)) == (at, json)
    assert record_of(SESSION, "a", None, value).updated_at == revision_time(at)


@pytest.mark.parametrize("json", [b"", b"1", b'"@---------"'])
def test_a_text_without_a_date_is_left_alone(json: bytes) -> None:
    assert dated(json, None) == json
    assert (date_of(json), json_of(json), json_size(json)) == (None, json, len(json))


def test_an_upsert_without_a_time_is_a_plain_set() -> None:
    assert (upsert_of(Record("a", 1)).code, upsert_of(Record("a", 1)).text) == (b"S", b"1")
    given = upsert_of(Record("a", 1, datetime(1970, 1, 1, tzinfo=UTC)))
    assert (given.code, given.text) == (b"R", b"@---------1")


def test_records_can_be_pickled() -> None:
    record = Record("a", [1], datetime(2020, 1, 1, tzinfo=UTC), "rec_1", "s1")
    assert pickle.loads(pickle.dumps(record)) == record
