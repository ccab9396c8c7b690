"""Incarnations of buckets in Redis, and what this installation was set up with.  One typed wrapper per script."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from sessioncache.hot.layout import Layout
from sessioncache.hot.link import HotLink
from sessioncache.hot.scripts import load_script


class Incarnations:
    """The Redis side of registering (R17)."""

    def __init__(self, link: HotLink, layout: Layout) -> None:
        self._link = link
        self._layout = layout

    async def current(self, buckets: Sequence[int], unusable: Mapping[int, str]) -> dict[int, tuple[str, bool]]:
        """Each bucket's incarnation, and whether SQL is known to know it; new where Redis forgot or it is unusable."""
        calls = [
            ([self._layout.control(b)], (secrets.token_urlsafe(9).encode(), unusable.get(b, "").encode()))
            for b in buckets
        ]
        replies = await self._link.call_many(load_script("incarnation"), calls)
        return {b: (reply[0].decode(), reply[1] == 1) for b, reply in zip(buckets, replies, strict=True)}

    async def confirm(self, incarnations: Mapping[int, str]) -> None:
        """Note that SQL's fence names these; a bucket that has another one by now stays unregistered."""
        calls = [([self._layout.control(b)], (inc.encode(),)) for b, inc in incarnations.items()]
        await self._link.call_many(load_script("registered"), calls)

    async def read_record(self) -> dict[str, str]:
        """What this Redis was set up with; empty for one that was never used."""
        reply = await self._link.command(b"HGETALL", self._layout.record)
        if isinstance(reply, dict):
            return {name.decode(): value.decode() for name, value in reply.items()}
        return {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}

    async def write_record(self, values: Mapping[str, str]) -> dict[str, str]:
        """Note what this Redis is set up with, if nothing has been noted yet; what is noted now."""
        args = [part.encode() for pair in values.items() for part in pair]
        reply = await self._link.call(load_script("record"), [self._layout.record], args)
        return {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}
