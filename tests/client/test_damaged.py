"""What is stored of a key and is no JSON text: told by session and key, never by its value; all else goes on."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessioncache import DamagedValueError, Session, SessionCache, SessionStateTool, TypeMismatchError
from sessioncache.primitives.scopes import ScopeRef, namespace_ref
from tests.client.conftest import cache, urls
from tests.helpers import Urls, execute, raw, scope_key, session, settle, user

__all__ = ["cache", "urls"]

SECRET = "hunter2"
TEXTS = [f'{{"{SECRET}": 1', f"NaN{SECRET}", f'"{SECRET}\xff"', "[" * 100_000, "Infinity", "1 2"]


def damage(urls: Urls, scope: ScopeRef, key: str, text: str = TEXTS[0]) -> None:
    """Leave something else than JSON in a scope's hash, under the revision that the key has."""
    with raw(urls.redis) as client:
        value: Any = client.hget(scope_key(scope), f"={key}")
        assert value
        client.hset(scope_key(scope), f"={key}", value[:9] + text.encode("latin-1"))


async def damaged(urls: Urls, cache: SessionCache) -> Session:
    """A session of which one key in each scope is damaged."""
    made = await cache.create("ada", session_id="s1", state={"good": 1, "bad": 2, "user:good": 3, "user:bad": 4})
    await made.namespace("skills").update({"good": 5, "bad": 6})
    for scope in (session("ada", "s1"), user("ada"), namespace_ref(session("ada", "s1"), "skills")):
        damage(urls, scope, "bad")
    await made.refresh()
    return made


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:12])
async def test_whoever_reads_it_is_told_session_and_key(urls: Urls, cache: SessionCache, text: str) -> None:
    made = await cache.create("ada", session_id="s1", state={"bad": 1, "good": 2})
    damage(urls, session("ada", "s1"), "bad", text)
    found = await cache.get("ada", "s1")
    calls: list[Callable[[], Awaitable[Any]]] = [lambda: made.get("bad"), lambda: made.increment("bad")]
    for call in calls:
        with pytest.raises(DamagedValueError, match=r"of the key 'bad' of the session 's1' is no JSON") as told:
            await call()
        assert (told.value.session_id, told.value.key) == ("s1", "bad")
        assert SECRET not in repr(vars(told.value)) + str(told.value)
        assert pickle.loads(pickle.dumps(told.value)).key == "bad"
    with pytest.raises(DamagedValueError):
        found.state["bad"]
    assert found.state["good"] == 2
    await found.set("bad", 3)
    assert (await made.get("bad"), found.state["bad"]) == (3, 3)


async def test_an_append_to_it_is_refused_or_told(urls: Urls, cache: SessionCache) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1, "b": [1]})
    damage(urls, session("ada", "s1"), "a", "{")
    damage(urls, session("ada", "s1"), "b", "[1,}]")
    with pytest.raises(TypeMismatchError):
        await made.append("a", 1)
    with pytest.raises(DamagedValueError):
        await made.append("b", 1)


async def test_shared_scopes_namespaces_and_drafts_tell_it_too(urls: Urls, cache: SessionCache) -> None:
    made = await damaged(urls, cache)
    with pytest.raises(DamagedValueError) as told:
        await cache.user_scope("ada").get("bad")
    assert (told.value.session_id, told.value.key) == ("", "bad")
    with pytest.raises(DamagedValueError) as told:
        made.state["user:bad"]
    assert (told.value.session_id, told.value.key) == ("s1", "user:bad")
    with pytest.raises(DamagedValueError) as told:
        await made.namespace("skills").get("bad")
    assert (told.value.session_id, told.value.key) == ("s1", "bad")
    with pytest.raises(DamagedValueError):
        async with made.edit() as draft:
            draft["bad"]["x"] = 1
    async with made.edit() as draft:
        draft["bad"] = "mended"
        draft["good"] = 7
    assert (await made.get("bad"), await made.get("good")) == ("mended", 7)


async def test_lists_of_keys_records_and_exports_go_on_with_the_rest(
    urls: Urls, cache: SessionCache, caplog: pytest.LogCaptureFixture
) -> None:
    made = await damaged(urls, cache)
    with caplog.at_level(logging.WARNING):
        assert [(one.key, one.value) for one in await made.records()] == [("good", 1)]
        assert await made.namespace("skills").items() == [("good", 5)]
    assert "1 keys of the session 's1' are left out" in caplog.text
    assert "the namespace 'skills' of the session 's1'" in caplog.text
    assert SECRET not in caplog.text
    document = await cache.export_session("ada", "s1")
    assert (document["state"], document["namespaces"]) == ({"good": 1}, {"skills": {"good": 5}})
    assert document["damaged"] == [{"namespace": "", "key": "bad"}, {"namespace": "skills", "key": "bad"}]
    whole = await cache.export_user("ada")
    assert (whole["state"], whole["damaged"], whole["sessions"]) == ({"good": 3}, ["bad"], [document])
    json.dumps(whole, allow_nan=False)
    assert [one.id for one in (await cache.list("ada")).items] == ["s1"]


async def test_the_tool_goes_on_with_the_rest(urls: Urls, cache: SessionCache) -> None:
    tool = SessionStateTool(await damaged(urls, cache))
    listed = await tool.call({"operation": "list", "namespace": "skills"})
    assert listed == {"entries": [{"key": "good", "value": "5"}], "damaged": ["bad"]}
    got = await tool.reply({"operation": "get", "namespace": "skills", "key": "bad"})
    assert "set it again, or delete it" in json.loads(got)["error"]
    assert (await tool.call({"operation": "set", "namespace": "skills", "key": "bad", "value": "x"})) == {"ok": True}
    assert (await tool.call({"operation": "get", "namespace": "skills", "key": "bad"})) == {"value": "x"}


async def test_what_is_damaged_in_sql_is_told_when_it_is_read(urls: Urls, cache: SessionCache) -> None:
    await cache.create("ada", session_id="s1", state={"good": 1, "bad": 2})
    await settle(urls)
    execute(urls.database, "UPDATE sessioncache_state SET value = ? WHERE key = ?", TEXTS[0], "bad")
    found = await cache.get("ada", "s1")
    assert found.state["good"] == 1
    with pytest.raises(DamagedValueError):
        found.state["bad"]
    assert (await cache.export_session("ada", "s1"))["damaged"] == [{"namespace": "", "key": "bad"}]
    await found.delete("bad")
    assert dict(found.state) == {"good": 1}
