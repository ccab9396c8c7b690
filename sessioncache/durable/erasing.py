"""Erasing a user: tombstones without a readable identity stay for the retention, all else goes (R14).

The tombstones are what refuses the flush of a worker that was stopped with dirt of this user in its hands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import bulk, schema
from sessioncache.durable.answers import FencedOff, Owned, Tombstone
from sessioncache.durable.fence import lock_fences
from sessioncache.scopes import ScopeKind, ScopeRef, app_id, bare_id

_STATE = schema.state.c
_SESSION = schema.session.c
_USER = schema.user_scope.c
_MOST = 500
"""Scopes that one statement names."""


async def read_owned(connection: AsyncConnection, user: ScopeRef) -> list[Owned]:
    """All sessions of a user, deleted ones too, except those whose identity has been blanked."""
    query = select(_SESSION.scope_id, _SESSION.session_id).where(
        _SESSION.user_scope_id == user.id, _SESSION.session_id != ""
    )
    rows = (await connection.execute(query)).all()
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for at in range(0, len(rows), _MOST):
        ids = [row.scope_id for row in rows[at : at + _MOST]]
        living = select(_STATE.scope_id, _STATE.namespace, func.count()).where(
            _STATE.scope_id.in_(ids), ~_STATE.deleted
        )
        for scope_id, namespace, count in await connection.execute(living.group_by(_STATE.scope_id, _STATE.namespace)):
            counts[scope_id][namespace] = count
    return [Owned(_session(user, row.scope_id, row.session_id), counts[row.scope_id]) for row in rows]


def _session(user: ScopeRef, scope_id: str, name: str) -> ScopeRef:
    return ScopeRef(ScopeKind.SESSION, user.org, user.app, user.user, name, id=scope_id, bucket=user.bucket)


async def erase(
    connection: AsyncConnection, user: ScopeRef, revision: int, tombstones: Sequence[Tombstone], incarnation: str
) -> None:
    """Erase what a user has at or below `revision`, and these sessions.  FencedOff as in a flush."""
    fences, _ = await lock_fences(connection, {user.bucket})
    if fences.get(user.bucket) != incarnation:
        raise FencedOff([user.bucket])
    rows = await _heads(connection, user, tombstones)
    for at in range(0, len(rows), _MOST):
        await _erase_sessions(connection, rows[at : at + _MOST])
    await bulk.HEADS[ScopeKind.USER].upsert(connection, [_blank_user(user, revision)])
    ours = (_USER.scope_id == user.id) & (_USER.revision <= revision)  # it may have been there at the same revision
    await connection.execute(update(schema.user_scope).where(ours).values(user_id=""))
    await connection.execute(delete(schema.state).where(_STATE.scope_id == user.id, _STATE.revision <= revision))


async def _heads(connection: AsyncConnection, user: ScopeRef, tombstones: Sequence[Tombstone]) -> list[bulk.Row]:
    """The rows of the sessions, by id, since a flush takes its locks in that order.

    Those that were deleted earlier and still bear names come at revision 0: SQL refuses that, and locks them.
    """
    named = (_SESSION.user_scope_id == user.id) & _SESSION.deleted & (_SESSION.session_id != "")
    dead = await connection.execute(select(_SESSION.scope_id, _SESSION.session_id).where(named))
    by_id = {one.session.id: one for one in (*(Tombstone(_session(user, *row), 0) for row in dead), *tombstones)}
    return [_blank_session(user, by_id[scope_id]) for scope_id in sorted(by_id)]


async def _erase_sessions(connection: AsyncConnection, rows: Sequence[bulk.Row]) -> None:
    """Put the tombstones; what is dead then loses its names and its rows.  One that lives again is left alone."""
    await bulk.HEADS[ScopeKind.SESSION].upsert(connection, rows)
    dead = _SESSION.scope_id.in_([row[0] for row in rows]) & _SESSION.deleted
    blank = {"user_id": "", "session_id": "", "title": "", "forked_from": ""}
    await connection.execute(update(schema.session).where(dead).values(**blank))
    await connection.execute(delete(schema.state).where(_STATE.scope_id.in_(select(_SESSION.scope_id).where(dead))))


def _blank_session(user: ScopeRef, one: Tombstone) -> bulk.Row:
    ref, at = one.session, one.revision
    owner = (user.id, app_id(ref.org, ref.app), bare_id(ref.org, ref.session))
    # Birth, updated, cleared, deleted, revision, values revision, messages, tokens.
    life = (0, at, at, True, at, at, 0, 0)
    return (ref.id, ref.org, ref.app, "", "", *owner, "", *life, "", ref.bucket, at, 0)


def _blank_user(user: ScopeRef, revision: int) -> bulk.Row:
    return (user.id, user.org, user.app, "", revision, 0, revision, False, user.bucket, revision, 0)
