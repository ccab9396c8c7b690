"""R13, R14: a session that is not hot is deleted under the token of its reading, and stays deleted."""

from __future__ import annotations

import pytest

from sessioncache import SessionCache, SessionNotFoundError
from sessioncache.hot.signals import TokenLost
from sessioncache.primitives.entries import Head, StoredScope
from tests.helpers import Urls, drain, evict
from tests.scripts.bench import START, Bench


async def test_a_cold_session_is_buried_under_its_token_only(bench: Bench) -> None:
    place = bench.session()
    head = Head("org", "app", "u", "s", revision=START - 1, birth=START - 2, updated=START - 1)
    stored = StoredScope(head, [], known=START - 1)
    token = await bench.take_token(place)
    with pytest.raises(TokenLost):
        await bench.bury(place, b"another", stored)
    assert bench.ask("EXISTS", place.hash) == 0
    existed, _ = await bench.bury(place, token, stored)
    assert existed
    assert bench.field(place, "x") != b""


async def test_a_session_that_sql_knows_as_deleted_is_not_found(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada", session_id="s1", state={"a": 1})
    await cache.delete("ada", "s1")
    await drain(urls)
    assert evict(urls.redis) > 0
    with pytest.raises(SessionNotFoundError):
        await cache.get("ada", "s1")
    assert (await cache.list("ada")).items == []
