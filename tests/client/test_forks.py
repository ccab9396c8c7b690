"""Forks: a new session of the same user with the parent's private keys and namespaces, in one step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessioncache import (
    FlushTimeoutError,
    InvalidNameError,
    LimitExceededError,
    OutcomeUnknownError,
    Session,
    SessionCache,
    SessionExistsError,
    SessionNotFoundError,
    WriteLostError,
)
from sessioncache.hot import limits
from tests.helpers import (
    Urls,
    connect,
    drain,
    evict,
    raw,
    session,
    settle,
    stored_namespaces,
    stored_values,
)
from tests.proxy import Proxy
from tests.waiting import wait_until_async

PLAIN: dict[str, Any] = {"a": 1, "b": [1.0, {"x": None}], "big": 2**70, "é": "\0\ud800"}
SPACES: dict[str, dict[str, Any]] = {"skills": {"k": {"n": 1}, "user:k": 2}, "tools": {"t": "\ud800"}}
SHARED: dict[str, Any] = {"user:u": 1, "app:p": 1}


@pytest.fixture
async def parent(cache: SessionCache) -> Session:
    """A session with values in every scope, counters and a title."""
    return await make_parent(cache)


async def make_parent(cache: SessionCache) -> Session:
    """A session with values in every scope, deleted ones too, counters and a title."""
    made = await cache.create("ada", session_id="p", state={**PLAIN, **SHARED, "gone": 1, "temp:t": 1}, title="A trip")
    for name, values in SPACES.items():
        await made.namespace(name).update({**values, "gone": 1})
        await made.namespace(name).delete("gone")
    await made.namespace("emptied").set("k", 1)
    await made.namespace("emptied").clear()
    await made.delete("gone")
    await made.touch(messages=3, tokens=30)
    return made


async def whole(cache: SessionCache, session_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """State and namespaces of a session, as a new handle reads them."""
    found = await cache.get("ada", session_id)
    spaces = {name: dict(await found.namespace(name).items()) for name in (*SPACES, "emptied")}
    return dict(found.state), {name: values for name, values in spaces.items() if values}


@pytest.mark.parametrize("where", ["unflushed", "flushed", "cold", "namespaces cold", "partly flushed"])
async def test_a_fork_has_all_that_is_private_to_its_parent(
    cache: SessionCache, parent: Session, urls: Urls, where: str
) -> None:
    if where != "unflushed":
        await drain(urls)
    if where == "cold":
        evict(urls.redis)
    if where == "namespaces cold":
        with raw(urls.redis) as client:
            client.delete(*client.keys("sessioncache:*:h:n*"))
    expected = {name: dict(values) for name, values in SPACES.items()}
    if where == "partly flushed":
        await parent.namespace("tools").set("late", 1)
        expected["tools"]["late"] = 1
    before = (await cache.get("ada", "p")).info
    child = await cache.fork("ada", "p", new_id="c")
    assert dict(child.state) == {**PLAIN, **SHARED}
    for _ in range(2):
        assert await whole(cache, "c") == ({**PLAIN, **SHARED}, expected)
        assert (await cache.get("ada", "p")).info == before, "the parent is as it was"
        assert {one.id for one in (await cache.list("ada")).items} == {"p", "c"}
        await settle(urls)
    assert stored_namespaces(urls.database, session("ada", "c")) == {"": PLAIN, **expected}
    assert stored_namespaces(urls.database, session("ada", "p")) == {"": PLAIN, **expected}


async def test_what_lists_show_of_a_fork(cache: SessionCache, parent: Session, urls: Urls) -> None:
    child = await parent.fork(new_id="c")
    told = child.info
    assert (told.id, told.user, told.app, told.org, told.forked_from) == ("c", "ada", "app", "", "p")
    assert (told.title, told.message_count, told.token_total) == ("A trip", 0, 0)
    assert told.created_at == told.updated_at > parent.updated_at
    assert parent.info.forked_from is None
    assert (await cache.list("ada")).items[0] == told
    await settle(urls)
    assert (await cache.get("ada", "c")).info == told
    await parent.rename("Another")
    assert (await cache.get("ada", "c")).title == "A trip"
    assert (await child.touch(messages=1, first_message="Hello")).title == "A trip"
    untitled = await cache.create("ada", session_id="untitled")
    assert (await (await untitled.fork()).touch(first_message="Hello")).title == "Hello"


async def test_a_fork_of_a_fork_names_its_own_parent(cache: SessionCache, parent: Session) -> None:
    child = await parent.fork()
    assert child.id.startswith("sess_")
    grandchild = await child.fork(new_id="g")
    assert grandchild.forked_from == child.id
    assert await whole(cache, "g") == ({**PLAIN, **SHARED}, SPACES)


async def test_parent_and_fork_lead_lives_of_their_own(cache: SessionCache, parent: Session, urls: Urls) -> None:
    child = await parent.fork(new_id="c")
    await parent.update({"a": "parent"}, delete=["b"])
    await parent.namespace("skills").set("k", "parent")
    await parent.namespace("new").set("k", "parent")
    await child.update({"a": "child", "mine": 1}, delete=["big"])
    await child.namespace("skills").delete("k")
    await child.namespace("tools").clear()
    await parent.touch(tokens=1)
    for _ in range(2):
        state, spaces = await whole(cache, "p")
        assert (state["a"], spaces) == ("parent", {**SPACES, "skills": {"k": "parent", "user:k": 2}})
        state, spaces = await whole(cache, "c")
        assert (state["a"], state["mine"], spaces) == ("child", 1, {"skills": {"user:k": 2}})
        assert (await cache.get("ada", "c")).token_total == 0
        assert await (await cache.get("ada", "c")).namespace("new").items() == []
        await settle(urls)
    await cache.delete("ada", "p")
    await settle(urls)
    assert (await whole(cache, "c"))[1] == {"skills": {"user:k": 2}}
    assert (await cache.get("ada", "c")).forked_from == "p"


async def test_a_parent_deleted_before_any_flush_leaves_its_fork_whole(
    cache: SessionCache, parent: Session, urls: Urls
) -> None:
    await parent.fork(new_id="c")
    await cache.delete("ada", "p")
    await settle(urls)
    assert await whole(cache, "c") == ({**PLAIN, **SHARED}, SPACES)
    assert stored_values(urls.database, session("ada", "p")) is None


async def test_a_fork_shares_what_is_shared_and_no_temp_keys(cache: SessionCache, parent: Session, urls: Urls) -> None:
    before = await cache.user_scope("ada").get("u"), cache.user_scope("ada")
    child = await parent.fork(new_id="c")
    assert await child.get("temp:t") is None
    await child.set("temp:t", "child")
    assert await parent.get("temp:t") == 1
    await child.set("user:u", 2)
    assert (before[0], await parent.get("user:u")) == (1, 2)
    await settle(urls)
    assert "t" not in (stored_values(urls.database, session("ada", "c")) or {})


@pytest.mark.parametrize("where", ["unflushed", "flushed", "cold"])
async def test_a_fork_under_a_taken_id_is_refused_and_nothing_is_changed(
    cache: SessionCache, parent: Session, urls: Urls, where: str
) -> None:
    taken = await cache.create("ada", session_id="c", state={"mine": 1})
    await taken.namespace("skills").set("mine", 1)
    if where != "unflushed":
        await drain(urls)
    if where == "cold":
        evict(urls.redis)
    for name in ("c", "p"):
        with pytest.raises(SessionExistsError) as told:
            await cache.fork("ada", "p", new_id=name)
        assert told.value.session_id == name
    assert await whole(cache, "c") == ({"mine": 1, **SHARED}, {"skills": {"mine": 1}})
    assert await whole(cache, "p") == ({**PLAIN, **SHARED, "temp:t": 1}, SPACES)
    await settle(urls)
    assert stored_namespaces(urls.database, session("ada", "c")) == {"": {"mine": 1}, "skills": {"mine": 1}}
    assert await (await cache.create("bob", session_id="p")).fork(new_id="c")


@pytest.mark.parametrize("where", ["unflushed", "flushed", "cold"])
async def test_a_fork_under_the_id_of_a_deleted_session_has_nothing_of_it(
    cache: SessionCache, parent: Session, urls: Urls, where: str
) -> None:
    old = await cache.create("ada", session_id="c", state={"old": 1, "a": "old", "temp:t": "old"})
    await old.namespace("skills").update({"old": 1, "k": "old"})
    await old.namespace("emptied").set("old", 1)
    if where != "unflushed":
        await drain(urls)
    await cache.delete("ada", "c")
    if where == "cold":
        await settle(urls)
    child = await parent.fork(new_id="c")
    assert child.created_at > old.created_at
    for _ in range(2):
        assert await whole(cache, "c") == ({**PLAIN, **SHARED}, SPACES)
        with pytest.raises(SessionNotFoundError):
            await old.namespace("skills").get("k")
        await settle(urls)
    assert stored_namespaces(urls.database, session("ada", "c")) == {"": PLAIN, **SPACES}


async def test_a_fork_is_of_the_handles_life(cache: SessionCache, parent: Session, urls: Urls) -> None:
    await cache.delete("ada", "p")
    with pytest.raises(SessionNotFoundError):
        await parent.fork(new_id="c")
    again = await cache.create("ada", session_id="p", state={"new": 1})
    with pytest.raises(SessionNotFoundError):
        await parent.fork(new_id="c")
    assert {one.id for one in (await cache.list("ada")).items} == {"p"}
    await again.fork(new_id="c")
    assert await whole(cache, "c") == ({"new": 1, **SHARED}, {}), "no namespaces of the parent's earlier life"
    await settle(urls)
    assert stored_namespaces(urls.database, session("ada", "c")) == {"": {"new": 1}}


@pytest.mark.parametrize("name", ["", "x" * 257, "a\0b", "\ud800", 1])
async def test_a_wrong_id_for_a_fork_is_refused(cache: SessionCache, parent: Session, name: Any) -> None:
    for call in (cache.fork("ada", "p", new_id=name), parent.fork(new_id=name)):
        with pytest.raises(InvalidNameError):
            await call


async def test_forks_at_once_while_the_parent_is_written_are_each_of_one_moment(
    cache: SessionCache, urls: Urls
) -> None:
    made = await cache.create("ada", session_id="p", state={"n": 0, "m": 0})
    skills = made.namespace("skills")
    await skills.update({"n": 0, "m": 0})

    async def write() -> None:
        for number in range(1, 60):
            await made.update({"n": number, "m": number})
            await skills.update({"n": number, "m": number})

    async with connect(urls) as other:
        writing = asyncio.ensure_future(write())
        forks = await asyncio.gather(*(one.fork("ada", "p") for _ in range(20) for one in (cache, other)))
        await writing
    seen = set()
    await settle(urls)
    for fork in forks:
        found = await cache.get("ada", fork.id)
        state, space = dict(found.state), dict(await found.namespace("skills").items())
        assert state["n"] == state["m"]
        assert space["n"] == space["m"]
        assert state["n"] - space["n"] in (0, 1), "both as they were at one moment"
        seen.add(fork.id)
    assert len(seen) == 40


async def test_a_namespace_that_comes_into_being_during_a_fork_is_not_half_forked(
    cache: SessionCache, urls: Urls
) -> None:
    made = await cache.create("ada", session_id="p")

    async def write() -> None:
        for number in range(40):
            await made.namespace(f"n{number}").set("k", number)
            await made.set("last", number)

    writing = asyncio.ensure_future(write())
    forks = []
    while not writing.done():
        forks.append(await cache.fork("ada", "p"))
    await writing
    await settle(urls)
    for fork in forks:
        stored = stored_namespaces(urls.database, session("ada", fork.id)) or {}
        last = stored.pop("", {}).get("last", -1)
        assert set(stored) - {f"n{last + 1}"} == {f"n{number}" for number in range(last + 1)}


# ---- flush


async def test_flush_of_a_fork_is_true(cache: SessionCache, parent: Session, urls: Urls) -> None:
    await drain(urls)
    child = await parent.fork(new_id="c")
    for flush in (child.flush, cache.flush):
        with pytest.raises(FlushTimeoutError):
            await flush(0.05)
    await drain(urls)
    await child.flush(5)
    await cache.flush(60)
    assert stored_namespaces(urls.database, session("ada", "c")) == {"": PLAIN, **SPACES}


async def test_flush_tells_of_a_fork_that_redis_lost(cache: SessionCache, parent: Session, urls: Urls) -> None:
    await drain(urls)
    await cache.flush(60)
    child = await parent.fork(new_id="c")
    with raw(urls.redis) as client:
        client.flushall()
    with pytest.raises(WriteLostError):
        await child.flush(60)
    with pytest.raises(SessionNotFoundError):
        await cache.get("ada", "c")
    assert await whole(cache, "p") == ({**PLAIN, **SHARED}, SPACES)


# ---- interrupted forks


async def nothing_or_whole(urls: Urls, session_id: str) -> bool:
    """Whether the fork is there, and then whole, in both tiers; a new cache looks."""
    async with connect(urls) as cache:
        found = session_id in {one.id for one in (await cache.list("ada")).items}
        for _ in range(2):
            if found:
                state, spaces = await whole(cache, session_id)
                assert {key: state[key] for key in PLAIN} == PLAIN
                assert spaces == SPACES
            else:
                with pytest.raises(SessionNotFoundError):
                    await cache.get("ada", session_id)
            await settle(urls)
        expected = {"": PLAIN, **SPACES} if found else None
        assert stored_namespaces(urls.database, session("ada", session_id)) == expected
        return found


async def test_a_cancelled_fork_leaves_nothing_or_a_whole_one(cache: SessionCache, parent: Session, urls: Urls) -> None:
    await settle(urls)
    outcomes = []
    for steps in range(0, 120, 8):
        forking = asyncio.ensure_future(cache.fork("ada", "p", new_id=f"c{steps}"))
        for _ in range(steps):
            await asyncio.sleep(0)
        forking.cancel()
        await asyncio.gather(forking, return_exceptions=True)
        outcomes.append(await nothing_or_whole(urls, f"c{steps}"))
        again = await cache.get_or_create("ada", f"c{steps}")
        assert again[1] is not outcomes[-1], "the id is free at once where nothing was left"
    assert not all(outcomes)


@pytest.fixture
async def proxy(urls: Urls) -> AsyncIterator[Proxy]:
    """A proxy in front of Redis."""
    async with Proxy(urls.redis.removeprefix("unix://")) as opened:
        yield opened


async def answers(proxy: Proxy, most: int, call: asyncio.Future[Any]) -> None:
    """Wait for some answers of the server, or for the end of the call."""
    for _ in range(most):
        before = proxy.answered
        await wait_until_async(lambda: proxy.answered > before or call.done(), 5, "an answer")  # noqa: B023


@pytest.mark.parametrize("cancelled", [False, True], ids=["cut", "cancelled"])
async def test_a_fork_whose_connections_are_cut_leaves_nothing_or_a_whole_one(
    urls: Urls, parent: Session, proxy: Proxy, cancelled: bool
) -> None:
    outcomes = []
    async with connect(Urls(f"redis://127.0.0.1:{proxy.port}/0", urls.database), timeout=10) as cut_off:
        await cut_off.get("ada", "p")
        for number in range(5):
            forking = asyncio.ensure_future(cut_off.fork("ada", "p", new_id=f"c{number}"))
            await answers(proxy, number, forking)
            proxy.cut()
            if cancelled:
                forking.cancel()
            done: Any = (await asyncio.gather(forking, return_exceptions=True))[0]
            assert isinstance(done, Session | OutcomeUnknownError | asyncio.CancelledError)
            outcomes.append(await nothing_or_whole(urls, f"c{number}"))
            assert outcomes[-1] or not isinstance(done, Session)
    if not cancelled:
        assert all(outcomes), "repeated, once each"


async def test_a_fork_that_is_never_answered_is_told_to_be_unknown(urls: Urls, parent: Session, proxy: Proxy) -> None:
    async with connect(Urls(f"redis://127.0.0.1:{proxy.port}/0", urls.database), timeout=1) as cut_off:
        await cut_off.fork("ada", "p", new_id="warm")  # the server has the script
        link = cut_off._tiers.link
        call = link.call

        async def hold(script: Any, *arguments: Any) -> Any:
            if script.name == "fork":
                proxy.hold_answers()
            return await call(script, *arguments)

        link.call = hold
        with pytest.raises(OutcomeUnknownError):
            await cut_off.fork("ada", "p")
        proxy.resume()
        (made,) = [one.id for one in (await cut_off.list("ada")).items if one.id not in ("p", "warm")]
    assert await nothing_or_whole(urls, made) is True


async def test_a_session_of_too_many_namespaces_is_not_forked(
    cache: SessionCache, parent: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_FORK_NAMESPACES", 3)
    for number in range(4):
        await parent.namespace(f"more{number}").set("a", 1)
    with pytest.raises(LimitExceededError, match="namespaces, a fork copies at most 3: nothing was written"):
        await parent.fork(new_id="other")
    with pytest.raises(SessionNotFoundError):
        await cache.get("ada", "other")
