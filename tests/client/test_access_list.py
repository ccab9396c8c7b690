"""The access list of the guide to servers is enough for agents and workers; its channels are needed to watch only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sessioncache import ConfigurationError
from tests.client.conftest import urls
from tests.helpers import ROOT, Urls, connect, dirty, open_worker, raw, stored_values
from tests.helpers import session as session_of
from tests.waiting import wait_until_async

__all__ = ["urls"]


RIGHTS = "~sessioncache:* &sessioncache:* +@all -@admin -@dangerous +info"


def test_the_guide_tells_this_access_list() -> None:
    assert f"`{RIGHTS}`" in (ROOT / "docs" / "howto" / "servers.md").read_text()


@pytest.fixture(params=["with channels", "without channels"])
def limited(request: pytest.FixtureRequest, urls: Urls) -> Iterator[tuple[Urls, bool]]:
    """Both tiers, Redis by a user with the documented rights, and whether the channels are among them."""
    hears = request.param == "with channels"
    rights = [right for right in RIGHTS.split() if hears or not right.startswith("&")]
    with raw(urls.redis) as client:
        client.execute_command("ACL", "SETUSER", "agent", "on", ">pw", *rights)  # type: ignore[no-untyped-call]
    yield Urls(urls.redis.replace("unix://", "unix://agent:pw@"), urls.database), hears
    with raw(urls.redis) as client:
        client.acl_deluser("agent")


async def test_agents_and_workers_need_no_more_than_the_guide_says(limited: tuple[Urls, bool]) -> None:
    urls, hears = limited
    async with connect(urls) as cache, open_worker(urls, sweep=0.2, flush_delay=0.05) as worker:
        running = asyncio.ensure_future(worker.run())
        session = await cache.create("ada", session_id="s1", state={"a": 1, "user:b": 2, "app:c": 3, "temp:d": 4})
        await session.set("e", 5)
        await session.namespace("skills").set("f", 6)
        await session.touch(messages=1)
        async with session.lease() as held:
            await held.append("g", 7)
        if hears:
            async with session.watch() as changes:
                await session.set("h", 8)
                assert "h" in ((await anext(changes)).keys or ())
        else:
            with pytest.raises(ConfigurationError, match="channels"):
                await session.watch().begin()
        await cache.flush(60)
        assert (stored_values(urls.database, session_of("ada", "s1")) or {})["e"] == 5
        assert await session.fork(new_id="s2")
        assert await cache.delete("ada", "s1")
        await cache.erase_user("ada")
        await cache.flush(60)
        worker.stop()
        await running


async def test_a_first_write_to_a_clean_bucket_needs_no_channel(limited: tuple[Urls, bool]) -> None:
    urls, _ = limited
    async with connect(urls) as cache:
        assert (await cache.create("ada", session_id="s1", state={"a": 1})).state["a"] == 1
        assert dirty(urls.redis) > 0


async def test_the_worker_says_that_it_hears_of_no_dirt(
    limited: tuple[Urls, bool], caplog: pytest.LogCaptureFixture
) -> None:
    urls, hears = limited
    async with connect(urls) as cache, open_worker(urls, sweep=0.2, flush_delay=0.05) as worker:
        running = asyncio.ensure_future(worker.run())
        await (await cache.create("ada")).flush(60)

        def told() -> bool:
            return "may not subscribe" in caplog.text

        if not hears:
            await wait_until_async(told, 10, "the worker says so")
        assert told() is not hears
        worker.stop()
        await running
