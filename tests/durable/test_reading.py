"""Reading: hydration from one snapshot, evidence."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event, insert, text

from sessioncache.durable import reading, schema
from sessioncache.durable.messages import FencedOff
from sessioncache.durable.purging import PurgeCursor
from sessioncache.durable.tier import Asked, DurableTier
from sessioncache.primitives.entries import Entry, Head
from sessioncache.primitives.scopes import ScopeRef
from tests.durable_helpers import INCARNATION, app, dirt, open_tier, put, session, user, values_of


@pytest.fixture
async def tier(database_url: str) -> AsyncIterator[DurableTier]:
    async with open_tier(database_url) as made:
        yield made


async def test_heads_come_back_whole(tier: DurableTier) -> None:
    head: dict[str, Any] = {
        "birth": 3,
        "cleared": 2,
        "title": "Ein Titel é",
        "message_count": 4,
        "token_total": 2**40,
        "forked_from": "sess_other",
        "values_revision": 5,
        "updated": 6,
    }
    await put(tier, dirt(session(), 7, **head), dirt(user(), 8, birth=1), dirt(app(), 9, cleared=4))
    stored = await tier.read_scopes([(ref, INCARNATION) for ref in (app(), session(), user(), session("none"))])
    head["flushed"] = 7
    assert [None if item.absent else item.head for item in stored] == [
        Head("org", "app", "", "", 9, cleared=4, flushed=9),
        Head("org", "app", "u", "s", 7, **head),
        Head("org", "app", "u", "", 8, birth=1, flushed=8),
        None,
    ]


async def test_only_living_entries_are_read_but_all_count_for_what_is_known(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, {"dead": b"1"}), dirt(session(), 30, {"gone": b""}))
    await put(tier, dirt(session(), 20, {"alive": b"2", "left": b"3"}))
    await put(tier, dirt(session(), 40, birth=11, cleared=10))
    async with tier.engine.begin() as connection:
        await connection.execute(text("UPDATE sessioncache_state SET revision = 9 WHERE key = 'left'"))
    (stored,) = await tier.read_scopes([(session(), INCARNATION)])
    assert stored.entries == [Entry("alive", 20, b"2")]
    assert stored.known == 40


@pytest.mark.parametrize(("head", "known"), [({"cleared": 50}, 50), ({"birth": 60}, 60), ({}, 30)])
async def test_the_largest_revision_of_any_kind_is_known(tier: DurableTier, head: dict[str, Any], known: int) -> None:
    await put(tier, dirt(session(), 20, {"alive": b"2"}, **head))
    async with tier.engine.begin() as connection:
        await connection.execute(text("UPDATE sessioncache_state SET revision = 30"))
    (stored,) = await tier.read_scopes([(session(), INCARNATION)])
    assert stored.known == known


async def test_a_deleted_head_has_no_entries(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, {"k": b"1"}))
    await put(tier, dirt(session(), 6, deleted=True, cleared=4))
    (stored,) = await tier.read_scopes([(session(), INCARNATION)])
    assert stored.head.deleted
    assert stored.entries == []
    assert stored.known == 6


async def test_rows_without_a_head_are_a_scope_nevertheless(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, {"k": b"1", "gone": b""}))
    async with tier.engine.begin() as connection:
        await connection.execute(text("DELETE FROM sessioncache_session"))
    (stored,) = await tier.read_scopes([(session(), INCARNATION)])
    assert stored.head == Head("org", "app", "u", "s", 5)
    assert (stored.entries, stored.known) == ([Entry("k", 5, b"1")], 5)


async def test_nothing_is_read_under_an_incarnation_that_the_fence_does_not_name(tier: DurableTier) -> None:
    ours, strange = session("s", "u1"), session("s", "u2")
    with pytest.raises(FencedOff) as caught:
        await tier.read_scopes([(ours, INCARNATION), (strange, "other")])
    assert caught.value.buckets == {strange.bucket}


async def test_a_commit_between_head_and_rows_is_not_half_seen(
    tier: DurableTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(tier, dirt(session(), 5, {"a": b'"old"', "b": b'"old"'}), dirt(user(), 5, {"c": b'"old"'}))
    read_rows = reading._read_rows

    async def overtaken(connection: Any, refs: Sequence[ScopeRef]) -> Any:
        await put(tier, dirt(session(), 9, {"a": b'"new"', "d": b'"new"'}), dirt(user(), 9, {"c": b'"new"'}))
        bucket = session().bucket
        await tier.swap_fences({bucket: (INCARNATION, "next")})
        return await read_rows(connection, refs)

    monkeypatch.setattr(reading, "_read_rows", overtaken)
    stored = await tier.read_scopes([(session(), INCARNATION), (user(), INCARNATION)])
    monkeypatch.undo()
    assert [(item.head.revision, item.known) for item in stored] == [(5, 5), (5, 5)]
    assert [{entry.text for entry in item.entries} for item in stored] == [{b'"old"'}, {b'"old"'}]


async def test_evidence_shows_fence_head_and_rows_with_tombstones(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, {"k": b"1", "gone": b"2"}))
    await put(tier, dirt(session(), 6, {"gone": b""}, birth=2))
    evidence, unknown = await tier.evidence([Asked(session(), ["k", "gone", "never"]), Asked(session("none"), [])])
    assert evidence.fence == INCARNATION
    assert evidence.head is not None
    assert (evidence.head.revision, evidence.head.birth) == (6, 2)
    assert evidence.rows == {"k": Entry("k", 5, b"1"), "gone": Entry("gone", 6, b"")}
    assert (unknown.head, unknown.rows) == (None, {})


async def test_r11_evidence_of_more_keys_than_a_statement_has_parameters(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 4, {"old": b"1"}, cleared=2))
    await put(tier, dirt(session(), 5, {"k1": b"1", "k9": b""}, cleared=2))
    await put(tier, dirt(session(), 6, {"k2": b"2", "new": b"2"}, cleared=2))
    (evidence,) = await tier.evidence([Asked(session(), [f"k{n}" for n in range(70_000)], oldest=True)])
    assert {key: row.text for key, row in evidence.rows.items()} == {"k1": b"1", "k2": b"2", "k9": b""}
    assert evidence.oldest == 4
    (evidence,) = await tier.evidence([Asked(session(), ["k1", "k2", "old", "new"], oldest=True)])
    assert evidence.oldest is None


@pytest.mark.parametrize(("bytes_", "keys"), [(1_000, 10_000), (16_000_000, 2)])
async def test_r11_evidence_of_one_large_scope_is_read_in_parts(
    tier: DurableTier, monkeypatch: pytest.MonkeyPatch, bytes_: int, keys: int
) -> None:
    monkeypatch.setattr(reading, "_MOST", bytes_)
    monkeypatch.setattr(reading, "_KEYS", keys)
    values = {f"k{n}": b'"%s"' % (b"x" * 398) for n in range(9)}
    await put(tier, dirt(session(), 5, values), dirt(session("next"), 5, values))
    asked: list[str] = []
    event.listen(tier.engine.sync_engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    (evidence, *_) = await tier.evidence([Asked(session(), list(values)), Asked(session("next"), list(values))])
    assert {key: row.text for key, row in evidence.rows.items()} == values
    assert len([one for one in asked if "s.given_at" in one]) >= 5


async def test_a_session_owns_namespaces_of_which_no_row_is_left(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, {"k": b"1"}))
    record = {
        "scope_id": session().id,
        "namespace": "tools",
        "cleared": 0,
        "revision": 5,
        "flushed_at": datetime.now(UTC),
    }
    async with tier.engine.begin() as connection:
        await connection.execute(insert(schema.namespace), record)
    (owned,) = await tier.owned([session()])
    assert owned.entries == {"": 1, "tools": 0}


async def test_names_that_differ_little_are_different_scopes(tier: DurableTier) -> None:
    names = ["a", "A", "a ", "á", "a\u0301", "ä", "ß", "ss", "%", "_", "'"]
    await put(tier, *(dirt(session(name), 5 + i, {name: str(i).encode()}) for i, name in enumerate(names)))
    for i, name in enumerate(names):
        assert await values_of(tier, session(name)) == {name: str(i).encode()}


async def test_the_view_shows_living_entries_by_name(tier: DurableTier) -> None:
    await put(
        tier, dirt(session(), 5, {"k": b"1", "gone": b""}), dirt(user(), 5, {"k": b"2"}), dirt(app(), 5, {"k": b"3"})
    )
    await put(tier, dirt(session("cleared"), 5, {"k": b"4"}), dirt(session("deleted"), 5, {"k": b"5"}))
    await put(tier, dirt(session("cleared"), 6, cleared=5), dirt(session("deleted"), 6, deleted=True))
    query = "SELECT org, app, user_id, session_id, scope, namespace, key, value, revision FROM sessioncache_entries"
    async with tier.engine.connect() as connection:
        rows = {tuple(row) for row in await connection.execute(text(query))}
    assert rows == {
        ("org", "app", "u", "s", "session", "", "k", "1", 5),
        ("org", "app", "u", None, "user", "", "k", "2", 5),
        ("org", "app", None, None, "app", "", "k", "3", 5),
    }


@pytest.mark.parametrize(
    ("call", "index"),
    [
        (lambda tier: tier.read_scopes([(session(), INCARNATION)]), "sessioncache_state_living"),
        (lambda tier: tier.read_scopes([(session(), INCARNATION)]), "sessioncache_state_deleted"),
        (lambda tier: tier.read_changes([(session(), INCARNATION, 5)]), "sessioncache_state_living"),
        (lambda tier: tier.read_changes([(session(), INCARNATION, 5)]), "sessioncache_state_deleted"),
        (lambda tier: tier.purge(10), "sessioncache_state_dead"),
        (lambda tier: tier.purge(10, PurgeCursor(sessions=True)), "sessioncache_session_dead"),
        (lambda tier: tier.erased(user(), "", 10), "sessioncache_session_dead_by_user"),
        (lambda tier: tier.named(user(), 10), "sessioncache_session_dead_by_user"),
    ],
)
async def test_sqlite_enters_the_partial_indexes(
    sqlite_url: str, call: Callable[[DurableTier], Awaitable[object]], index: str
) -> None:
    async with open_tier(sqlite_url) as tier:
        await put(tier, dirt(session(), 5, {"a": b"1"}))
        asked: list[tuple[str, Any]] = []
        event.listen(
            tier.engine.sync_engine,
            "before_cursor_execute",
            lambda _connection, _cursor, statement, parameters, *_: asked.append((statement, parameters)),
        )
        await call(tier)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        plans = [connection.execute("EXPLAIN QUERY PLAN " + text, values).fetchall() for text, values in asked]
    assert f"USING INDEX {index} " in str(plans) or f"USING COVERING INDEX {index} " in str(plans)


async def test_no_more_changes_are_read_at_once_than_are_of_so_many_bytes(
    tier: DurableTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [session(name) for name in ("a", "b", "c")]
    for ref in refs:
        await put(tier, dirt(ref, 5, {"old": b"1" * 400}), dirt(ref, 7, {"new": b"2" * 100}))
    monkeypatch.setattr(reading, "_MOST", 250)
    asked = [(ref, INCARNATION, 5) for ref in refs]
    first = await tier.read_changes(asked)
    assert [[entry.key for entry in one.entries] for one in first] == [["new"]] * 2, "what is older does not count"
    assert len(await tier.read_changes([(ref, INCARNATION, 0) for ref in refs])) == 1, "one at least"
    asked = [(refs[0], INCARNATION, 0), *[(ref, INCARNATION, 7) for ref in refs[1:]]]
    assert len(await tier.read_changes(asked)) == 3, "of the others nothing is read"
