"""Incarnations of buckets in Redis, and the record of the installation.  One typed wrapper per script.

An *incarnation* is a random id of what a bucket's Redis remembers; a new one means that it may have forgotten
something.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sessioncache.errors import ConfigurationError, HotTierUnavailableError
from sessioncache.hot.client import Argument, HotClient, Reply
from sessioncache.hot.layout import Layout
from sessioncache.hot.scripts import load_script
from sessioncache.primitives.ownership import INSTALLATION, TAKEN, tag_of


class Current(NamedTuple):
    """The incarnation that a bucket has now."""

    id: str
    registered: bool
    """Whether SQL is known to have it registered."""
    kept: bool = False
    """Whether it was registered, but it has to be checked that SQL's fence still names it."""
    before: str = ""
    """For an unregistered one: the one before, if Redis, as far as it can tell, still had all of it."""
    whole: str = ""
    """For one that was made now: the one that it replaced, if Redis had all of it at that moment."""


class Incarnations:
    """The Redis side of registering (R17)."""

    def __init__(self, link: HotClient, layout: Layout) -> None:
        self._link = link
        self._layout = layout
        self.database = ""
        """The installation of the database that this process works with, once that is known."""
        self.record: Mapping[str, str] = {}
        """The installation that this Redis belongs to, as this process has read it."""

    async def current(
        self, buckets: Sequence[int], unusable: Mapping[int, str], *, replaced: bool = False
    ) -> dict[int, Current]:
        """Each bucket's incarnation; a new one where Redis forgot, or it is unusable; `replaced`: because SQL has
        replaced it.

        HotTierUnavailableError where SQL replaces one after the other: another Redis does the same.
        """
        calls = [
            ([self._layout.control(b)], (self._new_id(), unusable.get(b, "").encode(), int(replaced))) for b in buckets
        ]
        replies = await self._link.call_many(load_script("incarnation"), calls)
        return {b: _current(reply) for b, reply in zip(buckets, replies, strict=True)}

    def _new_id(self) -> bytes:
        # R18: each reply shows an incarnation, and with this tag also which database Redis belongs to.
        return f"{secrets.token_urlsafe(9)}{tag_of(self.database)}".encode()

    async def registered(self, buckets: Sequence[int]) -> dict[int, str]:
        """The incarnation with which each bucket is registered, under whatever replid; others are left out."""
        commands = [(b"HMGET", self._layout.control(bucket), b"incarnation", b"registered") for bucket in buckets]
        found = zip(buckets, await self._link.exchange(commands, {}), strict=True)
        # An error in place of a reply is met again, and raised, by whoever registers the bucket.
        replies = ((bucket, *reply) for bucket, reply in found if isinstance(reply, list))
        return {bucket: name.decode() for bucket, name, is_registered in replies if name and is_registered == b"1"}

    async def confirm(self, incarnations: Mapping[int, str], forgetful: Collection[int] = ()) -> set[int]:
        """Record that SQL's fence names these; a bucket that has another one by now stays unregistered.

        The buckets that are registered now.  `forgetful`: buckets of which Redis had lost something.
        """
        calls = [([self._layout.control(b)], (inc.encode(), int(b in forgetful))) for b, inc in incarnations.items()]
        return await self._registered(list(incarnations), calls)

    async def keep(self, buckets: Sequence[int]) -> set[int]:
        """Use what there is: the buckets whose incarnation SQL has ever known, and of which Redis forgot nothing."""
        # Without a name the script confirms the incarnation that there is, if SQL has ever known it.
        return await self._registered(buckets, [([self._layout.control(b)], (b"", 0)) for b in buckets])

    async def _registered(
        self, buckets: Sequence[int], calls: Sequence[tuple[Sequence[bytes], Sequence[Argument]]]
    ) -> set[int]:
        replies = await self._link.call_many(load_script("registered"), calls)
        return {bucket for bucket, reply in zip(buckets, replies, strict=True) if reply[0] == b"ok"}

    async def read_record(self) -> dict[str, str]:
        """The installation that this Redis belongs to; empty for one that was never used."""
        reply = await self._link.command(b"HGETALL", self._layout.record)
        if isinstance(reply, dict):
            return {name.decode(): value.decode() for name, value in reply.items()}
        return {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}

    async def rewrite_record(self, values: Mapping[str, str]) -> None:
        """Record the installation that this Redis belongs to from now on, whatever was recorded."""
        await self._link.command(b"HSET", self._layout.record, *(part for pair in values.items() for part in pair))

    async def claim(self) -> None:
        """Record the installation again, if Redis forgot it, before another one is set up in it.

        ConfigurationError where that has happened.
        """
        if self.record and (await self.write_record(self.record))[INSTALLATION] != self.record[INSTALLATION]:
            raise ConfigurationError(TAKEN)

    async def write_record(self, values: Mapping[str, str]) -> dict[str, str]:
        """Record the installation, if none is recorded yet; what is recorded then."""
        args = [part.encode() for pair in values.items() for part in pair]
        reply = await self._link.call(load_script("record"), [self._layout.record], args)
        return {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _current(reply: Reply) -> Current:
    if reply[0] == b"contended":
        raise HotTierUnavailableError(
            "another Redis works with this database, too, and each takes it from the other: stop one of them"
            " (two hot tiers, or a primary that was deposed and lives on)"
        )
    return Current(reply[0].decode(), reply[1] == 1, reply[1] == 2, reply[2].decode(), reply[3].decode())
