"""Forks in Redis, and what they need beforehand.  One typed wrapper per script.

A fork copies all namespaces of a session, but no script can list them: those that were flushed and have left Redis are
known to SQL alone.  So they are listed first, and the script refuses if there may be one more since then (a mark in the
head).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sessioncache.hot.client import Argument, Reply, Request, evaluation
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Gathered, Refused, Written, WrittenPart
from sessioncache.hot.scripts import load_script
from sessioncache.hot.signals import PiecesLost, Taken, TokenLost, raise_unready
from sessioncache.hot.tier import LIMITS, HotTier
from sessioncache.primitives.signal import Signal


@dataclass(frozen=True, slots=True)
class Spaces:
    """The namespaces of a session that SQL may not know of."""

    birth: bytes
    """The life of the session."""
    mark: bytes
    """Changes as soon as there may be one more namespace."""
    dirty: list[str]

    @property
    def none_yet(self) -> bool:
        """Whether the session never had a namespace, so that SQL need not be asked."""
        return self.mark == self.birth


class TooLarge(Signal):
    """The session is too large to be copied by one script."""


class MoreNamespaces(Signal):
    """The session may have more namespaces than were given."""


@dataclass(frozen=True, slots=True)
class Fork:
    """What is forked into what."""

    parent: Place
    child: Place
    spaces: Spaces
    pairs: Sequence[tuple[Place, Place]] = field(default_factory=list)
    """Each namespace of the parent, and the same of the new session."""
    lease: bytes = b""
    """The token of the run lease of the parent that the caller must hold; empty: none."""

    pieces: Gathered | None = None
    """What was read of the parent and its namespaces, if the script does not copy it itself."""

    @property
    def places(self) -> list[Place]:
        """All scopes, in the order in which the script numbers them."""
        return [self.parent, self.child, *(one for one, _ in self.pairs)]


class Forking:
    """The scripts of forks."""

    def __init__(self, hot: HotTier) -> None:
        self._hot = hot

    async def spaces(self, place: Place, birth: bytes = b"", beside: Sequence[Place] = ()) -> Spaces:
        """The namespaces of a session that SQL may not know of.  Gone, Unready.

        `beside`: shared scopes that have to be ready as well.
        """
        # In one round trip: whether all that the new session needs is ready, and which namespaces are to be copied.
        script, checking = load_script("namespaces"), self._hot.checking(beside)
        asked = evaluation(script, [place.control, place.hash], [birth])
        reply, *ready = await self._hot.link.ask(
            Request([asked, *checking.commands], script, *checking.scripts.values())
        )
        raise_unready(reply, [place])
        for one in ready:
            raise_unready(one, beside)
        return Spaces(reply[1], reply[2], [name.decode() for name in reply[3:]])

    async def fork(self, fork: Fork, *, token: bytes, known: bytes) -> Written | Refused:
        """Fork in one step.

        `token` and `known` as in HotTier.create. Taken, TokenLost, MoreNamespaces, TooLarge, PiecesLost, Gone, Unready.
        """
        parent, child = fork.parent, fork.child
        keys = [parent.control, parent.hash, child.hash]
        keys += (place.hash for pair in fork.pairs for place in pair)
        told = (fork.spaces.birth, fork.spaces.mark, child.parents, child.ref.session.encode(), token, known)
        after = [fork.lease, *told, *_pieces_args(fork.pieces)]
        # R16: a fork has no `temp:` keys, hence 0 seconds for which they would live.
        reply = await self._hot.idempotency.call(load_script("fork"), parent, keys, [*LIMITS, 0], after)
        raise_unready(reply, fork.places)
        return _written(reply)


def _pieces_args(pieces: Gathered | None) -> list[Argument]:
    if pieces is None:
        return [b"", b""]
    return [pieces.birth, pieces.name, *(told for one in pieces.counts for told in one)]


def _written(reply: Reply) -> Written | Refused:
    status = reply[0]
    if status == b"exists":
        raise Taken
    if status == b"retry":
        raise TokenLost
    if status == b"namespaces":
        raise MoreNamespaces
    if status == b"large":
        raise TooLarge
    if status == b"pieces":
        raise PiecesLost
    if status in (b"erased", b"lease"):
        return Refused(status.decode(), [])
    incarnation, flushed = reply[2][:2]
    return Written(reply[1], [WrittenPart(incarnation, flushed, True, [])])
