"""R10, R11: what the database refuses is set apart, the rest is flushed, and an outage is no refusal."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sessioncache_worker import FlushWorker

from sessioncache import DeadLetterError, FlushTimeoutError, Session, SessionCache
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.operations.dead_letters import DeadLetter, DeadLetterQueue
from sessioncache.primitives.entries import Committed, Dirt
from tests.helpers import BUCKETS, Urls, execute, open_worker, raw, scope_key, session, stored_values
from tests.scripts.bench import Bench, put

SCOPE = session("ada", "s1")
ATTEMPTS = 3


async def poisoned(cache: SessionCache, urls: Urls) -> Session:
    """A session with a good and a bad key: the database refuses the text ``"poison"``."""
    refuse = "BEGIN SELECT RAISE(ABORT, 'no'); END"
    execute(
        urls.database,
        f"CREATE TRIGGER refuse BEFORE INSERT ON sessioncache_state WHEN NEW.value = '\"poison\"' {refuse}",
    )
    return await cache.create("ada", session_id="s1", state={"good": 1, "bad": "poison"})


async def flush_round(worker: FlushWorker) -> None:
    """One flush of all that is dirty."""
    await worker._check()
    await worker._flush(await worker._claim(list(range(BUCKETS)), everything=True))


async def letters(cache: SessionCache) -> list[DeadLetter]:
    """The dead letters there are."""
    return await DeadLetterQueue(cache._tiers).list()


async def test_a_refusal_is_a_letter_after_as_many_attempts_as_set(cache: SessionCache, urls: Urls) -> None:
    await poisoned(cache, urls)
    async with open_worker(urls, max_attempts=ATTEMPTS) as worker:
        for _ in range(ATTEMPTS - 1):
            await flush_round(worker)
            assert await letters(cache) == []
        await flush_round(worker)
    (letter,) = await letters(cache)
    assert (letter.key, letter.session, letter.attempts) == ("bad", "s1", ATTEMPTS)
    assert "IntegrityError" in letter.reason


async def test_what_was_refused_is_no_younger_for_that(cache: SessionCache, urls: Urls) -> None:
    await poisoned(cache, urls)
    backlog = cache._tiers.backlog
    since = await backlog.oldest(range(BUCKETS))
    async with open_worker(urls, max_attempts=ATTEMPTS) as worker:
        for _ in range(ATTEMPTS - 1):
            await flush_round(worker)
            assert await backlog.oldest(range(BUCKETS)) == since
        await flush_round(worker)
        assert await backlog.oldest(range(BUCKETS)) is None, "a letter has no age"


async def test_what_is_flushed_with_poison_is_durable_at_once(cache: SessionCache, urls: Urls) -> None:
    await poisoned(cache, urls)
    users = [f"bob{number}" for number in range(20)]
    for user in users:
        await cache.create(user, session_id="s1", state={"a": user})
    async with open_worker(urls) as worker:
        await flush_round(worker)
    assert stored_values(urls.database, SCOPE) == {"good": 1}
    for user in users:
        assert stored_values(urls.database, session(user, "s1")) == {"a": user}


async def test_what_was_refused_fails_no_batch_when_it_is_written_again(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await poisoned(cache, urls)
    other = await cache.create("bob", session_id="s1")
    async with open_worker(urls) as worker:
        await flush_round(worker)
        batches = []
        commit = worker.flusher.commit

        async def note(batch: list[Dirt], read_after: int) -> list[Committed]:
            batches.append({dirt.scope_id for dirt in batch})
            return await commit(batch, read_after)

        monkeypatch.setattr(worker.flusher, "commit", note)
        await made.update({"good": 2, "bad": "poison"})
        await other.set("a", 1)
        await flush_round(worker)
    assert batches == [{session("bob", "s1").id}], "one that went through"
    assert stored_values(urls.database, session("bob", "s1")) == {"a": 1}
    assert stored_values(urls.database, SCOPE) == {"good": 2}


async def test_a_letter_takes_its_scope_out_of_the_index_at_once(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"))
    assert await bench.record_failure(await bench.dirt(place), "bad")
    assert (bench.due(place), bench.since(place), bench.marks(place)) == (None, None, {b"=bad"})


async def test_a_scope_of_dead_letters_is_pinned_but_neither_claimed_nor_old(cache: SessionCache, urls: Urls) -> None:
    made = await poisoned(cache, urls)
    async with open_worker(urls) as worker:
        await worker.flush_once()
        assert await worker._claim(list(range(BUCKETS)), everything=True) == []
    assert await cache._tiers.backlog.oldest(range(BUCKETS)) is None
    with raw(urls.redis) as client:
        assert client.pttl(scope_key(SCOPE)) == -1
    assert await made.get("bad") == "poison"


async def test_a_letter_is_left_out_of_later_flushes(cache: SessionCache, urls: Urls) -> None:
    made = await poisoned(cache, urls)
    async with open_worker(urls, max_attempts=ATTEMPTS) as worker:
        await worker.flush_once()
        await made.set("good", 2)
        await worker.flush_once()
    assert stored_values(urls.database, SCOPE) == {"good": 2}
    assert [letter.attempts for letter in await letters(cache)] == [ATTEMPTS]


async def test_a_newer_write_of_a_dead_letter_is_flushed(cache: SessionCache, urls: Urls) -> None:
    made = await poisoned(cache, urls)
    async with open_worker(urls) as worker:
        await worker.flush_once()
        await made.set("bad", "fine")
        await worker.flush_once()
    assert stored_values(urls.database, SCOPE) == {"good": 1, "bad": "fine"}
    assert await letters(cache) == []
    await made.flush(60)


async def test_a_letter_is_flushed_on_command_once_its_cause_is_gone(cache: SessionCache, urls: Urls) -> None:
    made = await poisoned(cache, urls)
    async with open_worker(urls) as worker:
        await worker.flush_once()
        execute(urls.database, "DROP TRIGGER refuse")
        assert await DeadLetterQueue(cache._tiers).retry((await letters(cache))[0].id)
        assert [letter.retrying for letter in await letters(cache)] == [True]
        await worker.flush_once()
    assert stored_values(urls.database, SCOPE) == {"good": 1, "bad": "poison"}
    await made.flush(60)


async def test_flush_does_not_succeed_while_a_value_is_refused(cache: SessionCache, urls: Urls) -> None:
    made = await poisoned(cache, urls)
    async with open_worker(urls) as worker:
        await flush_round(worker)
    with pytest.raises(FlushTimeoutError):
        await made.flush(0.2)


async def test_flush_does_not_succeed_on_what_was_refused_and_written_anew_since(
    cache: SessionCache, urls: Urls
) -> None:
    made = await poisoned(cache, urls)
    other = await cache.get("ada", "s1")
    async with open_worker(urls) as worker:
        acknowledge = worker.flusher.acknowledge

        async def write_first(*committed: Any) -> int:
            await other.set("bad", "fine")
            return await acknowledge(*committed)

        worker.flusher.acknowledge = write_first  # type: ignore[assignment, method-assign]
        await flush_round(worker)
    assert stored_values(urls.database, SCOPE) == {"good": 1}
    with pytest.raises(FlushTimeoutError):
        await made.flush(0.2)


async def test_flush_tells_of_a_letter(cache: SessionCache, urls: Urls) -> None:
    made = await poisoned(cache, urls)
    async with open_worker(urls) as worker:
        await worker.flush_once()
    with pytest.raises(DeadLetterError) as told:
        await made.flush(60)
    assert told.value.keys == ("bad",)


async def test_an_outage_makes_no_letter_however_long_it_lasts(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    async with open_worker(urls, lease=0.2, max_attempts=2) as worker:
        await worker.flush_once()
        await made.set("a", 2)
        with locked(urls):
            for _ in range(6):
                with pytest.raises(DurableTierUnavailableError):
                    await worker.flush_once()
        with raw(urls.redis) as client:
            assert list(client.scan_iter("*:dead")) == []
        await worker.flush_once()
    assert stored_values(urls.database, SCOPE) == {"a": 2}


@contextmanager
def locked(urls: Urls) -> Iterator[None]:
    """Hold the lock of the whole database."""
    holder = sqlite3.connect(urls.database.removeprefix("sqlite:///"), isolation_level=None)
    try:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")
    finally:
        holder.close()
