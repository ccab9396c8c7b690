"""Resuming: finding a session by its id alone, as a scheduled run knows it."""

from __future__ import annotations

from sessioncache.entries import Head
from sessioncache.errors import AmbiguousSessionError, SessionNotFoundError
from sessioncache.listing import merge
from sessioncache.scopes import bare_id
from sessioncache.tiers import Tiers


async def user_of(tiers: Tiers, org: str, app: str, session_id: str) -> str:
    """The user of the only living session of an app that bears this id.

    SessionNotFoundError, or AmbiguousSessionError where several users have one.
    """
    found = [head for head in await _find_heads(tiers, org, session_id) if head.app == app]
    if not found:
        raise SessionNotFoundError(f"there is no session {session_id!r}", session_id=session_id)
    if len(found) > 1:
        raise AmbiguousSessionError(f"several users have a session {session_id!r}: name one", session_id=session_id)
    return found[0].user


async def _find_heads(tiers: Tiers, org: str, session_id: str) -> list[Head]:
    """The living sessions of an org that bear this id, hot or not."""
    bare, buckets = bare_id(org, session_id), range(tiers.settings.buckets)
    # What is flushed between the two readings is in the first; the other way round it would be in neither.
    unflushed = await tiers.perform(lambda: tiers.hot.unflushed("b", bare, buckets))
    stored = await tiers.perform(lambda: tiers.durable.find_sessions(bare))
    return merge(stored, unflushed)
