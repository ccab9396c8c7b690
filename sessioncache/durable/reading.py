"""Reading scopes: for hydration, revalidation, and as evidence that a write is durable.

The caller's transaction is the snapshot.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from sqlalchemy import Row, Select, case, func, literal_column, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import schema
from sessioncache.durable.any_of import among
from sessioncache.durable.bulk import CLOCK
from sessioncache.durable.fence import read_fences
from sessioncache.durable.heads import head_of
from sessioncache.durable.messages import Asked, FencedOff
from sessioncache.primitives.entries import Entry, Head, StoredScope
from sessioncache.primitives.scopes import ScopeKind, ScopeRef, key_id
from sessioncache.primitives.timestamps import dated

_STATE = schema.state.c
_ROWS = select(_STATE.scope_id, _STATE.key, _STATE.revision, _STATE.deleted, _STATE.value, _STATE.given_at)
_CHANGED = """
SELECT w.place, s.key, s.revision, s.deleted, s.given_at,
    CASE WHEN s.revision > w.since THEN s.value ELSE '' END AS value
FROM w JOIN sessioncache_state AS s ON s.scope_id = w.scope_id AND s.namespace = w.namespace WHERE {}
"""
_WANTED = {
    "sqlite": "WITH w AS (SELECT key AS place, value ->> 0 AS scope_id, value ->> 1 AS namespace, value ->> 2 AS since"
    " FROM json_each(?))",
    "postgresql": "WITH w AS (SELECT ordinality - 1 AS place, one ->> 0 AS scope_id, one ->> 1 AS namespace,"
    " (one ->> 2)::bigint AS since FROM json_array_elements(%s::json) WITH ORDINALITY AS given(one, ordinality))",
}
_LIVING = {"sqlite": "s.deleted = 0", "postgresql": "NOT s.deleted"}
_CHANGES = {
    dialect: f"{wanted} {_CHANGED.format(_LIVING[dialect])} UNION ALL"
    f" {_CHANGED.format('s.deleted AND s.revision > w.since')}"
    for dialect, wanted in _WANTED.items()
}
"""Living and deleted rows are read apart, since each kind has an index, which SQLite uses only for a query in its very
words."""
_CHANGED_SIZES = {
    dialect: f"{wanted} SELECT w.place, sum(length(s.value)) AS size FROM w JOIN sessioncache_state AS s"
    f" ON s.scope_id = w.scope_id AND s.namespace = w.namespace WHERE {_LIVING[dialect]} AND s.revision > w.since"
    " GROUP BY w.place"
    for dialect, wanted in _WANTED.items()
}
_EVIDENCE = """
SELECT w.place, s.key, s.revision, s.deleted, s.value, s.given_at
FROM {asked} JOIN sessioncache_state AS s ON s.scope_id = w.scope_id AND s.key_id = w.key_id
"""
_SIZES = """
SELECT w.place, sum(length(s.value)) AS size
FROM {asked} JOIN sessioncache_state AS s ON s.scope_id = w.scope_id AND s.key_id = w.key_id GROUP BY w.place
"""
_ASKED = {
    "sqlite": "(SELECT value ->> 0 AS place, value ->> 1 AS scope_id, value ->> 2 AS key_id FROM json_each(?)) AS w",
    "postgresql": "(SELECT (one ->> 0)::integer AS place, one ->> 1 AS scope_id, one ->> 2 AS key_id"
    " FROM json_array_elements(%s::json) AS given(one)) AS w",
}
_MOST = 16 * 1024 * 1024
"""Bytes of values that are evidence, or changes, at a time, and that one statement reads of evidence."""
_KEYS = 10_000
"""Entries that one statement asks about."""

StoredRow = Row[*tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What SQL knows of a scope and some of its keys, read in one snapshot (R11)."""

    fence: str | None
    """The incarnation that the fence of the scope's bucket names."""
    head: Head | None
    rows: dict[str, Entry]
    """The rows of the keys that were asked about, tombstones included (with an empty text); absent ones are left
    out."""
    oldest: int | None = None
    """The smallest revision of any other living row of the scope, if that was asked for; None if there is none."""


async def read_clock(connection: AsyncConnection) -> int:
    """The database's clock in microseconds since 1970."""
    query: Select[Any] = select(literal_column(CLOCK[connection.dialect.name]))
    return int((await connection.execute(query)).scalar_one())


async def read_scopes(connection: AsyncConnection, wanted: Sequence[tuple[ScopeRef, str]]) -> list[StoredScope]:
    """The scopes in the order asked for; FencedOff where a fence does not name the given incarnation.

    Deleted rows are not read: the heads contain the latest revision of them.
    """
    purged = await _check_fences(connection, wanted)
    refs = [ref for ref, _ in wanted]
    heads = await _read_heads(connection, refs)
    rows = await _read_rows(connection, refs)
    return [_stored(ref, heads.get(ref.id), rows.get(ref.id, []), purged[ref.bucket]) for ref in refs]


async def read_changes(connection: AsyncConnection, wanted: Sequence[tuple[ScopeRef, str, int]]) -> list[StoredScope]:
    """The changes of scopes since a revision each, in the order asked for; FencedOff as in `read_scopes`.

    `changes` has all rows above that revision, deleted and dead ones too; `unchanged` the other living ones.  Only as
    many scopes as have changes of `_MOST` bytes together, but at least one.
    """
    purged = await _check_fences(connection, [(ref, incarnation) for ref, incarnation, _ in wanted])
    heads = await _read_heads(connection, [ref for ref, _, _ in wanted])
    wanted = wanted[: await _count_fitting(connection, wanted, heads)]
    asked = json.dumps([(ref.rows_id, ref.namespace, since) for ref, _, since in wanted])
    rows: list[list[StoredRow]] = [[] for _ in wanted]
    for row in await connection.exec_driver_sql(_CHANGES[connection.dialect.name], (asked,)):
        rows[row.place].append(row)
    found = []
    for (ref, _, since), own in zip(wanted, rows, strict=True):
        changes = [_entry(row) for row in own if row.revision > since]
        unchanged = {row.key: row.revision for row in own if row.revision <= since}
        head, known, absent = _known(ref, heads.get(ref.id), own, purged[ref.bucket])
        found.append(StoredScope(head, changes, known, purged[ref.bucket], absent, unchanged))
    return found


async def _count_fitting(
    connection: AsyncConnection, wanted: Sequence[tuple[ScopeRef, str, int]], heads: Mapping[str, Head]
) -> int:
    """The number of scopes whose changes are read at once.

    After a restart of Redis the heads show for most scopes that SQL has nothing that Redis lacks: their rows need not
    be measured.
    """
    behind = [
        (place, ref, since)
        for place, (ref, _, since) in enumerate(wanted)
        if (head := heads.get(ref.id)) and max(head.flushed, head.revision) > since
    ]
    if len(behind) < 2:
        return len(wanted)
    asked = json.dumps([(ref.rows_id, ref.namespace, since) for _, ref, since in behind])
    sizes = [0] * len(wanted)
    for row in await connection.exec_driver_sql(_CHANGED_SIZES[connection.dialect.name], (asked,)):
        sizes[behind[row.place][0]] = row.size
    return max(1, bisect_right(list(accumulate(sizes)), _MOST))


async def read_evidence(connection: AsyncConnection, wanted: Sequence[Asked]) -> list[Evidence]:
    """What SQL knows of scopes, in their order: of as many as have `_MOST` bytes together, but of at least one."""
    asked = _asked(wanted)
    sizes = [0] * len(wanted)
    async for row in _asked_rows(connection, _SIZES, asked):
        sizes[row.place] += row.size
    fitting = max(1, bisect_right(list(accumulate(sizes)), _MOST))
    wanted, size = wanted[:fitting], sum(sizes[:fitting])
    fences = await read_fences(connection, {one.scope.bucket for one in wanted})
    heads = await _read_heads(connection, [one.scope for one in wanted])
    found = [Evidence(fences.get(one.scope.bucket), heads.get(one.scope.id), {}) for one in wanted]
    async for row in _asked_rows(connection, _EVIDENCE, [one for one in asked if one[0] < fitting], size):
        found[row.place].rows[row.key] = _entry(row)
    return [
        replace(evidence, oldest=await _read_oldest(connection, one, evidence.head)) if one.oldest else evidence
        for one, evidence in zip(wanted, found, strict=True)
    ]


def _asked(wanted: Sequence[Asked]) -> list[tuple[int, str, str]]:
    """For every entry that is asked about: the place of its scope, and the id of its row in SQL."""
    return [
        (place, one.scope.rows_id, key_id(one.scope.namespace, key))
        for place, one in enumerate(wanted)
        for key in one.keys
    ]


async def _asked_rows(
    connection: AsyncConnection, query: str, asked: Sequence[tuple[int, str, str]], size: int = 0
) -> AsyncIterator[StoredRow]:
    """The rows of a query about entries, with `size` bytes of values in all; `place`: of which scope."""
    text = query.format(asked=_ASKED[connection.dialect.name])
    many = min(_KEYS, max(1, len(asked) * _MOST // max(1, size)))
    for at in range(0, len(asked), many):
        for row in await connection.exec_driver_sql(text, (json.dumps(asked[at : at + many]),)):
            yield row


async def _read_oldest(connection: AsyncConnection, one: Asked, head: Head | None) -> int | None:
    """The oldest living row that was not asked about: filtered here, since a scope has few living rows.

    A statement with any number of keys as parameters, or as exclusions, would be slow with some plans.
    """
    scope, cleared, mine = one.scope, head.cleared if head else 0, frozenset(one.keys)
    of_scope = (_STATE.scope_id == scope.rows_id) & (_STATE.namespace == scope.namespace)
    living = select(_STATE.key, _STATE.revision).where(of_scope, ~_STATE.deleted, _STATE.revision > cleared)
    rows = await connection.execute(living)
    return min((revision for key, revision in rows if key not in mine), default=None)


async def read_namespaces(connection: AsyncConnection, scope_id: str) -> list[str]:
    """The names of the namespaces of a session that have living rows: those of an earlier life are dead."""
    head, record = schema.session, schema.namespace
    of_space = (record.c.scope_id == _STATE.scope_id) & (record.c.namespace == _STATE.namespace)
    joined = schema.state.outerjoin(head, head.c.scope_id == _STATE.scope_id).outerjoin(record, of_space)
    dead = case(
        (head.c.scope_id.is_(None), 0),
        (head.c.deleted, head.c.cleared),
        (record.c.cleared >= head.c.birth, record.c.cleared),
        else_=head.c.birth - 1,
    )
    mine = (_STATE.scope_id == scope_id, _STATE.namespace != "", ~_STATE.deleted, _STATE.revision > dead)
    found = select(_STATE.namespace).select_from(joined).where(*mine).distinct().order_by(_STATE.namespace)
    return list((await connection.execute(found)).scalars())


async def _check_fences(connection: AsyncConnection, wanted: Sequence[tuple[ScopeRef, str]]) -> dict[int, int]:
    """Check the fences, or raise FencedOff; the largest revision that was ever purged from each bucket."""
    fence, purged = schema.fence.c, schema.purged.c
    asked = among(connection, fence.bucket, {ref.bucket for ref, _ in wanted})
    query = select(fence.bucket, fence.incarnation, func.coalesce(purged.revision, 0)).where(asked)
    rows = await connection.execute(
        query.join_from(schema.fence, schema.purged, fence.bucket == purged.bucket, isouter=True)
    )
    found = {bucket: (incarnation, revision) for bucket, incarnation, revision in rows}
    strange = {ref.bucket for ref, incarnation in wanted if found.get(ref.bucket, ("", 0))[0] != incarnation}
    if strange:
        raise FencedOff(strange)
    return {bucket: revision for bucket, (_, revision) in found.items()}


async def _read_heads(connection: AsyncConnection, refs: Sequence[ScopeRef]) -> dict[str, Head]:
    """The heads by the scopes' own ids; a namespace has its session's, with its own record in it."""
    heads: dict[str, Head] = {}
    for kind, ids in _ids_by_kind(refs).items():
        table = schema.HEADS[kind]
        of_scope = (_STATE.scope_id == table.c.scope_id) & schema.is_deleted(schema.state)
        deleted = select(func.max(_STATE.revision)).where(of_scope)
        query = select(table, deleted.scalar_subquery().label("latest")).where(among(connection, table.c.scope_id, ids))
        for row in (await connection.execute(query)).mappings():
            head = heads[row["scope_id"]] = head_of(kind, row)
            if (row["latest"] or 0) > head.revision:
                heads[row["scope_id"]] = replace(head, revision=row["latest"])
    spaces = await _read_spaces(connection, [ref for ref in refs if ref.holder])
    found = {ref.id: heads[ref.rows_id] for ref in refs if ref.rows_id in heads}
    return found | {
        ref.id: _head_of_space(ref, found[ref.id], *spaces.get((ref.holder, ref.namespace), (0, 0)))
        for ref in refs
        if ref.holder and ref.id in found
    }


async def _read_spaces(connection: AsyncConnection, refs: Sequence[ScopeRef]) -> dict[tuple[str, str], tuple[int, int]]:
    """Session's scope and name of namespaces -> last cleared, and flush watermark."""
    space = schema.namespace.c
    if not refs:
        return {}
    asked = tuple_(space.scope_id, space.namespace).in_([(ref.holder, ref.namespace) for ref in refs])
    rows = await connection.execute(select(space.scope_id, space.namespace, space.cleared, space.revision).where(asked))
    return {(holder, name): (cleared, revision) for holder, name, cleared, revision in rows}


def _head_of_space(ref: ScopeRef, head: Head, cleared: int, flushed: int) -> Head:
    """A namespace's rows live from its session's birth on, above its own "last cleared"."""
    dead = head.cleared if head.deleted else max(head.birth - 1, cleared)
    return replace(head, namespace=ref.namespace, cleared=dead, flushed=flushed)


def _ids_by_kind(refs: Sequence[ScopeRef]) -> dict[ScopeKind, set[str]]:
    ids: dict[ScopeKind, set[str]] = defaultdict(set)
    for ref in refs:
        ids[ref.kind].add(ref.rows_id)
    return ids


async def _read_rows(connection: AsyncConnection, refs: Sequence[ScopeRef]) -> dict[str, list[StoredRow]]:
    """The rows of each scope that are not deleted, by its own id."""
    rows: dict[str, list[StoredRow]] = defaultdict(list)
    for namespace, own in _by_namespace(refs).items():
        mine = among(connection, _STATE.scope_id, own) & (_STATE.namespace == namespace)
        for row in await connection.execute(_ROWS.where(mine, ~_STATE.deleted)):
            rows[own[row.scope_id]].append(row)
    return rows


def _by_namespace(refs: Sequence[ScopeRef]) -> dict[str, dict[str, str]]:
    """Namespace ('' for whole scopes) -> the id under which SQL keeps the rows -> the scope's own id."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for ref in refs:
        found[ref.namespace][ref.rows_id] = ref.id
    return found


def _stored(ref: ScopeRef, head: Head | None, rows: list[StoredRow], purged: int) -> StoredScope:
    head, known, absent = _known(ref, head, rows, purged)
    living = [] if head.deleted else [row for row in rows if not row.deleted and row.revision > head.cleared]
    return StoredScope(head, [_entry(row) for row in living], known, purged=purged, absent=absent)


def _known(ref: ScopeRef, head: Head | None, rows: list[StoredRow], purged: int) -> tuple[Head, int, bool]:
    """The head of a scope, the largest revision that SQL knows of it, and whether SQL has nothing of it."""
    latest = max((row.revision for row in rows), default=0)
    absent = head is None and not rows
    if head is None:
        head = Head(ref.org, ref.app, ref.user, ref.session, revision=latest, namespace=ref.namespace)
    known = max(latest, head.revision, head.cleared, head.birth, head.flushed, purged)
    if ref.namespace:  # what was deleted last counts, too
        head = replace(head, values_revision=max(latest, head.flushed))
    return head, known, absent


def _entry(row: Row[*tuple[Any, ...]]) -> Entry:
    return Entry(row.key, row.revision, b"" if row.deleted else dated(row.value.encode(), row.given_at))
