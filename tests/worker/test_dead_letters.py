"""R10, end to end: what the database refuses is set apart, told, and retried; an outage makes no letter."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from sessioncache import DeadLetterError, SessionCache, SessionNotFoundError
from tests.conftest import StartPostgreSQL, StartRedis
from tests.helpers import (
    Urls,
    connect,
    dirty,
    drain,
    fetch,
    open_worker,
    raw,
    session,
    start_worker,
    stop_worker,
    stored_values,
    upgrade,
)
from tests.waiting import stretched, wait_until_async
from tests.worker.commands import run
from tests.worker.poison import accept_poison, refuse_namespace, refuse_poison, refuse_title

GOOD = 500
FAST = ("--flush-delay", "0.05")


async def create_many(cache: SessionCache, number: int) -> None:
    """Good sessions, each with one key."""
    for first in range(0, number, 50):
        await asyncio.gather(
            *(
                cache.create("ada", session_id=f"good{one}", state={"a": one})
                for one in range(first, min(first + 50, number))
            )
        )


def count_good(urls: Urls) -> int:
    """Good rows that are durable."""
    return int(fetch(urls.database, "SELECT count(*) FROM sessioncache_state WHERE key = 'a' AND NOT deleted")[0][0])


async def test_r10_one_poison_among_500_good_ones_is_told_retried_and_holds_nobody_up(urls: Urls) -> None:
    refuse_poison(urls.database)
    async with connect(urls) as cache:
        await create_many(cache, GOOD)
        bad = await cache.create("ada", session_id="bad", state={"poison": "secret", "beside": 1})
        began = time.monotonic()
        with start_worker(urls, *FAST) as worker:
            await wait_until_async(lambda: count_good(urls) == GOOD, 10, "the good ones are durable")
            took = time.monotonic() - began
            with pytest.raises(DeadLetterError) as told:
                await bad.flush(60)
            assert told.value.keys == ("poison",)
            assert stored_values(urls.database, session("ada", "bad")) == {"beside": 1}
            (letter,) = (await run(urls, "dead", "list")).said["letters"]
            assert (letter["scope"], letter["user"], letter["session"], letter["key"]) == (
                "session",
                "ada",
                "bad",
                "poison",
            )
            assert "IntegrityError" in letter["reason"] or "23514" in letter["reason"]
            assert "secret" not in str(letter)
            accept_poison(urls.database)
            assert (await run(urls, "dead", "retry", letter["id"])).said == {"retried": [letter["id"]]}
            await bad.flush(60)
            stop_worker(urls, worker)
    assert stored_values(urls.database, session("ada", "bad")) == {"poison": "secret", "beside": 1}
    assert (await run(urls, "dead", "list")).said == {"letters": []}
    assert dirty(urls.redis) == 0
    assert took < stretched(8)


async def test_r10_letters_are_shown_and_dropped_by_command(urls: Urls) -> None:
    async with connect(urls) as cache:
        bad = await cache.create("ada", session_id="bad", state={"poison": 1})
        await drain(urls)
        refuse_poison(urls.database)
        await bad.set("poison", 2)
        new = await cache.create("ada", session_id="new", state={"poison": 1})
        await drain(urls)
        for handle in (bad, new):
            with pytest.raises(DeadLetterError):
                await handle.flush(60)
        letters = {one["session"]: one for one in (await run(urls, "dead", "list")).said["letters"]}
        shown = await run(urls, "dead", "show", letters["bad"]["id"])
        assert shown.said == {"letter": letters["bad"]}
        assert (await run(urls, "dead", "show", "none")).code == 1
        assert (await run(urls, "dead", "drop", "--all")).code == 0
        assert (await run(urls, "dead", "list")).said == {"letters": []}
        assert await bad.get("poison") == 1, "what SQL has"
        assert await new.get("poison") is None
        accept_poison(urls.database)
        await drain(urls)
    assert stored_values(urls.database, session("ada", "bad")) == {"poison": 1}
    assert stored_values(urls.database, session("ada", "new")) == {}
    assert dirty(urls.redis) == 0


async def test_r10_a_newer_write_and_a_delete_of_the_session_end_a_letter(urls: Urls) -> None:
    refuse_poison(urls.database)
    async with connect(urls) as cache:
        bad = await cache.create("ada", session_id="bad", state={"poison": 1})
        gone = await cache.create("ada", session_id="gone", state={"poison": 1})
        await drain(urls)
        assert len((await run(urls, "dead", "list")).said["letters"]) == 2
        await bad.delete("poison")
        await cache.delete("ada", gone.id)
        accept_poison(urls.database)
        await drain(urls)
        await cache.flush(60)
    assert (await run(urls, "dead", "list")).said == {"letters": []}
    assert stored_values(urls.database, session("ada", "bad")) == {}


async def test_r10_a_head_that_is_refused_is_told_retried_dropped_and_holds_nobody_up(urls: Urls) -> None:
    refuse_title(urls.database)
    async with connect(urls) as cache:
        await create_many(cache, 20)
        bad = await cache.create("ada", session_id="bad", title="bad", state={"b": 1})
        new = await cache.create("ada", session_id="new", title="bad", state={"b": 1})
        await drain(urls)
        assert count_good(urls) == 20
        for handle in (bad, new):
            with pytest.raises(DeadLetterError, match="head"):
                await handle.flush(5)
        letters = {one["session"]: one for one in (await run(urls, "dead", "list")).said["letters"]}
        assert [(one["head"], one["key"]) for one in letters.values()] == [(True, "")] * 2
        assert (await run(urls, "dead", "drop", letters["new"]["id"])).said == {"dropped": [letters["new"]["id"]]}
        with pytest.raises(SessionNotFoundError):
            await cache.get("ada", "new")
        await bad.rename("good")
        await drain(urls)
        await bad.flush(5)
    assert stored_values(urls.database, session("ada", "bad")) == {"b": 1}
    assert (await run(urls, "dead", "list")).said == {"letters": []}
    assert dirty(urls.redis) == 0


async def test_r10_a_namespace_whose_record_is_refused_holds_up_neither_its_session_nor_others(urls: Urls) -> None:
    refuse_namespace(urls.database)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
        bad, good = made.namespace("bad"), made.namespace("good")
        await bad.set("k", 1)
        await drain(urls)
        (letter,) = (await run(urls, "dead", "list")).said["letters"]
        assert (letter["scope"], letter["session"], letter["namespace"], letter["head"]) == (
            "namespace",
            "s1",
            "bad",
            True,
        )
        await made.set("a", 2)
        await good.set("k", 1)
        await drain(urls)
        await made.flush(5)
        await good.flush(5)
        with pytest.raises(DeadLetterError, match="head"):
            await bad.flush(5)
        assert (await run(urls, "dead", "drop", letter["id"])).said == {"dropped": [letter["id"]]}
        assert await bad.get("k") is None
    assert stored_values(urls.database, session("ada", "s1")) == {"a": 2}
    assert dirty(urls.redis) == 0


async def test_r10_a_letter_that_was_settled_after_the_file_that_redis_came_back_from_goes_by_itself(
    start_redis: StartRedis, tmp_path: Path
) -> None:
    server = start_redis()
    urls = Urls(server.url, f"sqlite:///{tmp_path}/state.db")
    await upgrade(urls.database)
    refuse_poison(urls.database)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"poison": 1})
        await drain(urls)
        with raw(urls.redis) as client:
            client.save()
        copy = shutil.copy(server.folder / "dump.rdb", tmp_path)
        accept_poison(urls.database)
        (letter,) = (await run(urls, "dead", "list")).said["letters"]
        await run(urls, "dead", "retry", letter["id"])
        await drain(urls)
        await made.flush(60)
    server.kill()
    shutil.copy(copy, server.folder / "dump.rdb")
    server.start()
    async with open_worker(urls) as worker:
        await worker.flush_once()
        assert await worker.dead_letters() == 1
        assert sum([await worker._janitor.retry_letters() for _ in range(10)]) == 1, "in a pass over all buckets"
        await worker.flush_once()
        assert await worker.dead_letters() == 0
    assert (count_letters(urls), dirty(urls.redis)) == (0, 0)


async def test_r10_an_outage_makes_no_letter(valkey_url: str, start_postgresql: StartPostgreSQL) -> None:
    server = start_postgresql()
    urls = Urls(valkey_url, server.url())
    await upgrade(urls.database)
    async with connect(urls) as cache:
        made = [await cache.create("ada") for _ in range(20)]
        with start_worker(urls, *FAST) as worker:
            await cache.flush(60)
            server.stop()
            for handle in made:
                await handle.set("a", 1)
            await asyncio.sleep(3)  # an outage is as long as it is
            assert count_letters(urls) == 0
            server.start()
            await cache.flush(60)
            stop_worker(urls, worker)
    assert count_good(urls) == 20
    assert (await run(urls, "dead", "list")).said == {"letters": []}


def count_letters(urls: Urls) -> int:
    """Letters and suspects in Redis."""
    with raw(urls.redis) as client:
        return sum(int(client.hlen(key)) for key in client.scan_iter(match="sessioncache:*:dead", count=1000))
