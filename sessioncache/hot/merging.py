"""The scripts of revalidation and of dead letters, by typed wrappers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from sessioncache.entries import StoredScope
from sessioncache.errors import HotTierUnavailableError
from sessioncache.hot.calls import Need, TokenLost, Unready
from sessioncache.hot.layout import Layout, Place, fields_of, parents, user_field
from sessioncache.hot.link import HotLink
from sessioncache.hot.scripts import load_script
from sessioncache.hot.tier import TOKEN_LIFETIME_MS
from sessioncache.revisions import encode_revision
from sessioncache.scopes import ScopeKind
from sessioncache.settings import TOMBSTONE_RETENTION


@dataclass(frozen=True, slots=True)
class Taken:
    """A scope whose token for a revalidation is ours."""

    place: Place
    token: bytes
    incarnation: str


class Merging:
    """Brings together what Redis still has of a scope and what SQL has."""

    def __init__(self, link: HotLink, layout: Layout, *, idle_ttl: float) -> None:
        self._link = link
        self._layout = layout
        self.idle_ms = max(1, int(idle_ttl * 1000))

    async def take_token(self, place: Place) -> Taken | float | None:
        """The token; or the seconds another process has left; or None: there is nothing to do (any more)."""
        token = secrets.token_hex(8).encode()
        args = (token, TOKEN_LIFETIME_MS, b"1", b"", self.idle_ms)
        reply = await self._link.call(load_script("token"), [place.control, place.hash], args)
        if reply[0] == b"register":
            raise Unready(Need.REGISTER, [place])
        if reply[0] == b"host":
            raise Unready(Need(reply[1].decode()), [self._layout.host(place, reply[2].decode())])
        if reply[0] == b"wait":
            return int(reply[1]) / 1000
        if reply[0] in (b"hot", b"gone"):
            return None
        org, app, user, session, holder, namespace = (text.decode() for text in reply[2:8])
        ref = replace(place.ref, org=org, app=app, user=user, session=session, holder=holder, namespace=namespace)
        return Taken(replace(place, ref=ref, parents=parents(ref)), token, reply[1].decode())

    async def merge(self, taken: Taken, stored: StoredScope | None) -> int:
        """Merge what SQL has (all rows, deleted ones too); the marks that are left.  TokenLost."""
        place = taken.place
        args: list[bytes | int] = [taken.token, self.idle_ms, TOMBSTONE_RETENTION * 1000, place.parents]
        args += _sql_side(place, stored)
        reply = await self._link.call(load_script("merge"), [place.control, place.hash], args)
        if reply[0] == b"retry":
            raise TokenLost
        if reply[0] == b"register":
            raise Unready(Need.REGISTER, [place])
        return int(reply[1])

    async def release(self, taken: Taken) -> None:
        """Give a token back that was not used, so that nobody waits for a process that failed or was cancelled."""
        place = taken.place
        with suppress(HotTierUnavailableError):
            await self._link.call(load_script("absent"), [place.control, place.hash], [taken.token])

    async def flag(self, place: Place, revision: bytes) -> bool:
        """Have a clean scope that is still at `revision` compared with SQL when it is touched next."""
        return bool((await self._link.call(load_script("flag"), [place.control, place.hash], [revision]))[1])

    async def remark(self, place: Place, parent_ids: bytes) -> int:
        """Mark a whole scope as dirty; the number of marks."""
        reply = await self._link.call(load_script("remark"), [place.control, place.hash], [parent_ids])
        if reply[0] == b"register":
            raise Unready(Need.REGISTER, [place])
        return int(reply[1]) if reply[0] == b"ok" else 0


def _sql_side(place: Place, stored: StoredScope | None) -> Sequence[bytes | int]:
    if stored is None:
        return [encode_revision(0), b"", b"", b"", b"", 0]
    rows = [
        part
        for entry in stored.entries
        for part in (user_field(entry.key), encode_revision(entry.revision) + entry.text)
    ]
    if place.ref.kind is ScopeKind.NAMESPACE:  # its head is its session's, whose life has been checked
        return [encode_revision(stored.known), b"", b"", b"", b"", 0, *rows]
    head = stored.head
    fields = fields_of(head, place.ref.kind)
    told: list[bytes | int] = [
        encode_revision(stored.known),
        encode_revision(head.birth),
        encode_revision(head.cleared),
        b"1" if head.deleted else b"",
        encode_revision(head.updated),
        len(fields) // 2,
        *fields,
    ]
    return [*told, *rows]
