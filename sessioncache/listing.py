"""Lists of sessions: what SQL does not have yet, read first, merged with an indexed page of SQL (DESIGN §5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from sessioncache.entries import Head
from sessioncache.tiers import Tiers


async def list_heads(
    tiers: Tiers, *, by: Literal["user", "app"], scope_id: str, buckets: Sequence[int], limit: int | None
) -> list[Head]:
    """Heads of the living sessions of a user or an app, last updated first, ties by id."""
    unflushed = await tiers.perform(lambda: tiers.hot.unflushed(by[0], scope_id, buckets))
    # Each unflushed session may take the place of a row of SQL, so that many more rows are read.
    wanted = None if limit is None else limit + len(unflushed)
    stored = await tiers.perform(lambda: tiers.durable.list_sessions(scope_id=scope_id, by=by, limit=wanted))
    merged = merge(stored, unflushed)
    return merged if limit is None else merged[:limit]


def merge(stored: Iterable[Head], unflushed: Iterable[Head]) -> list[Head]:
    """Of each session the head with the larger revision; those that live, last updated first, ties by id."""
    latest: dict[tuple[str, str, str, str], Head] = {}
    for head in (*stored, *unflushed):
        identity = (head.org, head.app, head.user, head.session)
        known = latest.get(identity)
        if known is None or head.revision >= known.revision:
            latest[identity] = head
    living = [head for head in latest.values() if not head.deleted]
    return sorted(living, key=lambda head: (-head.updated, head.session))
