"""The agent tool over real tiers: each reply, the sessions it works for, and all that it cannot reach."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sessioncache import (
    ConfigurationError,
    HotTierUnavailableError,
    InvalidNameError,
    InvalidValueError,
    NoSessionError,
    Session,
    SessionCache,
    SessionNotFoundError,
    SessionStateTool,
    StaleLeaseError,
    sync,
)
from tests.conftest import StartRedis
from tests.helpers import Urls, connect, drain, evict, session, settle, stored_namespaces, upgrade
from tests.tool.world import FOREIGN_ARGUMENTS, HOSTILE_NAMES, REFUSED_NAMES, SPACE, make_surroundings, snapshot
from tests.waiting import stretched

RECORDED: list[tuple[str, str]] = [
    ('{"operation": "list", "namespace": "plan"}', '{"entries": []}'),
    ('{"operation": "get", "namespace": "plan", "key": "step", "value": null}', '{"value": null}'),
    ('{"operation": "set", "namespace": "plan", "key": "step", "value": "1"}', '{"ok": true}'),
    ('{"operation": "set", "namespace": "plan", "key": "goal", "value": "book ✈"}', '{"ok": true}'),
    ('{"operation": "set", "namespace": "seats", "key": "step", "value": ""}', '{"ok": true}'),
    ('{"operation": "get", "namespace": "plan", "key": "step"}', '{"value": "1"}'),
    ('{"operation": "get", "namespace": "seats", "key": "step"}', '{"value": ""}'),
    (
        '{"operation": "list", "namespace": "plan"}',
        '{"entries": [{"key": "goal", "value": "book ✈"}, {"key": "step", "value": "1"}]}',
    ),
    ('{"operation": "remember", "namespace": "plan"}', '{"error": "unknown operation'),
    ('{"operation": "set", "namespace": "plan", "key": "step"}', '{"error": "value is missing'),
    ('{"operation": "set", "key": "step", "value": "2"}', '{"error": "namespace is missing'),
    ('{"operation": "get", "namespace": "plan"}', '{"error": "key is missing'),
    ('{"namespace": "plan"}', '{"error": "operation is missing'),
    ('{"operation": "set", "namespace": "plan", "key": "step", "value": 2}', '{"error": "value must be a string'),
    ('{"operation": "clear", "namespace": "plan", "key": "step"}', '{"error": "clear takes no key'),
    ('{"operation": "list", "namespace": "plan", "session_id": "s2"}', '{"error": "unknown arguments'),
    ('{"operation": "list", "namespace": ', '{"error": "the arguments are not JSON'),
    ('{"operation": "delete", "namespace": "plan", "key": "step"}', '{"deleted": true}'),
    ('{"operation": "delete", "namespace": "plan", "key": "step"}', '{"deleted": false}'),
    ('{"operation": "clear", "namespace": "plan"}', '{"deleted": 1}'),
    ('{"operation": "clear", "namespace": "plan"}', '{"deleted": 0}'),
    ('{"operation": "list", "namespace": "seats"}', '{"entries": [{"key": "step", "value": ""}]}'),
]
"""A model's calls in their order, with the reply to each (of an error, its beginning)."""


def ask(operation: str, namespace: str = "n", **rest: Any) -> dict[str, Any]:
    """What a model sends."""
    return {"operation": operation, "namespace": namespace, **rest}


@pytest.fixture
async def made(small_cache: SessionCache) -> Session:
    """A session."""
    return await small_cache.create("ada", session_id="s1")


async def check_loop(tool: SessionStateTool, urls: Urls, *, cold: bool) -> None:
    """Make the recorded calls; `cold`: each finds its namespace in SQL alone."""
    for arguments, reply in RECORDED:
        said = await tool.reply(arguments)
        assert said == reply or (reply.startswith('{"error"') and said.startswith(reply)), arguments
        json.loads(said)
        if cold:
            await drain(urls)
            evict(urls.redis)
    await settle(urls)
    assert stored_namespaces(urls.database, session("ada", "s1")) == {"seats": {"step": ""}}


async def test_a_function_calling_loop_gets_each_reply(cache: SessionCache, urls: Urls) -> None:
    tool = SessionStateTool(await cache.create("ada", session_id="s1"))
    await check_loop(tool, urls, cold=False)


async def test_a_loop_gets_each_reply_also_where_all_was_evicted(made: Session, small_urls: Urls) -> None:
    await check_loop(SessionStateTool(made), small_urls, cold=True)


async def test_nothing_a_model_sends_reaches_beyond_its_namespaces(cache: SessionCache, urls: Urls) -> None:
    mine = await make_surroundings(cache, urls)
    tool = SessionStateTool(mine)
    before = snapshot(urls, HOSTILE_NAMES)
    for name in HOSTILE_NAMES:
        assert await tool.call(ask("list", name)) == {"entries": []}, "what others have is not seen"
        assert await tool.call(ask("get", name, key="x")) == {"value": None}
        assert await tool.call(ask("delete", name, key="x")) == {"deleted": False}
        assert await tool.call(ask("clear", name)) == {"deleted": 0}
        for key in ("x", name):
            assert await tool.call(ask("set", name, key=key, value="theirs")) == {"ok": True}
    await drain(urls)
    assert snapshot(urls, HOSTILE_NAMES) == before
    for name in HOSTILE_NAMES:
        assert (await tool.call(ask("get", name, key=name)))["value"] == "theirs"
        assert await tool.call(ask("clear", name)) == {"deleted": 2}
    await drain(urls)
    assert snapshot(urls, HOSTILE_NAMES) == before


async def test_what_is_refused_does_nothing_at_all(small_cache: SessionCache, small_urls: Urls) -> None:
    tool = SessionStateTool(await make_surroundings(small_cache, small_urls))
    before = snapshot(small_urls, ())
    refused = [ask(operation, name, key="x", value="v") for name in REFUSED_NAMES for operation in ("get", "set")]
    refused += [ask("set", SPACE, key=name, value="v") for name in REFUSED_NAMES]
    refused += [ask("clear", SPACE) | {name: "s2"} for name in FOREIGN_ARGUMENTS]
    refused += [ask("clear", SPACE, key="x"), ask("set", SPACE, key="x"), ask("set", SPACE, key="x", value=1)]
    for arguments in refused:
        with pytest.raises((InvalidNameError, InvalidValueError)):
            await tool.call(arguments)
    await drain(small_urls)
    assert snapshot(small_urls, ()) == before


async def test_a_tool_without_a_session_works_for_the_ambient_one(small_cache: SessionCache) -> None:
    tool = SessionStateTool()
    with pytest.raises(NoSessionError):
        await tool.call(ask("set", key="k", value="nobody's"))
    with pytest.raises(NoSessionError):
        await tool.reply(ask("set", key="k", value="nobody's"))
    for session_id in ("s1", "s2"):
        await small_cache.create("ada", session_id=session_id)
        async with small_cache.resume(session_id):
            await tool.call(ask("set", key="k", value=session_id))
    for session_id in ("s1", "s2"):
        async with small_cache.resume(session_id) as one:
            assert await tool.call(ask("list")) == {"entries": [{"key": "k", "value": session_id}]}
            assert await one.namespace("n").items() == [("k", session_id)]


async def test_what_is_no_session_of_this_api_is_refused(small_urls: Urls, made: Session) -> None:
    with sync.SessionCache.connect(*small_urls, app="app", timeout=stretched(5.0)) as other:
        theirs = other.get("ada", "s1")
        for wrong in (theirs, "s1", object()):
            with pytest.raises(ConfigurationError):
                SessionStateTool(wrong)  # type: ignore[arg-type]
        with theirs.bind(), pytest.raises(ConfigurationError):
            await SessionStateTool().call(ask("list"))
        with pytest.raises(ConfigurationError):
            sync.SessionStateTool(made)  # type: ignore[arg-type]


async def test_a_model_of_a_former_life_is_told_that_it_is_over(small_cache: SessionCache, made: Session) -> None:
    tool = SessionStateTool(made)
    await tool.call(ask("set", key="k", value="old"))
    await small_cache.delete("ada", "s1")
    new = await small_cache.create("ada", session_id="s1")
    for arguments in (ask("get", key="k"), ask("set", key="k", value="old"), ask("list"), ask("clear")):
        with pytest.raises(SessionNotFoundError):
            await tool.call(arguments)
        assert json.loads(await tool.reply(arguments)) == {"error": "this session does not exist any more"}
    assert await new.namespace("n").items() == []


async def test_under_a_lease_what_a_model_writes_is_fenced(small_cache: SessionCache, made: Session) -> None:
    async with made.lease(ttl=30) as held:
        tool = SessionStateTool(held)
        await tool.call(ask("set", key="k", value="held"))
    assert await tool.call(ask("get", key="k")) == {"value": "held"}
    for write in (tool.call, tool.reply):
        with pytest.raises(StaleLeaseError):
            await write(ask("set", key="k", value="late"))
    assert await SessionStateTool(made).call(ask("get", key="k")) == {"value": "held"}


async def test_a_long_loop_leaves_no_more_to_flush_than_its_namespaces(
    small_cache: SessionCache, made: Session, small_urls: Urls
) -> None:
    tool = SessionStateTool(made)
    for number in range(100):
        await tool.call(ask("set", f"n{number % 4}", key="k", value=str(number)))
    assert len(small_cache._all_unflushed) <= 5
    await drain(small_urls)
    await small_cache.flush(60)


async def test_a_model_is_told_when_redis_is_away(start_redis: StartRedis, sqlite_url: str) -> None:
    await upgrade(sqlite_url)
    server = start_redis(tcp=True)
    async with connect(Urls(server.url, sqlite_url), timeout=0.5) as cache:
        tool = SessionStateTool(await cache.create("ada"))
        server.kill()
        told = json.loads(await tool.reply(ask("get", key="k")))
        assert "out of reach" in told["error"]
        assert str(server.port) not in told["error"]
        with pytest.raises(HotTierUnavailableError):
            await tool.call(ask("get", key="k"))


async def test_a_text_with_a_lone_surrogate_comes_back(made: Session) -> None:
    tool = SessionStateTool(made)
    await tool.call(ask("set", key="k", value="é\ud800"))
    assert await tool.call(ask("get", key="k")) == {"value": "é\ud800"}
    assert json.loads(await tool.reply(ask("get", key="k"))) == {"value": "é\ud800"}


def test_the_schema_is_the_callers_to_change() -> None:
    tool = SessionStateTool()
    changed = tool.schema
    changed["parameters"]["properties"]["session_id"] = {"type": "string"}
    assert set(tool.schema["parameters"]["properties"]) == {"operation", "namespace", "key", "value"}
    assert tool.schema["name"] == tool.name == "session_state"
