"""R11: what is evidence of a write once Redis may have forgotten it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from sessioncache import Session, SessionCache, WriteLostError
from sessioncache.primitives.values import Json
from tests.helpers import Urls, connect, drain, evict, raw

Change = Callable[[Session], Awaitable[object]]

_STATE: dict[str, Json] = {"n": 4, "huge": 10**20, "items": [], "free": True, "a": 1}


def forget(urls: Urls) -> None:
    """Redis forgets everything."""
    with raw(urls.redis) as client:
        client.flushall()


async def edit(made: Session) -> None:
    """Take what is free."""
    async with made.edit() as draft:
        draft["free"] = False


async def edit_away(made: Session) -> None:
    """Take what is free, and leave nothing of it."""
    async with made.edit() as draft:
        del draft["free"]


async def take(made: Session) -> None:
    """Take what is free, if nothing has changed."""
    await made.refresh()
    await made.update({"free": False}, if_revision=made.revision)


BUILT: list[Change] = [
    lambda made: made.increment("n"),
    lambda made: made.increment("huge"),
    lambda made: made.append("items", "x"),
    edit,
    edit_away,
    take,
]
_NAMES = ["increment", "huge", "append", "edit", "edit-away", "if-revision"]
built = pytest.mark.parametrize("change", BUILT, ids=_NAMES)


@pytest.fixture
async def made(cache: SessionCache, urls: Urls) -> Session:
    """A session that SQL has."""
    made = await cache.create("ada", session_id="s1", state=_STATE)
    await drain(urls)
    await cache.flush(60)
    return made


async def test_a_newer_row_of_another_incarnation_is_no_evidence(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    await drain(urls)
    await cache.flush(60)
    await made.set("a", 2)
    forget(urls)
    async with connect(urls) as other:
        assert await (await other.get("ada", "s1")).increment("a", 10) == 11, "the write of 2 was forgotten"
    await drain(urls)
    with pytest.raises(WriteLostError):
        await made.flush(10)


@built
@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "hot"])
async def test_what_built_on_what_was_there_is_not_shown_by_another_that_did_the_same(
    made: Session, urls: Urls, change: Change, flushed: bool
) -> None:
    await change(made)
    forget(urls)
    async with connect(urls) as other:
        await change(await other.get("ada", "s1"))
    if flushed:
        await drain(urls)
    with pytest.raises(WriteLostError):
        await made.flush(10)


@built
async def test_what_built_on_what_was_there_is_not_shown_by_doing_it_again(
    made: Session, urls: Urls, change: Change
) -> None:
    await change(made)
    forget(urls)
    await made.refresh()
    await change(made)
    await drain(urls)
    with pytest.raises(WriteLostError):
        await made.flush(10)
    await made.flush(60)  # a loss is told once


@built
@pytest.mark.parametrize("hot", [True, False], ids=["hot", "cold"])
async def test_what_built_on_what_was_there_is_shown_by_its_own_row(
    made: Session, urls: Urls, change: Change, hot: bool
) -> None:
    await change(made)
    await drain(urls)
    forget(urls)
    if hot:
        async with connect(urls) as other:
            await (await other.get("ada", "s1")).set("a", 2)
    await made.flush(60)


@pytest.mark.parametrize("space", [False, True], ids=["session", "namespace"])
async def test_what_was_lost_of_keys_that_were_cleared_since_does_not_matter(
    made: Session, urls: Urls, space: bool
) -> None:
    handle = made.namespace("tools") if space else made
    await handle.set("a", 1)
    await drain(urls)
    await handle.flush(10)
    await handle.update({"a": 2, "b": 2})
    forget(urls)
    await handle.refresh()
    assert await handle.clear() > 0
    await drain(urls)
    await handle.flush(10)
    await handle.refresh()
    assert dict(handle.state) == {}


async def test_a_set_is_shown_by_the_same_text_whoever_wrote_it(made: Session, urls: Urls) -> None:
    await made.update({"n": 5}, delete=["free"])
    forget(urls)
    async with connect(urls) as other:
        await (await other.get("ada", "s1")).update({"n": 5}, delete=["free"])
    await drain(urls)
    await made.flush(60)


@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "hot"])
async def test_a_touch_is_not_shown_by_another(made: Session, urls: Urls, flushed: bool) -> None:
    await made.touch(tokens=1)
    forget(urls)
    async with connect(urls) as other:
        await (await other.get("ada", "s1")).touch(tokens=1)
    if flushed:
        await drain(urls)
    with pytest.raises(WriteLostError):
        await made.flush(10)


async def test_a_touch_is_shown_by_the_write_that_followed_it(made: Session, urls: Urls) -> None:
    await made.touch(tokens=1)
    await made.set("a", 2)
    await drain(urls)
    forget(urls)
    await made.flush(10)
    evict(urls.redis)
    assert made._unflushed is not None
    assert not made._unflushed
