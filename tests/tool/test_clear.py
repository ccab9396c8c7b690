"""A clear of a large namespace: the exact count, nothing else touched, and Redis there for others meanwhile."""

from __future__ import annotations

import pytest

from sessioncache import SessionCache, SessionStateTool
from tests.helpers import Urls, drain, in_calls, session, settle, stored_namespaces
from tests.tool.pinging import Pinging

KEYS = 10_000
TEXTS = {f"key{number}": f"text {number}" for number in range(KEYS)}
MOST_MILLISECONDS = 500
"""A load takes some 20 ms of a processor (`benchmarks/clear.py`); other tests may have it at the time."""

pytestmark = pytest.mark.alone


async def test_ten_thousand_keys_unflushed_and_wholly_evicted(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1", state={"key0": "plain", "user:key0": "shared"})
    tool, space = SessionStateTool(made), made.namespace("big")
    rest = {"key0": "kept", "key1": "kept"}
    await made.namespace("bigger").update(rest)
    with Pinging(urls.redis) as pinging:
        for evicted in (False, True):
            for some in in_calls(TEXTS):
                await space.update(some)
            if evicted:
                await settle(urls)
            pinging.begin()
            assert await tool.call({"operation": "clear", "namespace": "big"}) == {"deleted": KEYS}
            assert pinging.end() < MOST_MILLISECONDS
            assert await tool.call({"operation": "list", "namespace": "big"}) == {"entries": []}
            assert dict(await made.namespace("bigger").items()) == rest
            await made.refresh()
            assert dict(made.state) == {"key0": "plain", "user:key0": "shared"}
    await drain(urls)
    assert stored_namespaces(urls.database, session("ada", "s1")) == {"": {"key0": "plain"}, "bigger": rest}
