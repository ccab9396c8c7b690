"""What lists and handles show of a session.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from sessioncache.primitives.entries import Head
from sessioncache.primitives.revisions import revision_time


class Identity(NamedTuple):
    """Which session it is: the key under which memory layers, traces and the like keep what belongs to it."""

    org: str
    """The tenant."""
    app: str
    """The application."""
    user: str
    """The end user."""
    session_id: str
    """One conversation of that user."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as lists show it."""

    id: str
    """The session id."""
    org: str
    """The tenant."""
    app: str
    """The application."""
    user: str
    """The end user."""
    title: str
    """Empty if none was given."""
    created_at: datetime
    """Aware, UTC, by the clock of Redis."""
    updated_at: datetime
    """The last write to the session's own keys, touch or rename; shared and `temp:` state do not move it."""
    message_count: int
    """Messages counted by `touch`."""
    token_total: int
    """Tokens counted by `touch`."""
    forked_from: str | None
    """The id of the session that it was forked from."""


@dataclass(frozen=True, slots=True)
class SessionPage:
    """One page of a list."""

    items: list[SessionInfo]
    """The sessions, in the order of the list."""
    cursor: str | None
    """What to pass for the next page; None after the last one."""


def info_of(head: Head) -> SessionInfo:
    """What is shown of the session with this head."""
    return SessionInfo(
        id=head.session,
        org=head.org,
        app=head.app,
        user=head.user,
        title=head.title,
        created_at=revision_time(head.birth),
        updated_at=revision_time(head.updated),
        message_count=head.message_count,
        token_total=head.token_total,
        forked_from=head.forked_from or None,
    )
