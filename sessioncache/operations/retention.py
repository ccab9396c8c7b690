"""Retention: sessions that have not been in use for long are deleted, once all their state is durable.

How long the sessions of an app are kept is recorded in SQL by whoever opens a cache with that setting; the janitor of
the workers deletes them.  Every call on a session's handle counts as use (see `usage`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sessioncache.hot.signals import Gone
from sessioncache.operations.delete import Deletion, Unused
from sessioncache.primitives.deadline import within
from sessioncache.primitives.retention_record import PARTS, Retention, retentions
from sessioncache.primitives.scopes import app_id, session_ref

if TYPE_CHECKING:
    from sessioncache.coordination.tiers import Tiers

logger = logging.getLogger(__name__)

_MOST = 100
"""Sessions that are read in one query."""


async def note(tiers: Tiers, retention: Retention) -> None:
    """Record how long the sessions of an app are kept from now on."""
    with within(tiers.settings.timeout):
        await tiers.durable.note(retention.name, retention.encode())


async def expire(tiers: Tiers) -> int:
    """Delete the sessions of all apps that are past their retention; their number."""
    with within(tiers.settings.timeout):
        record = await tiers.durable.read_layout()
    return sum([await _expire_app(tiers, retention) for retention in retentions(record)])


async def _expire_app(tiers: Tiers, retention: Retention) -> int:
    with within(tiers.settings.timeout):
        now = await tiers.link.time()
    before = now - round(retention.seconds * 1_000_000)
    # A head that came to SQL within this time of its session's last update proves no other use.
    noted = before + round(retention.seconds * 1_000_000 / PARTS)
    expired, after = 0, (0, "")
    while True:
        with within(tiers.settings.timeout):
            heads = await tiers.durable.unused_sessions(
                app_id(retention.org, retention.app), before, after, _MOST, noted
            )
        for scope_id, head in heads:
            after = (head.updated, scope_id)
            ref = session_ref(tiers.settings.buckets, head.org, head.app, head.user, head.session)
            try:
                deletion = Deletion(tiers, tiers.layout.place(ref), Unused(before, head.revision))
                expired += (await tiers.perform(deletion.attempt)).existed
            except Gone:
                pass
        if len(heads) < _MOST:
            return expired
