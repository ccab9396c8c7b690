"""Reading scopes: hydration, and the evidence that a write is durable.  The caller's transaction is the snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, Select, case, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.dates import dated
from sessioncache.durable import schema
from sessioncache.durable.answers import FencedOff
from sessioncache.durable.bulk import CLOCK
from sessioncache.durable.fence import read_fences
from sessioncache.durable.heads import head_of
from sessioncache.entries import Entry, Head, StoredScope
from sessioncache.scopes import ScopeKind, ScopeRef, key_id

_STATE = schema.state.c
_ROWS = select(
    _STATE.scope_id,
    _STATE.key,
    _STATE.revision,
    _STATE.deleted,
    case((~_STATE.deleted, _STATE.value), else_="").label("value"),
    _STATE.given_at,
)

StoredRow = Row[Any]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What SQL knows of a scope and some of its keys, read in one snapshot (R11)."""

    fence: str | None
    """The incarnation that the fence of the scope's bucket names."""
    head: Head | None
    rows: dict[str, Entry]
    """The rows of the keys that were asked for, tombstones too (with an empty text); absent ones are left out."""
    oldest: int | None = None
    """The smallest revision of any living row of the scope, if that was asked for; None where there is none."""


async def read_clock(connection: AsyncConnection) -> int:
    """The database's clock in microseconds since 1970."""
    query: Select[Any] = select(literal_column(CLOCK[connection.dialect.name]))
    return int((await connection.execute(query)).scalar_one())


async def read_scopes(connection: AsyncConnection, wanted: Sequence[tuple[ScopeRef, str]]) -> list[StoredScope | None]:
    """The scopes in the order asked for; FencedOff where a fence does not name the incarnation given."""
    await _check_fences(connection, wanted)
    refs = [ref for ref, _ in wanted]
    heads = await _read_heads(connection, refs)
    rows = await _read_rows(connection, refs)
    return [_stored(ref, heads.get(ref.rows_id), rows.get(ref.id, [])) for ref in refs]


async def read_everything(connection: AsyncConnection, scope: ScopeRef, incarnation: str) -> StoredScope | None:
    """A scope with all of its rows, deleted and dead ones too (without text); FencedOff as `read_scopes`."""
    await _check_fences(connection, [(scope, incarnation)])
    head = (await _read_heads(connection, [scope])).get(scope.rows_id)
    rows = (await _read_rows(connection, [scope])).get(scope.id, [])
    stored = _stored(scope, head, rows)
    if stored is None:
        return None
    return replace(stored, entries=[_entry(row) for row in rows])


async def read_evidence(
    connection: AsyncConnection, scope: ScopeRef, keys: Sequence[str], *, oldest: bool = False
) -> Evidence:
    """What SQL knows of `scope` and of `keys` of it (without prefix); `oldest`: and of its oldest living row."""
    fences = await read_fences(connection, [scope.bucket])
    head = (await _read_heads(connection, [scope])).get(scope.rows_id)
    query = select(_STATE.key, _STATE.revision, _STATE.value, _STATE.given_at).where(
        _STATE.scope_id == scope.rows_id, _STATE.key_id.in_([key_id(scope.namespace, key) for key in keys])
    )
    rows = {row.key: _entry(row) for row in await connection.execute(query)}
    first = await _read_oldest(connection, scope, head.cleared if head else 0) if oldest else None
    return Evidence(fences.get(scope.bucket), head, rows, first)


async def _read_oldest(connection: AsyncConnection, scope: ScopeRef, cleared: int) -> int | None:
    mine = (_STATE.scope_id == scope.rows_id) & (_STATE.namespace == scope.namespace)
    living = select(func.min(_STATE.revision)).where(mine, ~_STATE.deleted, _STATE.revision > cleared)
    found: int | None = (await connection.execute(living)).scalar_one()
    return found


async def read_namespaces(connection: AsyncConnection, scope_id: str) -> list[str]:
    """The names of the namespaces of a session that have living rows."""
    found = select(_STATE.namespace).where(_STATE.scope_id == scope_id, _STATE.namespace != "", ~_STATE.deleted)
    return list((await connection.execute(found.distinct().order_by(_STATE.namespace))).scalars())


async def _check_fences(connection: AsyncConnection, wanted: Sequence[tuple[ScopeRef, str]]) -> None:
    fences = await read_fences(connection, [ref.bucket for ref, _ in wanted])
    strange = {ref.bucket for ref, incarnation in wanted if fences.get(ref.bucket) != incarnation}
    if strange:
        raise FencedOff(strange)


async def _read_heads(connection: AsyncConnection, refs: Sequence[ScopeRef]) -> dict[str, Head]:
    heads: dict[str, Head] = {}
    for kind, ids in _ids_by_kind(refs).items():
        table = schema.HEADS[kind]
        rows = (await connection.execute(select(table).where(table.c.scope_id.in_(ids)))).mappings()
        heads.update((row["scope_id"], head_of(kind, row)) for row in rows)
    return heads


def _ids_by_kind(refs: Sequence[ScopeRef]) -> dict[ScopeKind, list[str]]:
    ids: dict[ScopeKind, list[str]] = defaultdict(list)
    for ref in refs:
        ids[ref.kind].append(ref.rows_id)
    return ids


async def _read_rows(connection: AsyncConnection, refs: Sequence[ScopeRef]) -> dict[str, list[StoredRow]]:
    """The rows of each scope, by its own id."""
    rows: dict[str, list[StoredRow]] = defaultdict(list)
    for namespace, own in _by_namespace(refs).items():
        query: Select[Any] = _ROWS.where(_STATE.scope_id.in_(list(own)), _STATE.namespace == namespace)
        for row in await connection.execute(query):
            rows[own[row.scope_id]].append(row)
    return rows


def _by_namespace(refs: Sequence[ScopeRef]) -> dict[str, dict[str, str]]:
    """Namespace ('' for whole scopes) -> the id under which SQL keeps the rows -> the scope's own id."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for ref in refs:
        found[ref.namespace][ref.rows_id] = ref.id
    return found


def _stored(ref: ScopeRef, head: Head | None, rows: list[StoredRow]) -> StoredScope | None:
    if head is None and not rows:
        return None
    latest = max((row.revision for row in rows), default=0)
    if head is None:
        head = Head(ref.org, ref.app, ref.user, ref.session, revision=latest)
    known = max(latest, head.revision, head.cleared, head.birth)
    if ref.namespace:  # the head is that of its session
        head = replace(head, namespace=ref.namespace, values_revision=latest)
    living = [] if head.deleted else [row for row in rows if not row.deleted and row.revision > head.cleared]
    return StoredScope(head, [_entry(row) for row in living], known)


def _entry(row: Row[*tuple[Any, ...]]) -> Entry:
    return Entry(row.key, row.revision, dated(row.value.encode(), row.given_at))
