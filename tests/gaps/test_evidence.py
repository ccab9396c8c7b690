"""R11: a newer row is evidence only as long as the fence names the incarnation of the write."""

from __future__ import annotations

import pytest

from sessioncache import SessionCache, WriteLostError
from tests.helpers import Urls, connect, drain, raw


async def test_a_newer_row_of_another_incarnation_is_no_evidence(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    await drain(urls)
    await cache.flush(60)
    await made.set("a", 2)
    with raw(urls.redis) as client:
        client.flushall()
    async with connect(urls) as other:
        assert await (await other.get("ada", "s1")).increment("a", 10) == 11, "the write of 2 was forgotten"
    await drain(urls)
    with pytest.raises(WriteLostError):
        await made.flush(60)
