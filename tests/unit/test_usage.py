"""Use that cannot be noted is tried again after a while, and not by each reading."""

from __future__ import annotations

from unittest.mock import AsyncMock, Mock

import pytest

from sessioncache.coordination import usage
from sessioncache.coordination.usage import InUse, Usage
from sessioncache.errors import HotTierUnavailableError
from sessioncache.hot.layout import Layout
from sessioncache.primitives.revisions import encode_revision
from sessioncache.primitives.scopes import session_ref

MICROS = 1_790_000_000_000_000
BIRTH = encode_revision(MICROS)


async def test_while_redis_refuses_writes_a_note_is_tried_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Mock(return_value=100.0)
    monkeypatch.setattr(usage, "monotonic", clock)
    tiers = Mock(usage=Usage(Mock()), settings=Mock(timeout=5.0))
    tiers.usage.keep("org", "app", 3_600)
    tiers.hot.use = AsyncMock(side_effect=HotTierUnavailableError("MISCONF"))
    layout = Layout("t", 2)
    sessions = [InUse(layout.place(session_ref(2, "org", "app", "u", f"s{n}")), BIRTH) for n in range(3)]
    for one in [*sessions, *sessions]:
        await one.note(tiers)
    assert tiers.hot.use.await_count == 1
    clock.return_value += 5
    tiers.hot.use = AsyncMock(return_value=MICROS)
    for one in sessions:
        await one.note(tiers)
    assert tiers.hot.use.await_count == 3
