"""The dirty fields of a large scope, read without Lua: a script would hold Redis up with them.

It counts as one reading all the same (R6).  The script lists the marks, with the head and the scope revision, and plain
commands read the values in pieces.  Each piece contains the scope revision at which it was read: as long as that is the
one of the list, nothing of the scope has changed, and everything is of the instant of the list.  Where it has moved,
the reading starts anew.  A scope that is written all the time would never be read so: after some rounds, list and
values are read in one transaction of Redis, which takes as long as Redis needs to copy the scope.
"""

from __future__ import annotations

from collections.abc import Sequence

from redis.exceptions import ResponseError

from sessioncache.hot.client import Argument, HotClient, Reply, Request, evaluation, pairs_of
from sessioncache.hot.errors import explain
from sessioncache.hot.fields import Field
from sessioncache.hot.scripts import Script

_ROUNDS = 5
"""Times that a large scope is read in pieces, before it is read in one transaction."""
_FIELDS, _BYTES = 2_000, 1024 * 1024
"""Fields and bytes of one piece, roughly."""
_REVISION, _SIZE = 2, 20
"""Positions in the list's head: the scope revision, and the bytes of all living values."""

Listed = tuple[Reply, Sequence[bytes | None]]
"""The reply of the script, and the values of the marks that it lists; none where it did not list them."""


async def read_in_pieces(link: HotClient, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Listed:
    """The marks of a scope, and their values at the same instant.  `keys`: the bucket's control, the scope's hash."""
    for _ in range(_ROUNDS):
        (reply,) = await link.call(script, keys, args)
        if reply[0] != b"ok":
            return reply, []
        values = await _values(link, keys[1], reply)
        if values is not None:
            return reply, values
    return await _in_one_transaction(link, script, keys, args)


async def _values(link: HotClient, name: bytes, reply: Reply) -> list[bytes | None] | None:
    """The values of marks at the scope revision at which they were listed; None where it has moved."""
    _, incarnation, _, head, marks, *_ = reply
    # None: the scope has not been marked for revalidation since.
    same = [incarnation, head[_REVISION], None]
    # By the mean, since the sizes of the single values are known only once they are read.
    mean = int(head[_SIZE] or 0) // max(1, len(marks))
    step = max(1, min(_FIELDS, _BYTES // max(1, mean)))
    values: list[bytes | None] = []
    for at in range(0, len(marks), step):
        piece = marks[at : at + step]
        (found,) = await link.ask(
            Request([(b"HMGET", name, Field.INCARNATION, Field.REVISION, Field.STALE, *piece)]), is_large=True
        )
        if found[:3] != same:
            return None
        values += found[3:]
    return values


async def _in_one_transaction(
    link: HotClient, script: Script, keys: Sequence[bytes], args: Sequence[Argument]
) -> Listed:
    # By its text: within a transaction an unknown script could not be sent again.
    call = (b"EVAL", script.text, *evaluation(script, keys, args)[2:])
    commands: list[Sequence[Argument]] = [(b"MULTI",), call, (b"HGETALL", keys[1]), (b"EXEC",)]
    told = (await link.ask(Request(commands), is_large=True))[-1]
    for one in told:
        if isinstance(one, ResponseError):
            raise explain(one)
    (reply,), body = told[0], pairs_of(told[1])
    return reply, [body.get(mark) for mark in reply[4]] if reply[0] == b"ok" else []
