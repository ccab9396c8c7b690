"""Resuming: finding a session by its id alone, as a scheduled run knows it."""

from __future__ import annotations

from sessioncache.coordination.tiers import Tiers
from sessioncache.errors import AmbiguousSessionError, SessionNotFoundError
from sessioncache.operations.list import find


async def user_of(tiers: Tiers, org: str, app: str, session_id: str) -> str:
    """The user of the only living session of an app that has this id.

    SessionNotFoundError, or AmbiguousSessionError where several users have one.
    """
    found = await find(tiers, org, app, session_id)
    if not found:
        raise SessionNotFoundError(f"there is no session {session_id!r}", session_id=session_id)
    if len(found) > 1:
        raise AmbiguousSessionError(f"several users have a session {session_id!r}: name one", session_id=session_id)
    return found[0].user
