"""The key space: scopes that are found and read without being loaded, kept longer or registered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sessioncache.hot.client import HotClient
from sessioncache.hot.fields import Field, text_of
from sessioncache.hot.layout import Layout, Place

_KEYS_AT_ONCE = 500
_IDLE = b"idle_ttl"
"""A field of the first bucket's control hash: milliseconds for which a clean scope stays, as a cache recorded last."""


class Names(NamedTuple):
    """Whose scope it is, as its hash has it; texts are empty where it has none."""

    org: str
    app: str
    user: str
    session: str
    namespace: str
    is_there: bool
    """Whether it has a revision."""


class Keyspace:
    """What is hot, by plain commands."""

    def __init__(self, link: HotClient, layout: Layout) -> None:
        self._link, self._layout = link, layout

    async def scopes(self, bucket: int | None, cursor: bytes) -> tuple[bytes, list[tuple[int, str]]]:
        """The next cursor, and bucket and member of hot scopes (of one bucket); cursors begin and end at 0.

        Each scope that stays hot comes at least once.
        """
        # SCAN: Redis goes through all of its keys, of which those of other programs are passed over.
        pattern = self._layout.hashes(bucket)
        cursor, keys = await self._link.command(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", _KEYS_AT_ONCE)
        # From the right: the prefix may have the same letters in it, and a member never has.
        found = (key.rsplit(b":h:", 1) for key in keys)
        return cursor, [(self._layout.bucket_of_base(base), member.decode()) for base, member in found]

    async def namespaces(self, bucket: int, cursor: bytes) -> tuple[bytes, list[str]]:
        """The next cursor, and members of namespaces of a bucket that are hot, or were."""
        spaces = self._layout.spaces(bucket)
        cursor, members = await self._link.command(b"SSCAN", spaces, cursor, b"COUNT", _KEYS_AT_ONCE)
        return cursor, [member.decode() for member in members]

    async def names(self, scopes: Sequence[tuple[int, str]]) -> list[Names | None]:
        """Whose scopes these are, by bucket and member; None for a key that is no scope."""
        fields = (Field.ORG, Field.APP, Field.USER, Field.SESSION, Field.NAMESPACE, Field.REVISION)
        replies = await self._link.exchange([(b"HMGET", self._layout.hash(*scope), *fields) for scope in scopes], {})
        # A key of another type gives an error in place of its names.
        return [_names(reply) if isinstance(reply, list) else None for reply in replies]

    async def life(self, place: Place) -> tuple[bytes | None, bool]:
        """The birth of a session, None where it is not hot, and whether it was deleted."""
        birth, deleted = await self._link.command(b"HMGET", place.hash, Field.BIRTH, Field.DELETED)
        return birth, deleted is not None

    async def is_dirty(self, place: Place) -> bool:
        """Whether SQL lacks something of a scope."""
        return bool(await self._link.command(b"EXISTS", place.dirty))

    async def idle_ms(self) -> int | None:
        """Milliseconds for which a clean scope stays, as a cache recorded last; None: none did."""
        told = await self._link.command(b"HGET", self._layout.control(0), _IDLE)
        # What an operator wrote there by hand is no reason to fail.
        return int(told) if told and told.isdigit() else None

    async def set_idle_ms(self, milliseconds: int) -> None:
        """Record how long a clean scope stays."""
        await self._link.command(b"HSET", self._layout.control(0), _IDLE, milliseconds)


def _names(values: Sequence[bytes | None]) -> Names:
    *names, revision = values
    org, app, user, session, namespace = map(text_of, names)
    return Names(org, app, user, session, namespace, revision is not None)
