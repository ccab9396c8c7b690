"""The poll: finds the buckets in which something is dirty, at next to no cost while nothing is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from redis.exceptions import ClusterCrossSlotError, ResponseError

from sessioncache.hot.client import HotClient, Reply
from sessioncache.hot.errors import explain
from sessioncache.hot.layout import Layout

_TOGETHER = 64
"""Buckets that one command covers."""


class Poll:
    """Searches many buckets."""

    def __init__(self, link: HotClient, layout: Layout) -> None:
        self._link = link
        self._layout = layout
        self._together = True

    async def dirty(self, buckets: Sequence[int]) -> list[int]:
        """Those of some buckets that have a dirty scope.  HotTierUnavailableError.

        One command for every 64 buckets shows that most have none; a cluster, where the keys lie apart, is asked bucket
        by bucket.
        """
        # EXISTS counts: a group of clean buckets costs one number.
        if self._together:
            groups = [buckets[at : at + _TOGETHER] for at in range(0, len(buckets), _TOGETHER)]
            counts = await self._count(groups)
            # Remembered: a cluster refuses keys of several slots each time.
            self._together = not any(isinstance(count, ClusterCrossSlotError) for count in counts)
            if self._together:
                buckets = [bucket for group in _some(groups, counts) for bucket in group]
        single = [[bucket] for bucket in buckets]
        return [bucket for (bucket,) in _some(single, await self._count(single))] if single else []

    async def _count(self, groups: Sequence[Sequence[int]]) -> list[Reply]:
        return await self._link.exchange([(b"EXISTS", *map(self._layout.dirty, group)) for group in groups], {})


def _some(groups: Iterable[Sequence[int]], counts: Iterable[Reply]) -> list[Sequence[int]]:
    """The groups that count something."""
    found = []
    for group, count in zip(groups, counts, strict=True):
        if isinstance(count, ResponseError):
            raise explain(count)
        if count:
            found.append(group)
    return found
