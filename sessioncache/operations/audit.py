"""The audit: samples of both tiers are compared, and what differs is marked for revalidation."""

from __future__ import annotations

import logging
from dataclasses import replace

from sessioncache.coordination.tiers import Tiers
from sessioncache.hot.fields import Field
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Content
from sessioncache.hot.signals import Gone, Unready
from sessioncache.primitives.entries import Entry, StoredScope
from sessioncache.primitives.revisions import DIGITS, LARGEST, ZERO, decode_revision, encode_revision
from sessioncache.primitives.scopes import ScopeRef

logger = logging.getLogger(__name__)

_IDENTITY = (Field.ORG, Field.APP, Field.USER, Field.SESSION, Field.NAMESPACE, Field.HOLDER)


async def compare(tiers: Tiers, bucket: int, member: str) -> bool:
    """Compare one clean hot scope with SQL; False if they differ (True also if it is not hot, or dirty: nothing is
    known then).

    Where they differ the scope is marked for revalidation, and pinned until then.
    """
    place = tiers.backlog.place(bucket, member)
    content = await _clean(tiers, place)
    if content is None:
        return True
    place = replace(place, ref=_identified(place.ref, content))
    is_ahead = await _is_ahead(tiers, place)
    (stored,) = await tiers.durable.read_changes([(place.ref, content.incarnation.decode(), 0)])
    again = await _clean(tiers, place)
    if again is None or again.head.get(Field.REVISION) != content.head.get(Field.REVISION):
        return True
    if place.ref.holder and await _is_orphan(tiers, place, content, stored):
        await tiers.backlog.scrub(place, LARGEST)
        return True
    if is_ahead:
        return True
    if Field.DELETED in content.head and stored.absent and _revision(content, Field.CLEARED) <= stored.purged:
        return True
    wrong = _what_differs(content, stored)
    if wrong:
        logger.error("%s of scope %s: it is revalidated", wrong, place.ref.id)
        await tiers.merging.mark_stale(place, content.head[Field.REVISION])
    return not wrong


def _what_differs(content: Content, stored: StoredScope) -> str:
    if (
        stored.head.flushed < _revision(content, Field.FLUSHED)
        or _revision(content, Field.CLEARED) > stored.head.cleared
    ):
        return "SQL has forgotten something that was flushed"
    if _sql_lacks(content, stored):
        return "SQL lacks something that was flushed"
    return "Redis lacks something that SQL has" if _hot_lacks(content, stored) else ""


async def _is_orphan(tiers: Tiers, place: Place, content: Content, stored: StoredScope) -> bool:
    """Whether a namespace belongs to a life of its session that is over: nobody can reach it."""
    host = tiers.layout.host(place, place.ref.holder)
    birth, deleted = await tiers.keyspace.life(host)
    if birth is None:  # SQL knows everything of a session that is not hot
        birth, deleted = encode_revision(stored.head.birth), stored.head.deleted
    return deleted or birth != content.head.get(Field.BIRTH)


async def _is_ahead(tiers: Tiers, place: Place) -> bool:
    """Whether a namespace's session is dirty: SQL may not know yet of the life that both belong to."""
    if not place.ref.holder:
        return False
    return await tiers.keyspace.is_dirty(tiers.layout.host(place, place.ref.holder))


async def _clean(tiers: Tiers, place: Place) -> Content | None:
    """What a scope holds; None where it is not hot, dirty, or has to be revalidated first."""
    try:
        return await tiers.hot.peek(place)
    except (Unready, Gone):
        return None


def _sql_lacks(content: Content, stored: StoredScope) -> bool:
    rows = {entry.key: entry for entry in stored.entries}
    return _updated(content) > stored.head.updated or any(
        key not in rows or rows[key].revision < decode_revision(value[:DIGITS])
        for key, value in content.entries.items()
    )


def _hot_lacks(content: Content, stored: StoredScope) -> bool:
    cleared = _revision(content, Field.CLEARED)
    # The head in SQL of a namespace is its session's.
    newer = Field.NAMESPACE not in content.head and _updated(content) < stored.head.updated
    return newer or any(_is_news(content, row) for row in stored.entries if row.revision > cleared)


def _updated(content: Content) -> int:
    """When a session's head last changed; 0 for another scope's, as in SQL."""
    return _revision(content, Field.UPDATED)


def _revision(content: Content, name: bytes) -> int:
    return decode_revision(content.head.get(name) or ZERO)


def _is_news(content: Content, row: Entry) -> bool:
    value = content.entries.get(row.key)
    if value is None:
        return bool(row.text)
    return row.revision > decode_revision(value[:DIGITS])


def _identified(ref: ScopeRef, content: Content) -> ScopeRef:
    """The scope with the identity that its head names."""
    org, app, user, session, namespace, holder = (content.head.get(name, b"").decode() for name in _IDENTITY)
    return replace(ref, org=org, app=app, user=user, session=session, namespace=namespace, holder=holder)
