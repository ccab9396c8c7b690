"""R11: what is evidence that a clear is durable."""

from __future__ import annotations

import pytest

from sessioncache import FlushTimeoutError, SessionCache
from sessioncache.session import Session
from tests.helpers import Urls, connect, drain, evict, execute, fetch


async def cleared(cache: SessionCache, urls: Urls) -> Session:
    """A session whose keys SQL has, just cleared."""
    made = await cache.create("ada", session_id="s1", state={"a": 1, "b": 2})
    await drain(urls)
    assert await made.clear() == 2
    return made


async def test_a_clear_is_shown_by_sql_once_the_session_has_left_redis(cache: SessionCache, urls: Urls) -> None:
    made = await cleared(cache, urls)
    await drain(urls)
    evict(urls.redis)
    await made.flush(60)
    assert made._ledger is not None
    assert made._ledger.pending() == [], "settled by what SQL shows"


async def test_a_clear_is_shown_by_a_later_delete(cache: SessionCache, urls: Urls) -> None:
    made = await cleared(cache, urls)
    async with connect(urls) as other:
        await other.erase_user("ada")
    await made.flush(60)


async def test_a_clear_is_not_durable_before_it_is_flushed_though_sql_has_no_key(
    cache: SessionCache, urls: Urls
) -> None:
    made = await cache.create("ada", session_id="s1")
    await drain(urls)
    await made.set("a", 1)
    await made.clear()
    assert fetch(urls.database, "SELECT key FROM sessioncache_state") == []
    with pytest.raises(FlushTimeoutError):
        await made.flush(1)


async def test_a_clear_is_not_shown_while_sql_has_an_older_key(cache: SessionCache, urls: Urls) -> None:
    made = await cleared(cache, urls)
    await drain(urls)
    evict(urls.redis)
    older = "UPDATE sessioncache_state SET deleted = false, value = '1', revision = ? WHERE key = 'a'"
    execute(urls.database, older, made.revision - 1)
    execute(urls.database, "UPDATE sessioncache_session SET flushed = 0")
    with pytest.raises(FlushTimeoutError):
        await made.flush(1)
