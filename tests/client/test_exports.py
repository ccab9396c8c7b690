"""Exports: all that there is of a session or a user, as plain JSON."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from sessioncache import DurableTierUnavailableError, Session, SessionCache, SessionNotFoundError
from sessioncache.operations.export import FORMAT
from sessioncache.primitives.deadline import within
from tests.helpers import Urls, drain, evict

VALUES: dict[str, Any] = {
    "float": 1.0,
    "long": 2**70,
    "sum": 0.1 + 0.2,
    "none": None,
    "text": "a\0b é 😀",
    "nested": {"b": [1, {"a": []}], "a": True},
    "": "not of a session",
}
PLAIN = {key: value for key, value in VALUES.items() if key}


async def made(cache: SessionCache, name: str = "s1") -> Session:
    """A session with values of every kind, two namespaces (one of them emptied), and temp: keys."""
    found = await cache.create("ada", session_id=name, title="A title", state={**PLAIN, "user:u": [1], "app:p": 1})
    await found.set("temp:t", "temporary")
    await found.namespace("skills").update({"user:x": 1, "temp:y": [1.0]})
    await found.namespace("tools").set("gone", 1)
    await found.namespace("tools").delete("gone")
    await found.touch(messages=2, tokens=30)
    return found


EXPECTED: dict[str, Any] = {
    "format": 1,
    "id": "s1",
    "org": "",
    "app": "app",
    "user": "ada",
    "title": "A title",
    "message_count": 2,
    "token_total": 30,
    "forked_from": None,
    "state": PLAIN,
    "namespaces": {"skills": {"user:x": 1, "temp:y": [1.0]}},
}


def without_times(export: dict[str, Any]) -> dict[str, Any]:
    """An export without the times, which are aware and in UTC."""
    for name in ("created_at", "updated_at"):
        assert datetime.fromisoformat(export[name]).utcoffset() is not None
    return {name: value for name, value in export.items() if name not in ("created_at", "updated_at")}


async def test_an_export_is_the_same_unflushed_flushed_and_cold(cache: SessionCache, urls: Urls) -> None:
    found = await made(cache)
    first = await found.export()
    assert without_times(first) == EXPECTED
    assert datetime.fromisoformat(first["updated_at"]) == found.updated_at
    assert datetime.fromisoformat(first["created_at"]) == found.created_at
    for _ in range(2):
        await drain(urls)
        assert await cache.export_session("ada", "s1") == await found.export() == first
        evict(urls.redis)
        assert await cache.export_session("ada", "s1") == first


async def test_an_export_is_json_and_comes_back_exactly(cache: SessionCache) -> None:
    export = await (await made(cache)).export()
    again = json.loads(json.dumps(export))
    assert again == export
    assert [(key, type(value)) for key, value in again["state"].items()] == [
        (key, type(value)) for key, value in sorted(PLAIN.items())
    ]
    copy = await cache.create("bob", session_id="copy", state=again["state"])
    for name, values in again["namespaces"].items():
        await copy.namespace(name).update(values)
    exported = await copy.export()
    assert (exported["state"], exported["namespaces"]) == (export["state"], export["namespaces"])


async def test_an_export_has_what_nobody_flushed_on_top_of_what_is_cold(cache: SessionCache, urls: Urls) -> None:
    found = await made(cache)
    await drain(urls)
    evict(urls.redis)
    await found.set("float", 2.0)
    await found.namespace("late").set("x", 1)
    export = await found.export()
    assert export["state"] == {**PLAIN, "float": 2.0}
    assert export["namespaces"] == {**EXPECTED["namespaces"], "late": {"x": 1}}


async def test_temporary_and_shared_keys_are_not_of_a_session(cache: SessionCache) -> None:
    text = json.dumps(await (await made(cache)).export())
    assert "temporary" not in text
    assert "user:u" not in text
    assert "app:p" not in text


async def test_a_user_is_exported_with_the_shared_keys_and_every_session(cache: SessionCache, urls: Urls) -> None:
    await made(cache)
    await drain(urls)
    evict(urls.redis)
    await cache.create("ada", session_id="s2", state={"a": 1})
    await cache.create("ada", session_id="deleted", state={"a": 1})
    await cache.delete("ada", "deleted")
    await cache.create("bob", session_id="s3", state={"a": 1, "user:u": "bob's"})
    export = json.loads(json.dumps(await cache.export_user("ada")))
    assert {name: export[name] for name in ("org", "app", "user", "state")} == {
        "org": "",
        "app": "app",
        "user": "ada",
        "state": {"u": [1]},
    }
    assert sorted(export["sessions"], key=lambda one: str(one["id"])) == [
        await cache.export_session("ada", "s1"),
        await cache.export_session("ada", "s2"),
    ]
    assert "bob" not in json.dumps(export)
    assert await cache.export_user("nobody") == {
        "format": FORMAT,
        "org": "",
        "app": "app",
        "user": "nobody",
        "state": {},
        "sessions": [],
    }
    await drain(urls)


async def test_a_fork_tells_where_it_comes_from(cache: SessionCache) -> None:
    found = await made(cache)
    export = await (await found.fork(new_id="s2")).export()
    assert (export["forked_from"], export["message_count"]) == ("s1", 0)
    assert (export["state"], export["namespaces"]) == (PLAIN, EXPECTED["namespaces"])


async def test_what_is_not_there_is_not_exported(cache: SessionCache) -> None:
    found = await made(cache)
    with pytest.raises(SessionNotFoundError):
        await cache.export_session("bob", "s1")
    await cache.delete("ada", "s1")
    again = await made(cache)
    with pytest.raises(SessionNotFoundError):
        await found.export()
    assert without_times(await again.export()) == EXPECTED


async def test_an_export_never_leaves_a_namespace_out_for_want_of_the_database(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await made(cache)
    await drain(urls)
    evict(urls.redis)
    await found.refresh()

    async def away(*_: object) -> list[str]:
        raise DurableTierUnavailableError("away")

    monkeypatch.setattr(cache._tiers.durable, "namespaces", away)
    with within(1), pytest.raises(DurableTierUnavailableError):
        await found.export()
