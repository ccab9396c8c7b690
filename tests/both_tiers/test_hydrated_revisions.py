"""R3: revisions have nine digits, and after a hydrate are above all that SQL knew, whatever the clock shows."""

from __future__ import annotations

from sessioncache import SessionCache
from sessioncache.primitives.revisions import decode_revision
from tests.helpers import Urls, drain, evict, execute, fetch, session, stored_values
from tests.scripts.bench import Bench, put

SCOPE = session("ada", "s1")
AHEAD = 10**13
"""Microseconds by which the clock was ahead when SQL's rows were written."""


async def test_a_write_after_a_hydrate_is_above_every_row_that_sql_has(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1, "gone": 1})
    await made.delete("gone")
    await drain(urls)
    execute(urls.database, "UPDATE sessioncache_state SET revision = revision + ? WHERE deleted", AHEAD)
    ((known,),) = fetch(urls.database, "SELECT max(revision) FROM sessioncache_state WHERE scope_id = ?", SCOPE.id)
    assert evict(urls.redis) > 0
    cold = await cache.get("ada", "s1")
    assert await cold.set("gone", 2) > known
    await drain(urls)
    assert stored_values(urls.database, SCOPE) == {"a": 1, "gone": 2}


async def test_a_write_after_a_hydrate_is_above_all_that_was_purged(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    await drain(urls)
    purged = made.revision + AHEAD
    execute(urls.database, "DELETE FROM sessioncache_purged WHERE bucket = ?", SCOPE.bucket)
    execute(urls.database, "INSERT INTO sessioncache_purged VALUES (?, ?)", SCOPE.bucket, purged)
    assert evict(urls.redis) > 0
    cold = await cache.get("ada", "s1")
    assert await cold.set("gone", 2) > purged


async def test_a_revision_has_nine_digits_however_early_the_clock(bench: Bench) -> None:
    bench.clock.micros = 5_000_000
    await bench.install(bench.user())
    written = await bench.write(bench.user(), put("k", "1"))
    assert (len(written.revision), decode_revision(written.revision)) == (9, 5_000_000)
    assert await bench.values(bench.user()) == {"k": b"1"}
