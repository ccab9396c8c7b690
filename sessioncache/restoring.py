"""After SQL forgot (a restored backup): everything that is hot is marked as dirty, and flushed again (R18)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from sessioncache.deadline import within
from sessioncache.hot.calls import Unready
from sessioncache.hot.layout import parents
from sessioncache.scopes import ScopeKind, ScopeRef
from sessioncache.tiers import Tiers

_SCAN = 500


@dataclass(frozen=True, slots=True)
class Remarked:
    """What was marked."""

    scopes: int
    entries: int


async def remark_everything(tiers: Tiers) -> Remarked:
    """Mark every hot scope as dirty.

    Every bucket gets a new incarnation first, so that what was flushed to the database as it was before the restore
    counts as evidence for nothing any more.
    """
    with within(60):
        await tiers.registrar.renew(range(tiers.settings.buckets))
    scopes = entries = 0
    async for bucket, member in hot_scopes(tiers):
        with within(tiers.settings.timeout):
            marked = await _remark(tiers, bucket, member)
        scopes += marked > 0
        entries += marked
    return Remarked(scopes, entries)


async def hot_scopes(tiers: Tiers, bucket: int | None = None) -> AsyncIterator[tuple[int, str]]:
    """Bucket and member of every scope that is hot (in one bucket); each that stays hot comes at least once."""
    async for page in hot_pages(tiers, bucket):
        for scope in page:
            yield scope


async def hot_pages(tiers: Tiers, bucket: int | None = None) -> AsyncIterator[list[tuple[int, str]]]:
    """As `hot_scopes`, those that one look at 500 keys finds at a time; none where all of these are something else."""
    cursor = b"0"
    pattern = tiers.layout.hashes(bucket)
    while True:
        with within(tiers.settings.timeout):
            cursor, keys = await tiers.link.command(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", _SCAN)
        found = (key.rsplit(b":h:", 1) for key in keys)
        yield [(tiers.layout.bucket_of_base(base), member.decode()) for base, member in found]
        if cursor == b"0":
            return


async def _remark(tiers: Tiers, bucket: int, member: str) -> int:
    place = tiers.backlog.place(bucket, member)
    names = await tiers.link.command(b"HMGET", place.hash, b"o", b"a", b"w", b"s", b"g", b"d")
    org, app, user, session, namespace, holder = ((part or b"").decode() for part in names)
    above = parents(ScopeRef(ScopeKind(member[0]), org, app, user, session, namespace, holder))
    try:
        return await tiers.merging.remark(place, above)
    except Unready:
        await tiers.registrar.register([bucket])
        return await tiers.merging.remark(place, above)
