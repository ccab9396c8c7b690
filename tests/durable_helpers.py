"""What the tests of the durable tier share: scopes, dirt, and a tier with its schema and fences in place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import text

from sessioncache.durable.migrate import upgrade_schema
from sessioncache.durable.tier import DurableTier
from sessioncache.primitives.entries import Dirt, Entry, Head
from sessioncache.primitives.scopes import ScopeKind, ScopeRef, app_ref, session_ref, user_ref

BUCKETS = 8
INCARNATION = "first"


def session(name: str = "s", user: str = "u") -> ScopeRef:
    """A session's scope of the tests' app."""
    return session_ref(BUCKETS, "org", "app", user, name)


def user(name: str = "u") -> ScopeRef:
    """A user's scope of the tests' app."""
    return user_ref(BUCKETS, "org", "app", name)


def app() -> ScopeRef:
    """The scope of the tests' app."""
    return app_ref(BUCKETS, "org", "app")


def dirt(
    ref: ScopeRef,
    revision: int,
    values: Mapping[str, bytes] | None = None,
    *,
    incarnation: str = INCARNATION,
    **head: Any,
) -> Dirt:
    """Dirt of a scope, all of it at one revision; an empty value is a deletion."""
    entries = [Entry(key, revision, value) for key, value in (values or {}).items()]
    if ref.kind is ScopeKind.SESSION:
        head = {"updated": revision, "values_revision": revision} | head
    record = Head(ref.org, ref.app, ref.user, ref.session, revision, **head)
    return Dirt(ref.kind, ref.id, ref.bucket, incarnation, record, b"", entries)


async def put(tier: DurableTier, *batch: Dirt) -> list[tuple[int | None, list[int | None]]]:
    """Flush what was read just now; the revisions of heads and rows then."""
    result = await tier.flush(batch, read_after=await tier.clock())
    assert not result.fenced
    return [(committed.head_revision, committed.revisions) for committed in result.committed]


async def values_of(tier: DurableTier, ref: ScopeRef) -> dict[str, bytes] | None:
    """The living entries of a scope, None where SQL does not know it."""
    (stored,) = await tier.read_scopes([(ref, INCARNATION)])
    return None if stored.absent else {entry.key: entry.text for entry in stored.entries}


async def count_rows(tier: DurableTier, table: str) -> int:
    """How many rows a table has."""
    async with tier.engine.connect() as connection:
        return int((await connection.execute(text(f"SELECT count(*) FROM sessioncache_{table}"))).scalar_one())


@asynccontextmanager
async def open_tier(url: str, **settings: Any) -> AsyncIterator[DurableTier]:
    """A tier with its schema, all fences naming `INCARNATION`."""
    tier = DurableTier.connect(url, **settings)
    try:
        await upgrade_schema(tier.engine)
        await tier.swap_fences(dict.fromkeys(range(BUCKETS), (None, INCARNATION)))
        yield tier
    finally:
        await tier.aclose()
