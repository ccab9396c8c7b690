"""R4: whatever the network does, a call is applied once; its caller gets the result, or is told that none is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from sessioncache import OutcomeUnknownError, Session, SessionCache, SessionNotFoundError
from tests.helpers import Urls, connect, drain, evict, raw, upgrade
from tests.proxy import Proxy
from tests.servers import RedisServer
from tests.waiting import wait_until_async

TIMEOUT = 3.0
LONGER_THAN_AN_ATTEMPT = 0.5 * TIMEOUT


@pytest.fixture(params=["valkey", "redis_server"])
def server(request: pytest.FixtureRequest) -> RedisServer:
    """Each engine, empty."""
    found: RedisServer = request.getfixturevalue(request.param)
    with found.client() as client:
        client.flushall()
    return found


@pytest.fixture
async def proxy(server: RedisServer) -> AsyncIterator[Proxy]:
    """A proxy in front of the engine."""
    async with Proxy(server.socket) as opened:
        yield opened


@pytest.fixture
async def cache(proxy: Proxy, sqlite_url: str) -> AsyncIterator[SessionCache]:
    """A cache behind the proxy; Redis knows the scripts."""
    await upgrade(sqlite_url)
    async with connect(Urls(f"redis://127.0.0.1:{proxy.port}/0", sqlite_url), timeout=TIMEOUT) as opened:
        await opened.create("ada", session_id="warm")
        await opened.delete("ada", "warm")
        yield opened


@pytest.fixture
async def made(cache: SessionCache) -> Session:
    """A session to change."""
    await cache.create("ada", session_id="doomed")
    session = await cache.create("ada", session_id="s1", state={"n": 0, "list": [1], "gone": 1, "set": 0})
    await session.increment("n", 0)
    return session


def changes(cache: SessionCache, made: Session) -> dict[str, Coroutine[Any, Any, Any]]:
    """One call of each kind that changes something."""
    return {
        "set": made.set("set", 1),
        "increment": made.increment("n"),
        "append": made.append("list", 2),
        "delete": made.delete("gone"),
        "create": cache.create("ada", title="new", state={"first": 1}),
        "delete session": cache.delete("ada", "doomed"),
    }


async def check_applied_once(cache: SessionCache, made: Session) -> None:
    """Every one of `changes` was applied exactly once."""
    state = dict((await cache.get("ada", made.id)).state)
    assert state == {"n": 1, "list": [1, 2], "set": 1}
    (new,) = [one for one in (await cache.list("ada")).items if one.title == "new"]
    assert dict((await cache.get("ada", new.id)).state) == {"first": 1}
    with pytest.raises(SessionNotFoundError):
        await cache.get("ada", "doomed")


async def all_delivered(server: RedisServer) -> None:
    """Wait until no connection is left that a client has given up: what it sent has been executed."""
    with raw(server.url) as client:
        await wait_until_async(
            lambda: client.info("clients")["connected_clients"] == 1, 10, "all that was held back is delivered"
        )


@pytest.mark.parametrize("how", ["hold_answers", "stall"])
async def test_r4_stalls_longer_than_an_attempt_apply_each_call_once_with_its_result(
    server: RedisServer, proxy: Proxy, cache: SessionCache, made: Session, how: str
) -> None:
    getattr(proxy, how)()
    calls = {name: asyncio.ensure_future(call) for name, call in changes(cache, made).items()}
    await asyncio.sleep(LONGER_THAN_AN_ATTEMPT)
    assert not any(call.done() for call in calls.values())
    proxy.resume()
    results = {name: await call for name, call in calls.items()}
    created = results.pop("create")
    assert (created.title, results.pop("set") > 0) == ("new", True)
    assert results == {"increment": 1, "append": 2, "delete": True, "delete session": True}
    await check_applied_once(cache, made)


@pytest.mark.parametrize("how", ["hold_answers", "stall"])
async def test_r4_without_an_answer_in_the_whole_time_out_the_outcome_is_unknown_and_applied_once(
    server: RedisServer, proxy: Proxy, cache: SessionCache, made: Session, how: str
) -> None:
    await asyncio.gather(*(made.get("n") for _ in range(12)))  # there are connections, so that the calls are sent
    getattr(proxy, how)()
    outcomes = await asyncio.gather(*changes(cache, made).values(), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknownError] * 6
    proxy.resume()
    await all_delivered(server)
    await check_applied_once(cache, made)


async def test_r4_a_cut_connection_costs_no_result(proxy: Proxy, made: Session) -> None:
    for expected in range(1, 21):
        proxy.hold_answers()
        before = proxy.answered
        running = asyncio.ensure_future(made.increment("n"))
        await wait_until_async(lambda: proxy.answered > before, 5, "the server answers")  # noqa: B023
        proxy.cut()
        proxy.resume()
        assert await running == expected


async def test_r4_an_increment_that_others_were_behind_has_its_number_though_the_connection_was_cut(
    server: RedisServer, proxy: Proxy, made: Session, sqlite_url: str
) -> None:
    async with connect(Urls(server.url, sqlite_url)) as other:
        rival = await other.get("ada", made.id)
        for expected in range(1, 12, 2):
            running = await _answer_held_back(proxy, made.increment("n"))
            assert await rival.increment("n") == expected + 1
            proxy.cut()
            proxy.resume()
            assert await running == expected


@pytest.mark.parametrize("name", ["touch", "rename", "set"])
async def test_r5_a_handle_stays_in_its_life_whatever_its_repeat_finds(
    server: RedisServer, proxy: Proxy, made: Session, sqlite_url: str, name: str
) -> None:
    changing: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "touch": lambda: made.touch(messages=1),
        "rename": lambda: made.rename("old"),
        "set": lambda: made.set("n", 5),
    }
    running = await _answer_held_back(proxy, changing[name]())
    async with connect(Urls(server.url, sqlite_url)) as other:
        await other.delete("ada", made.id)
        anew = await other.create("ada", session_id=made.id, state={"n": "of the new life"})
        proxy.cut()
        proxy.resume()
        with pytest.raises(SessionNotFoundError):
            await running
        for late in (made.set("n", "of the old life"), made.touch(messages=5), made.get("n")):
            with pytest.raises(SessionNotFoundError):
                await late
        await anew.refresh()
        assert (dict(anew.state), anew.message_count, anew.title) == ({"n": "of the new life"}, 0, "")


async def _answer_held_back(proxy: Proxy, call: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
    """A call that was carried out, and whose answer is on its way."""
    proxy.hold_answers()
    before = proxy.answered
    running = asyncio.ensure_future(call)
    await wait_until_async(lambda: proxy.answered > before, 5, "the server answers")
    return running


async def test_r4_a_repeat_whose_scope_was_evicted_meanwhile_is_applied_once(
    server: RedisServer, proxy: Proxy, cache: SessionCache, made: Session, sqlite_url: str
) -> None:
    """The first copy is under way for so long that the repeat finds the scope cold, and loads it."""
    scope = cache.user_scope("ada")
    await scope.set("n", 1)
    direct = Urls(server.url, sqlite_url)
    await made.get("n")
    proxy.stall()
    running = asyncio.ensure_future(scope.increment("n"))
    async with connect(direct) as other:
        await drain(direct)
        assert evict(server.url) > 0
        await asyncio.sleep(LONGER_THAN_AN_ATTEMPT)
        proxy.resume()
        assert await running == 2
        await made.get("n")
        assert await other.user_scope("ada").get("n") == 2


async def test_500_cancelled_calls_leave_no_connection_with_anothers_reply(proxy: Proxy, made: Session) -> None:
    await made.update({f"k{number}": number for number in range(50)})
    for _ in range(10):
        proxy.hold_answers()
        before = proxy.answered
        calls = [asyncio.ensure_future(made.get(f"k{number}")) for number in range(50)]
        await wait_until_async(lambda: proxy.answered > before, 5, "answers are under way")  # noqa: B023
        for call in calls:
            call.cancel()
        proxy.resume()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        assert await asyncio.gather(*(made.get(f"k{number}") for number in range(50))) == list(range(50))


async def test_500_calls_cancelled_at_any_step_leave_no_connection_with_anothers_reply(made: Session) -> None:
    await made.update({f"k{number}": number for number in range(50)})
    cancelled = 0
    for steps in range(10):
        calls: list[asyncio.Future[Any]] = []
        kinds: tuple[Callable[[str], Coroutine[Any, Any, Any]], ...] = (made.get, made.increment)
        for number in range(50):
            begin = kinds[number % 2]
            calls.append(asyncio.ensure_future(begin("n" if number % 2 else f"k{number}")))
        for call in calls:
            for _ in range(steps):
                await asyncio.sleep(0)
            cancelled += call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert await asyncio.gather(*(made.get(f"k{number}") for number in range(50))) == list(range(50))
    assert cancelled > 0
    assert 0 <= await made.get("n") <= 250


async def test_r4_a_repeat_that_meets_another_password_leaves_the_outcome_unknown(
    proxy: Proxy, server: RedisServer, made: Session
) -> None:
    """That the second try was turned away says nothing of the first."""
    with server.client() as client:
        before = proxy.answered
        proxy.hold_answers()
        writing = asyncio.ensure_future(made.increment("n"))
        await wait_until_async(lambda: proxy.answered > before, 20, "the write was applied")
        client.config_set("requirepass", "another")
        try:
            proxy.cut()
            proxy.resume()
            with pytest.raises(OutcomeUnknownError):
                await writing
        finally:
            client.config_set("requirepass", "")
    assert await made.get("n") == 1
