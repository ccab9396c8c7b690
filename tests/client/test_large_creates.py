"""Sessions that are too large to come into being by one script: stored in pieces, then there whole (R1, R4, R12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from sessioncache import (
    FlushTimeoutError,
    LimitExceededError,
    Session,
    SessionCache,
    SessionExistsError,
    SessionNotFoundError,
    StaleLeaseError,
    WriteLostError,
)
from sessioncache.hot.client import HotClient, Reply
from sessioncache.hot.errors import unanswered
from sessioncache.hot.messages import Content, Wanted
from sessioncache.hot.scripts import Script
from tests.helpers import Urls, connect, drain, evict, in_calls, raw, session, settle, stored_namespaces
from tests.keys import check_keys

MANY: dict[str, Any] = {f"k{number}": number for number in range(2_500)}
MOST: dict[str, Any] = {f"k{number}": number for number in range(20_000)}
MEBIBYTE = "x" * (1024 * 1024 - 2)
LARGE: dict[str, Any] = {f"k{number}": MEBIBYTE for number in range(60)}


@pytest.fixture
async def cache(urls: Urls) -> AsyncIterator[SessionCache]:
    """A cache whose calls have the time that much data needs on a busy machine."""
    async with connect(urls, timeout=60) as opened:
        yield opened


def pieces(urls: Urls) -> list[bytes]:
    """What lies in pieces."""
    with raw(urls.redis) as client:
        return list(client.scan_iter(match="*:p:*", count=1_000))


def forget(urls: Urls, kind: bytes) -> int:
    """Let Redis lose tokens (``t:``) or run leases (``l:``); how many there were."""
    with raw(urls.redis) as client:
        fields: list[tuple[Any, Any]] = [
            (control, name) for control in client.scan_iter(match="*:ctl") for name in client.hkeys(control)
        ]
        found = [one for one in fields if one[1].startswith(kind)]
        for control, name in found:
            client.hdel(control, name)
        return len(found)


async def none() -> None:
    """Nothing is done."""


Before = Callable[[], Awaitable[object]]


class Meanwhile:
    """Has something done before a script is sent."""

    def __init__(self, cache: SessionCache, monkeypatch: pytest.MonkeyPatch) -> None:
        self._link: HotClient = cache._tiers.link
        self._call, self._call_beside, self._call_many = self._link.call, self._link.call_beside, self._link.call_many
        self._waiting: dict[str, list[Before]] = {}
        monkeypatch.setattr(self._link, "call", self._sent)
        monkeypatch.setattr(self._link, "call_beside", self._sent_beside)
        monkeypatch.setattr(self._link, "call_many", self._sent_many)

    def before(self, script: str, *work: Before) -> None:
        """Before the first times that it is sent."""
        self._waiting[script] = list(work)

    async def _turn(self, script: Script) -> None:
        if self._waiting.get(script.name):
            await self._waiting[script.name].pop(0)()

    async def _sent(self, script: Script, *rest: Any, **kind: Any) -> Reply:
        await self._turn(script)
        return await self._call(script, *rest, **kind)

    async def _sent_beside(self, script: Script, *rest: Any) -> list[Reply]:
        await self._turn(script)
        return await self._call_beside(script, *rest)

    async def _sent_many(self, script: Script, *rest: Any) -> list[Reply]:
        await self._turn(script)
        return await self._call_many(script, *rest)


@pytest.fixture
def meanwhile(cache: SessionCache, monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """What is done while the cache's calls are under way."""
    return Meanwhile(cache, monkeypatch)


async def make_parent(cache: SessionCache, state: dict[str, Any] = MANY) -> Session:
    """A session with a namespace of as many keys."""
    made = await cache.create("ada", session_id="p", state=state | {"temp:t": 1, "user:u": 1}, title="A trip")
    for some in in_calls(MANY):
        await made.namespace("n").update(some)
    await made.namespace("small").set("a", [1.0])
    return made


async def whole(cache: SessionCache, session_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Private keys and those of the namespace, as a new handle reads them."""
    found = await cache.get("ada", session_id)
    state = {key: value for key, value in found.state.items() if not key.startswith(("user:", "app:"))}
    return state, dict(await found.namespace("n").items())


@pytest.mark.parametrize("state", [MOST, LARGE], ids=["many", "large"])
async def test_a_session_at_a_limit_is_created_forked_flushed_and_loaded(
    cache: SessionCache, urls: Urls, state: dict[str, Any]
) -> None:
    made = await cache.create("ada", session_id="s1", state=state | {"user:u": 1, "app:p": 2, "temp:t": 3})
    await made.namespace("n").update({"a": 1})
    assert dict(made.state) == state | {"user:u": 1, "app:p": 2, "temp:t": 3}
    child = await made.fork(new_id="c")
    assert dict(child.state) == state | {"user:u": 1, "app:p": 2}
    assert pieces(urls) == []
    for _ in range(2):
        assert await whole(cache, "s1") == (state | ({"temp:t": 3}), {"a": 1})
        assert await whole(cache, "c") == (state, {"a": 1})
        await drain(urls)
        await cache.flush(60)
        evict(urls.redis)
    for name in ("s1", "c"):
        assert stored_namespaces(urls.database, session("ada", name)) == {"": state, "n": {"a": 1}}


# ---- while it is stored in pieces


async def test_lost_pieces_are_stored_again(cache: SessionCache, urls: Urls, meanwhile: Meanwhile) -> None:
    async def lose(*, marks: bool) -> None:
        with raw(urls.redis) as client:
            client.delete(*(key for key in pieces(urls) if key.endswith(b":d") is marks))

    parent = await cache.create("ada", state=MANY)
    for script in ("create", "fork"):
        for marks in (False, True):
            work = (partial(lose, marks=marks),)
            meanwhile.before(script, *work if script == "create" else (none, *work))
            made = await cache.create("ada", state=MANY) if script == "create" else await parent.fork()
            assert await whole(cache, made.id) == (MANY, {})
    assert pieces(urls) == []


@pytest.mark.parametrize("script", ["vacant", "gather", "create", "fork"])
async def test_a_token_that_is_lost_is_taken_again(
    cache: SessionCache, urls: Urls, meanwhile: Meanwhile, script: str
) -> None:
    async def lose() -> None:
        lost.append(forget(urls, b"t:"))

    lost: list[int] = []
    parent = await cache.create("ada", session_id="p", state=MANY)
    # A vacancy is asked for without a token first, and a fork is tried by one script, without a token and under it.
    meanwhile.before(script, *{"vacant": (none,), "fork": (none, none)}.get(script, ()), lose)
    await (parent.fork(new_id="s1") if script == "fork" else cache.create("ada", session_id="s1", state=MANY))
    assert lost == [1]
    assert await whole(cache, "s1") == (MANY, {})
    assert pieces(urls) == []


async def test_a_parent_is_read_only_under_the_token(
    cache: SessionCache, urls: Urls, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(wanted: Sequence[Wanted], *, renew: bool = True) -> list[Content | None]:
        seen.append(wanted[0].place.ref.session)
        return await inner(wanted, renew=renew)

    async def lose() -> None:
        assert forget(urls, b"t:") == 1

    seen: list[str] = []
    inner = cache._tiers.hot.read_large
    parent = await cache.create("ada", session_id="p", state=MANY)
    monkeypatch.setattr(cache._tiers.hot, "read_large", read)
    meanwhile.before("fork", none, none, lose)
    await parent.fork(new_id="s1")
    assert seen.count("p") == 2


@pytest.mark.parametrize("script", ["vacant", "gather", "create", "fork"])
async def test_an_id_that_is_taken_meanwhile_is_refused(
    cache: SessionCache, urls: Urls, meanwhile: Meanwhile, script: str
) -> None:
    parent = await cache.create("ada", session_id="p", state=MANY)

    async def take() -> None:
        forget(urls, b"t:")
        async with connect(urls) as other:
            await other.create("ada", session_id="s1", state={"mine": 1})

    meanwhile.before(script, take)
    with pytest.raises(SessionExistsError):
        await (parent.fork(new_id="s1") if script == "fork" else cache.create("ada", session_id="s1", state=MANY))
    assert await whole(cache, "s1") == ({"mine": 1}, {})
    assert pieces(urls) == []


async def test_a_life_that_came_and_went_meanwhile_is_below(
    cache: SessionCache, urls: Urls, meanwhile: Meanwhile
) -> None:
    async def live() -> None:
        forget(urls, b"t:")
        short = await cache.create("ada", session_id="s1", state={"old": 1, "temp:old": 1})
        await short.set("temp:old", 2)
        await cache.delete("ada", "s1")
        deleted.append(short)

    deleted: list[Session] = []
    meanwhile.before("gather", live)
    made = await cache.create("ada", session_id="s1", state=MANY)
    assert made.created_at > deleted[0].created_at
    await settle(urls)
    assert await whole(cache, "s1") == (MANY, {})
    with pytest.raises(SessionNotFoundError):
        await deleted[0].get("old")


@pytest.mark.parametrize("script", ["vacant", "gather", "create", "fork"])
async def test_what_is_cancelled_leaves_nothing_and_the_id_is_free_at_once(
    cache: SessionCache, urls: Urls, meanwhile: Meanwhile, script: str
) -> None:
    parent = await cache.create("ada", session_id="p", state=MANY)

    async def cancel() -> None:
        call.cancel()
        await asyncio.sleep(0)

    meanwhile.before(script, cancel)
    work = cache.create("ada", session_id="s1", state=MANY) if script != "fork" else parent.fork(new_id="s1")
    call = asyncio.ensure_future(work)
    with pytest.raises(asyncio.CancelledError):
        await call
    assert pieces(urls) == []
    assert [one.id for one in (await cache.list("ada")).items] == ["p"]
    async with asyncio.timeout(1.5):
        await cache.create("ada", session_id="s1", state={"a": 1})


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("script", ["read", "gather", "fork"])
async def test_a_parent_that_is_deleted_meanwhile_has_no_fork(
    cache: SessionCache, urls: Urls, meanwhile: Meanwhile, script: str, again: bool
) -> None:
    parent = await make_parent(cache)

    async def delete() -> None:
        await cache.delete("ada", "p")
        if again:
            await cache.create("ada", session_id="p", state={"new": 1})

    meanwhile.before(script, delete)
    with pytest.raises(SessionNotFoundError):
        await parent.fork(new_id="c")
    assert pieces(urls) == []
    assert [one.id for one in (await cache.list("ada")).items] == (["p"] if again else [])


async def test_a_fork_under_a_lease_that_is_lost_meanwhile_is_refused(
    cache: SessionCache, urls: Urls, meanwhile: Meanwhile
) -> None:
    parent = await make_parent(cache)

    async def lose() -> None:
        assert forget(urls, b"l:") == 1

    async with parent.lease() as held:
        meanwhile.before("gather", lose)
        with pytest.raises(StaleLeaseError):
            await held.fork(new_id="c")
    assert pieces(urls) == []
    assert [one.id for one in (await cache.list("ada")).items] == ["p"]


async def test_a_fork_is_of_one_moment(cache: SessionCache, urls: Urls, meanwhile: Meanwhile) -> None:
    parent = await make_parent(cache)
    space = parent.namespace("n")

    async def write() -> None:
        await parent.update({"k0": "late"}, delete=["k1"])
        await space.update({"k0": "late"}, delete=["k1"])
        await parent.namespace("late").set("a", 1)

    meanwhile.before("gather", write)
    child = await parent.fork(new_id="c")
    for _ in range(2):
        assert await whole(cache, "c") == (MANY, MANY)
        assert await child.namespace("small").items() == [("a", [1.0])]
        await settle(urls)
    assert stored_namespaces(urls.database, session("ada", "c")) == {"": MANY, "n": MANY, "small": {"a": [1.0]}}
    assert (child.forked_from, child.title) == ("p", "A trip")
    assert await whole(cache, "p") == (
        {"k0": "late", **{key: value for key, value in MANY.items() if key not in ("k0", "k1")}, "temp:t": 1},
        {"k0": "late", **{key: value for key, value in MANY.items() if key not in ("k0", "k1")}},
    )


async def test_a_namespace_that_came_since_they_were_listed_is_forked_as_well(
    cache: SessionCache, urls: Urls, meanwhile: Meanwhile
) -> None:
    parent = await make_parent(cache)

    async def write() -> None:
        await parent.namespace("late").set("a", 1)
        await parent.set("late", 1)

    meanwhile.before("read", write)
    await parent.fork(new_id="c")
    await settle(urls)
    stored = stored_namespaces(urls.database, session("ada", "c"))
    assert stored == {"": MANY | {"late": 1}, "n": MANY, "small": {"a": [1.0]}, "late": {"a": 1}}


@pytest.mark.parametrize("where", ["unflushed", "flushed", "cold"])
async def test_a_session_over_a_deleted_one_has_nothing_of_it(cache: SessionCache, urls: Urls, where: str) -> None:
    parent = await make_parent(cache)
    for name in ("s1", "c"):
        old = await cache.create("ada", session_id=name, state=MANY | {"old": 1, "temp:old": 1})
        await old.namespace("n").update({"old": 1})
        if where != "unflushed":
            await drain(urls)
        await cache.delete("ada", name)
        if where == "cold":
            await settle(urls)
    await cache.create("ada", session_id="s1", state=MANY)
    await parent.fork(new_id="c")
    for _ in range(2):
        assert await whole(cache, "s1") == (MANY, {})
        assert await whole(cache, "c") == (MANY, MANY)
        await settle(urls)
    assert stored_namespaces(urls.database, session("ada", "s1")) == {"": MANY}


async def test_what_is_shared_goes_with_the_last_step(cache: SessionCache, urls: Urls, meanwhile: Meanwhile) -> None:
    """Others write it meanwhile, and no revision of it goes back."""
    shared, seen = cache.user_scope("ada"), []

    async def write() -> None:
        seen.append(await shared.set("u", 1))

    meanwhile.before("create", write)
    made = await cache.create("ada", session_id="s1", state=MANY | {"user:v": 2, "temp:t": 3, "app:p": 4})
    await shared.refresh()
    assert shared.revision > seen[0] > made.revision
    assert dict(made.state) == MANY | {"user:u": 1, "user:v": 2, "temp:t": 3, "app:p": 4}
    before = made.revision
    assert await made.update({"k0": "new", "temp:t": 4}, if_revision=made.revision) > before
    async with made.edit() as draft:
        draft["k1"] = "new"
    await drain(urls)
    await made.flush(60)
    state = MANY | {"k0": "new", "k1": "new"}
    assert await whole(cache, "s1") == (state | {"temp:t": 4}, {})
    with raw(urls.redis) as client:
        check_keys(client)


@pytest.mark.parametrize("script", ["create", "fork"])
async def test_what_was_not_answered_is_repeated_and_applied_once(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    parent = await make_parent(cache)
    link, calls = cache._tiers.link, []

    def lossy(inner: Any) -> Any:
        async def send(sent: Script, *rest: Any, **kind: Any) -> Any:
            replies = await inner(sent, *rest, **kind)
            if sent.name == script and (replies[0] == b"ok" or replies[0][0] == b"ok"):
                calls.append(replies)
                if len(calls) == 1:
                    raise unanswered("lost")
            return replies

        return send

    monkeypatch.setattr(link, "call", lossy(link.call))
    monkeypatch.setattr(link, "call_beside", lossy(link.call_beside))
    work = cache.create("ada", session_id="c", state=MANY) if script == "create" else parent.fork(new_id="c")
    made = await work
    assert len(calls) == 2
    assert await whole(cache, made.id) == (MANY, MANY if script == "fork" else {})
    assert len((await cache.list("ada")).items) == 2


# ---- flush, and limits


async def test_flush_is_true(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1", state=MANY | {"user:u": 1})
    assert made.info == (await cache.get("ada", "s1")).info
    child = await made.fork()
    for one in (made, child):
        with pytest.raises(FlushTimeoutError):
            await one.flush(0.05)
    await drain(urls)
    await made.flush(60)
    lost = await child.fork()
    with raw(urls.redis) as client:
        client.flushall()
    await child.flush(60)
    with pytest.raises(WriteLostError):
        await lost.flush(60)


async def test_what_is_shared_has_the_limits_of_a_call(cache: SessionCache, urls: Urls) -> None:
    shared = {f"user:k{number}": number for number in range(2_001)}
    for state in (shared, MANY | shared, {f"temp:k{number}": MEBIBYTE for number in range(3)}):
        with pytest.raises(LimitExceededError, match="split the call"):
            await cache.create("ada", session_id="s1", state=state)
    with pytest.raises(LimitExceededError, match="20000 private keys"):
        await cache.create("ada", session_id="s1", state=MOST | {"more": 1})
    assert (await cache.list("ada")).items == []
    with raw(urls.redis) as client:
        assert list(client.scan_iter(match="*:h:*")) == []


@pytest.fixture
def trips(cache: SessionCache, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pieces of each round trip that stores some."""
    counted: list[int] = []
    call_many = cache._tiers.link.call_many

    async def counting(script: Script, calls: Sequence[Any]) -> list[Reply]:
        if script.name == "gather":
            counted.append(len(calls))
        return await call_many(script, calls)

    monkeypatch.setattr(cache._tiers.link, "call_many", counting)
    return counted


async def test_pieces_go_several_in_a_round_trip(cache: SessionCache, trips: list[int]) -> None:
    """A server that is 0.2 s away would be waited for 4 s else."""
    await cache.create("ada", session_id="s1", state=MOST)
    assert trips == [4] * 5


async def test_large_pieces_go_four_in_a_round_trip(cache: SessionCache, trips: list[int]) -> None:
    """Also where a value alone is larger than a piece should be."""
    await cache.create("ada", session_id="s1", state=dict(list(LARGE.items())[:10]))
    assert trips == [4, 4, 2]


async def test_many_small_namespaces_go_in_a_few_round_trips(cache: SessionCache, trips: list[int]) -> None:
    """A server that is 50 ms away would be waited for 6 s else."""
    parent = await cache.create("ada", session_id="p", state=MANY)
    async with cache.batch() as batch:
        for number in range(500):
            batch.on(parent.namespace(f"n{number}")).set("a", number)
    trips.clear()
    child = await parent.fork(new_id="c")
    assert len(trips) <= 4
    assert sum(trips) == 503
    for number in (0, 250, 499):
        assert await child.namespace(f"n{number}").items() == [("a", number)]
