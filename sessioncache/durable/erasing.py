"""Erasing a user: tombstones without a readable identity stay for the retention, everything else is deleted (R14).

The tombstones refuse the flush of a worker that was paused while it held dirty entries of this user.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import case, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import bulk, purging, schema
from sessioncache.durable.fence import lock_fences
from sessioncache.durable.messages import FencedOff, Owned, Tombstone
from sessioncache.primitives.scopes import ScopeKind, ScopeRef, app_id, bare_id

_STATE = schema.state.c
_SESSION = schema.session.c
_USER = schema.user_scope.c
_MOST = 500
"""Scopes that one statement names."""


async def read_named(connection: AsyncConnection, user: ScopeRef, most: int) -> list[ScopeRef]:
    """Some sessions of a user whose names are still there, living ones first.

    Read in the order of an index: otherwise the table would be scanned past everything that was erased before.
    """
    found: list[ScopeRef] = []
    by_time = (_SESSION.updated.desc(), _SESSION.session_id)
    for deleted, order in ((~_SESSION.deleted, by_time), (schema.is_deleted(schema.session), (_SESSION.scope_id,))):
        named = select(_SESSION.scope_id, _SESSION.session_id).where(
            _SESSION.user_scope_id == user.id, deleted, _SESSION.session_id != ""
        )
        rows = await connection.execute(named.order_by(*order).limit(most - len(found)))
        found += [_session(user, row.scope_id, row.session_id) for row in rows]
    return found


async def read_erased(connection: AsyncConnection, user: ScopeRef, after: str, most: int) -> list[tuple[str, int]]:
    """Some sessions of a user that are deleted, by id, behind that one, with their revisions."""
    dead = select(_SESSION.scope_id, _SESSION.revision).where(
        _SESSION.user_scope_id == user.id, schema.is_deleted(schema.session), _SESSION.scope_id > after
    )
    rows = await connection.execute(dead.order_by(_SESSION.scope_id).limit(most))
    return [(row.scope_id, row.revision) for row in rows]


async def read_owned(connection: AsyncConnection, sessions: Sequence[ScopeRef]) -> list[Owned]:
    """The namespaces of sessions, with the number of their living entries; also those that have none, which may
    be hot."""
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    living = func.sum(case((_STATE.deleted, 0), else_=1))
    query = select(_STATE.scope_id, _STATE.namespace, living).where(_STATE.scope_id.in_([one.id for one in sessions]))
    for scope_id, namespace, count in await connection.execute(query.group_by(_STATE.scope_id, _STATE.namespace)):
        counts[scope_id][namespace] = int(count)
    space = schema.namespace.c
    recorded = select(space.scope_id, space.namespace).where(space.scope_id.in_([one.id for one in sessions]))
    for scope_id, namespace in await connection.execute(recorded):
        counts[scope_id].setdefault(namespace, 0)
    return [Owned(one, counts[one.id]) for one in sessions]


async def erase_rows(connection: AsyncConnection, sessions: Sequence[ScopeRef], most: int) -> int:
    """Delete up to so many rows of sessions that are deleted hot, except for those that another transaction has
    locked."""
    rows = select(*purging.KEY).where(_STATE.scope_id.in_([one.id for one in sessions])).limit(most)
    return len(await purging.delete_rows(connection, rows))


def _session(user: ScopeRef, scope_id: str, name: str) -> ScopeRef:
    return ScopeRef(ScopeKind.SESSION, user.org, user.app, user.user, name, id=scope_id, bucket=user.bucket)


async def erase(
    connection: AsyncConnection, user: ScopeRef, revision: int, tombstones: Sequence[Tombstone], incarnation: str
) -> None:
    """Erase what a user has at or below `revision`, and these sessions.  FencedOff as in a flush."""
    fences, _ = await lock_fences(connection, {user.bucket})
    if fences.get(user.bucket) != incarnation:
        raise FencedOff([user.bucket])
    # By id, since a flush takes its locks in that order.
    by_id = {one.session.id: _blank_session(user, one) for one in tombstones}
    rows = [by_id[scope_id] for scope_id in sorted(by_id)]
    for at in range(0, len(rows), _MOST):
        await _erase_sessions(connection, rows[at : at + _MOST])
    await bulk.HEADS[ScopeKind.USER].upsert(connection, [_blank_user(user, revision)])
    ours = (_USER.scope_id == user.id) & (_USER.revision <= revision)  # may have been written at the same revision
    await connection.execute(update(schema.user_scope).where(ours).values(user_id=""))
    await connection.execute(delete(schema.state).where(_STATE.scope_id == user.id, _STATE.revision <= revision))


async def _erase_sessions(connection: AsyncConnection, rows: Sequence[bulk.Row]) -> None:
    """Write the tombstones; what is dead then loses its names and its rows.  A session that lives again is left
    alone."""
    await bulk.HEADS[ScopeKind.SESSION].upsert(connection, rows)
    dead = _SESSION.scope_id.in_([row[0] for row in rows]) & _SESSION.deleted
    blank = {"user_id": "", "session_id": "", "title": "", "forked_from": ""}
    await connection.execute(update(schema.session).where(dead).values(**blank))
    for table in (schema.state, schema.namespace):  # the names in the latter are readable, too
        await connection.execute(delete(table).where(table.c.scope_id.in_(select(_SESSION.scope_id).where(dead))))


def _blank_session(user: ScopeRef, one: Tombstone) -> bulk.Row:
    ref, at = one.session, one.revision
    owner = (user.id, app_id(ref.org, ref.app), bare_id(ref.org, ref.session))
    # Birth, updated, cleared, deleted, revision, values revision, messages, tokens.
    life = (0, at, at, True, at, at, 0, 0)
    return (ref.id, ref.org, ref.app, "", "", *owner, "", *life, "", ref.bucket, at, 0)


def _blank_user(user: ScopeRef, revision: int) -> bulk.Row:
    return (user.id, user.org, user.app, "", revision, 0, revision, False, user.bucket, revision, 0)
