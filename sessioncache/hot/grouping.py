"""Grouped calls: one call of a script serves several scopes of a bucket, and answers for each scope (R10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sessioncache.hot.client import Argument, HotClient, Reply
from sessioncache.hot.messages import Damaged
from sessioncache.hot.scripts import Script

Call = tuple[Sequence[bytes], Sequence[Argument]]
"""Keys and arguments."""


async def call_groups(
    link: HotClient, script: Script, groups: Sequence[Sequence[int]], call_of: Callable[[Sequence[int]], Call]
) -> list[list[Reply]]:
    """The answers for the scopes of each group (by their places), which one call serves.

    Where it fails, since one of them is damaged, each is asked for alone: `Damaged` is the answer for that one only.
    """
    replies = await link.call_each(script, [call_of(group) for group in groups])
    # A script that fails has answered for none of its scopes: each is asked for alone to find the damaged one.
    failed = [group for group, reply in zip(groups, replies, strict=True) if isinstance(reply, Damaged)]
    each = await link.call_each(script, [call_of([place]) for group in failed if len(group) > 1 for place in group])
    alone = iter(each)
    return [_answers(group, reply, alone) for group, reply in zip(groups, replies, strict=True)]


def _answers(group: Sequence[int], reply: Reply, alone: Iterator[Reply]) -> list[Reply]:
    if not isinstance(reply, Damaged):
        return list(reply)
    if len(group) == 1:
        return [reply]
    return [one if isinstance(one, Damaged) else one[0] for one in (next(alone) for _ in group)]
