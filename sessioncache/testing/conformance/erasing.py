"""Erasing a user, and exporting what is stored of a session or a user."""

from __future__ import annotations

import json
from typing import Any

from sessioncache.errors import SessionCacheError, SessionNotFoundError
from sessioncache.testing.conformance.base import Cache, Conformance, raised


def _texts(document: Any) -> set[str]:
    """Every text in a document, keys of dicts too."""
    if isinstance(document, dict):
        return set(document) | {text for value in document.values() for text in _texts(value)}
    if isinstance(document, list):
        return {text for item in document for text in _texts(item)}
    return {document} if isinstance(document, str) else set()


class TestExports(Conformance):
    """export_session, export_user, s.export."""

    async def test_the_export_of_a_session_holds_its_private_state(self, cache: Cache) -> None:
        made = await cache.create("ada", session_id="s1", state={"k1": "v1", "n": 2**70}, title="A trip")
        await made.namespace("skills").set("k2", "v2")
        for document in (await cache.export_session("ada", "s1"), await made.export()):
            assert json.loads(json.dumps(document, allow_nan=False)) == document
            assert {"s1", "ada", "A trip", "k1", "v1", "skills", "k2", "v2"} <= _texts(document)
            assert str(2**70) in json.dumps(document)

    async def test_temp_keys_are_never_exported(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"temp:secret key": "secret value"})
        for document in (await made.export(), await cache.export_user("ada")):
            assert "secret" not in json.dumps(document)

    async def test_the_export_of_a_user_holds_sessions_and_shared_keys(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1", state={"k1": "v1", "user:k2": "v2"})
        second = await cache.create("ada", session_id="s2")
        await second.namespace("n").set("k3", "v3")
        await cache.create("bob", session_id="s3", state={"k4": "v4", "user:k5": "v5"})
        document = await cache.export_user("ada")
        assert json.loads(json.dumps(document, allow_nan=False)) == document
        texts = _texts(document)
        assert {"s1", "s2", "k1", "v1", "k2", "v2", "k3", "v3"} <= texts
        assert not texts & {"s3", "k4", "v4", "k5", "v5"}

    async def test_a_missing_session_cannot_be_exported(self, cache: Cache) -> None:
        made = await cache.create("ada", session_id="s1")
        await raised(SessionNotFoundError, cache.export_session("bob", "s1"))
        await cache.delete("ada", "s1")
        await raised(SessionNotFoundError, cache.export_session("ada", "s1"))
        await raised(SessionNotFoundError, made.export())


class TestErasing(Conformance):
    """cache.erase_user."""

    async def test_nothing_of_the_user_is_left(self, cache: Cache) -> None:
        first = await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1, "temp:t": 1})
        await first.namespace("n").set("x", 1)
        await cache.flush()
        await cache.create("ada", session_id="s2", state={"b": 1})
        report = await cache.erase_user("ada")
        assert report.sessions == 2
        assert report.entries >= 4
        for session_id in ("s1", "s2"):
            await raised(SessionNotFoundError, cache.get("ada", session_id))
        assert (await cache.list("ada")).items == []
        assert (await cache.list()).items == []
        assert await cache.user_scope("ada").get("u") is None

    async def test_other_users_and_the_app_keep_theirs(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1, "app:p": 1})
        await cache.create("bob", session_id="s1", state={"a": 2, "user:u": 2})
        await cache.bound_to(app="other").create("ada", session_id="s1", state={"a": 3, "user:u": 3})
        await cache.erase_user("ada")
        assert dict((await cache.get("bob", "s1")).state) == {"a": 2, "user:u": 2, "app:p": 1}
        elsewhere = await cache.bound_to(app="other").get("ada", "s1")
        assert dict(elsewhere.state) == {"a": 3, "user:u": 3}

    async def test_an_old_handle_brings_nothing_back(self, cache: Cache) -> None:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        space = made.namespace("n")
        await space.set("x", 1)
        await cache.erase_user("ada")
        for call in (made.set("a", 2), made.set("user:u", 2), made.set("temp:t", 2), space.set("x", 2), made.touch()):
            await raised(SessionCacheError, call)
        assert (await cache.list("ada")).items == []
        assert await cache.user_scope("ada").get("u") is None

    async def test_erasing_nobody_tells_so(self, cache: Cache) -> None:
        report = await cache.erase_user("nobody")
        assert (report.sessions, report.entries) == (0, 0)
