"""Fences: which incarnation of a bucket's Redis may write, swapped by compare-and-set, with their history (R17).

The fence is a fencing token: a flush under another incarnation commits nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnClause, Insert, Select, Table, bindparam, literal_column, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import schema
from sessioncache.durable.any_of import among
from sessioncache.durable.bulk import CLOCK, NOW
from sessioncache.durable.messages import Swap
from sessioncache.primitives.ownership import check_owner

_NONE = "-"
"""The installation of a database that has no record of one."""
# Without SQLAlchemy, which would compile a statement with so many parameters each time.
_LOCKING = {
    "postgresql": f"SELECT bucket, incarnation, {CLOCK['postgresql']} FROM {schema.fence.name}"
    " WHERE bucket = ANY (%s::integer[]) ORDER BY bucket FOR SHARE",
    "sqlite": f"SELECT bucket, incarnation, {CLOCK['sqlite']} FROM {schema.fence.name}"
    " WHERE bucket IN (SELECT value FROM json_each(?))",
}
_BRACES = str.maketrans("[]", "{}")


Changes = Mapping[int, tuple[str | None, str]]


def insert_ignoring(connection: AsyncConnection, table: Table) -> Insert:
    """An insert that leaves rows that are there already as they are."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return postgresql.insert(table).on_conflict_do_nothing()


async def lock_fences(connection: AsyncConnection, buckets: set[int]) -> tuple[dict[int, str], int]:
    """The fences, locked until the end of the transaction, and the database's clock."""
    dialect = connection.dialect.name
    wanted = json.dumps(sorted(buckets)).translate(_BRACES if dialect == "postgresql" else {})
    rows: Sequence[Any] = (await connection.exec_driver_sql(_LOCKING[dialect], (wanted,))).all()
    return {row[0]: row[1] for row in rows}, max((row[2] for row in rows), default=0)


async def read_fences(connection: AsyncConnection, buckets: Iterable[int]) -> dict[int, str]:
    """The incarnation that each bucket's fence names, absent ones left out."""
    return {row.bucket: row.incarnation for row in await connection.execute(_fences_of(connection, buckets))}


def _fences_of(connection: AsyncConnection, buckets: Iterable[int]) -> Select[int, str]:
    fence = schema.fence.c
    return select(fence.bucket, fence.incarnation).where(among(connection, fence.bucket, set(buckets)))


async def named_by_fences(connection: AsyncConnection, held: Mapping[int, str]) -> dict[int, str]:
    """Those of the incarnations that their fences name.  ConfigurationError for one of another database."""
    fences = await read_fences(connection, held)
    named = {bucket: one for bucket, one in held.items() if fences.get(bucket) == one}
    await check_owned(connection, named.values())
    return named


async def _lock_fences(connection: AsyncConnection, buckets: Iterable[int], *, wait: bool) -> dict[int, str]:
    """As `read_fences`, and keeps others from changing them; without `wait` those are left out that another
    transaction holds."""
    query = _fences_of(connection, buckets).order_by(schema.fence.c.bucket).with_for_update(skip_locked=not wait)
    return {row.bucket: row.incarnation for row in await connection.execute(query)}


async def swap_fences(connection: AsyncConnection, changes: Changes, *, wait: bool = True) -> dict[int, Swap]:
    """Bucket → (incarnation as read, new incarnation): swap where the fence is still as read.

    `wait`: for fences that other transactions hold; else these count as moved.
    """
    await check_owned(connection, {new for _, new in changes.values()})
    # The history first: whatever it has by then, the fences read after it have had, even where no row could be locked.
    past = await _registered(connection, changes)
    current = await _lock_fences(connection, changes, wait=wait)
    verdicts = {
        bucket: Swap.MOVED
        if not wait and old and bucket not in current  # another transaction holds it
        else _verdict(current.get(bucket), old, new, (bucket, new) in past)
        for bucket, (old, new) in sorted(changes.items())
    }
    swapped = {bucket: changes[bucket][1] for bucket, verdict in verdicts.items() if verdict is Swap.SWAPPED}
    await _replace(connection, {bucket: new for bucket, new in swapped.items() if bucket in current})
    outrun = await _insert_absent(connection, {bucket: new for bucket, new in swapped.items() if bucket not in current})
    await _insert(connection, schema.incarnation, {b: new for b, new in swapped.items() if b not in outrun})
    return verdicts | dict.fromkeys(outrun, Swap.MOVED)


async def check_owned(connection: AsyncConnection, incarnations: Collection[str]) -> None:
    """R18: what was made for another database is not registered here, whatever the URL led to before."""
    if incarnations:
        query = select(schema.layout.c.value).where(schema.layout.c.name == "installation")
        installation = (await connection.execute(query)).scalar()
        for incarnation in incarnations:
            check_owner(incarnation, installation or _NONE)


def _verdict(current: str | None, old: str | None, new: str, known: bool) -> Swap:
    if current == new:
        return Swap.CURRENT
    if known:
        return Swap.REPLACED
    return Swap.SWAPPED if current == old else Swap.MOVED


async def _registered(connection: AsyncConnection, changes: Changes) -> set[tuple[int, str]]:
    """Which of the new incarnations the history has."""
    table = schema.incarnation.c
    of_these = (
        among(connection, table.bucket, changes),
        among(connection, table.incarnation, {new for _, new in changes.values()}),
    )
    rows = await connection.execute(select(table.bucket, table.incarnation).where(*of_these))
    return {(bucket, name) for bucket, name in rows}


async def _replace(connection: AsyncConnection, fences: Mapping[int, str]) -> None:
    if not fences:
        return
    statement = (
        update(schema.fence)
        .where(schema.fence.c.bucket == bindparam("of"))
        .values(incarnation=bindparam("new"), registered_at=_now(connection))
    )
    await connection.execute(statement, [{"of": bucket, "new": new} for bucket, new in fences.items()])


async def _insert_absent(connection: AsyncConnection, fences: Mapping[int, str]) -> set[int]:
    """Insert fences where there was none to lock; the buckets where another process was faster."""
    if not fences:
        return set()
    await _insert(connection, schema.fence, fences)
    now = await read_fences(connection, fences)
    return {bucket for bucket, new in fences.items() if now.get(bucket) != new}


async def _insert(connection: AsyncConnection, table: Table, fences: Mapping[int, str]) -> None:
    if not fences:
        return
    statement = insert_ignoring(connection, table).values(
        bucket=bindparam("of"), incarnation=bindparam("new"), registered_at=_now(connection)
    )
    await connection.execute(statement, [{"of": bucket, "new": new} for bucket, new in fences.items()])


def _now(connection: AsyncConnection) -> ColumnClause[Any]:
    return literal_column(NOW[connection.dialect.name])
