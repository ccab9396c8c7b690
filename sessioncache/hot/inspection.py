"""Reading a session in Redis without a trace: nothing is loaded, renewed or registered."""

from __future__ import annotations

from typing import NamedTuple

from redis.exceptions import ResponseError

from sessioncache.hot.client import HotClient, pairs_of
from sessioncache.hot.errors import explain
from sessioncache.hot.fields import HEAD_MARK
from sessioncache.hot.layout import Place

_LONGEST_LEASE = 86_400_000_000
"""Microseconds; a lease that seems to last longer was dated by a clock that has been set back since."""


class Sight(NamedTuple):
    """A session as it was in Redis at one moment."""

    hot: bool
    dirty: bool
    """Whether SQL lacks something of its own keys, of its head or of its namespaces."""
    refused: int
    """Entries of its own that the database refuses: dead letters."""
    lease: tuple[bytes, float] | None
    """The life that a run lease belongs to, and the seconds that it lasts yet; None: nobody holds one."""


async def look(link: HotClient, place: Place) -> Sight:
    """Read the session at `place`, in one round trip."""
    spaces = place.control[:-3] + b"ns:" + place.ref.id.encode()
    lease = b"l:" + place.ref.member.encode()
    commands = [
        (b"EXISTS", place.hash),
        (b"EXISTS", place.dirty, spaces),
        (b"HMGET", place.control, b"incarnation", lease),
        (b"TIME",),
        (b"HGETALL", place.control[:-3] + b"dead"),
    ]
    replies = await link.exchange(commands, {})
    # Not one atomic step: each command only reads, and an operator's view may be of two close moments.
    for reply in replies:
        if isinstance(reply, ResponseError):
            raise explain(reply)
    hot, dirty, (incarnation, held), (seconds, micros), letters = replies
    refused = _refused(place.ref.member.encode(), pairs_of(letters))
    return Sight(bool(hot), bool(dirty), refused, _lease(held, incarnation, int(seconds) * 1_000_000 + int(micros)))


def _refused(member: bytes, letters: dict[bytes, bytes]) -> int:
    """How many of its entries are dead letters: the names are member and field (lua/record_failure.lua)."""
    own = (member + b"=", member + HEAD_MARK)
    # State 0: a failure that is no dead letter yet.
    return sum(name.startswith(own) and value[10:11] != b"0" for name, value in letters.items())


def _lease(held: bytes | None, incarnation: bytes | None, now: int) -> tuple[bytes, float] | None:
    """The lease, unless Redis has forgotten it: a lease belongs to one incarnation."""
    if held is None:
        return None
    under, birth, _, ends = held.split(b"|")
    left = int(ends) - now
    return (birth, left / 1_000_000) if under == incarnation and 0 < left <= _LONGEST_LEASE else None
