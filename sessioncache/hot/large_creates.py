"""Sessions that are too large to be created by one script: gathered in pieces under another name, then created at once.

Redis works on one script while all other calls wait.  So what is too much for one is stored in pieces that nobody sees,
with the revision that the birth will have; a last script checks what every create or fork has to check, and renames it.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from sessioncache.errors import HotTierUnavailableError
from sessioncache.hot.client import Argument, HotClient
from sessioncache.hot.fields import key_field
from sessioncache.hot.layout import Place
from sessioncache.hot.limits import is_within, size_of
from sessioncache.hot.messages import Gathered, Part, Refused, Written
from sessioncache.hot.scripts import load_script
from sessioncache.hot.signals import Erased, PiecesLost, Taken, TokenLost, raise_unready
from sessioncache.hot.tier import HotTier
from sessioncache.primitives.deadline import apart, seconds_left
from sessioncache.primitives.entries import Head
from sessioncache.primitives.timestamps import json_size

_PIECE_FIELDS = 1_000
_PIECE_BYTES = 512 * 1024
_AT_ONCE = 4
"""Pieces of one round trip, or as much in smaller ones: Redis takes up to 5 ms over each, and a distant server is
waited for once for all of them."""
_OF_A_PIECE = 20
"""Fields over which Redis takes as long as over the overhead of a piece, however few fields it has."""
_MOST_FIELDS, _MOST_BYTES = _AT_ONCE * (_PIECE_FIELDS + _OF_A_PIECE), _AT_ONCE * _PIECE_BYTES
_BEYOND_MS = 10_000
"""Milliseconds for which pieces stay beyond the time that the call which stores them may take."""
_TO_DISCARD = 1.0
"""Seconds that dropping pieces may take; those that are not dropped expire."""


class Birth(NamedTuple):
    """A scope that is to be created, with the texts of its keys."""

    place: Place
    texts: Mapping[str, bytes]


@asynccontextmanager
async def gathered(link: HotClient, token: bytes, known: bytes, scopes: Sequence[Birth]) -> AsyncIterator[Gathered]:
    """Store scopes in pieces, the session first, for the script that is sent in the block; unused ones are dropped
    after it.

    `token` and `known` as in `HotTier.create`; whoever has the token keeps it.  Taken, TokenLost, Erased, Unready.
    """
    session, name = scopes[0].place, secrets.token_hex(8).encode()
    # Redis drops the pieces by itself where this process is killed meanwhile.
    stays = int(seconds_left() * 1000) + _BEYOND_MS
    try:
        birth = await find_birth(link, session, token, known)
        pieces = ((place, piece) for place, texts in scopes for piece in _pieces(texts, birth))
        for some in _trips(pieces):
            calls = [_gathering(place, [place.user, name, stays, *piece]) for place, piece in some]
            for (place, _), reply in zip(some, await link.call_many(load_script("gather"), calls), strict=True):
                if reply[0] == b"erased":
                    raise Erased
                raise_unready(reply, [place])
        counts = [(len(texts), sum(map(json_size, texts.values())), place.ref.namespace) for place, texts in scopes]
        yield Gathered(birth, name, counts)
    finally:
        # The last script renames what it uses: only what was not used is still there.
        with suppress(HotTierUnavailableError), apart(_TO_DISCARD):
            await link.command(b"UNLINK", *(key for place, _ in scopes for key in place.gathered(name)))


async def find_birth(link: HotClient, session: Place, token: bytes, known: bytes) -> bytes:
    """The revision at which a session may be created, whose id is free as far as Redis knows.

    Taken, TokenLost, Unready.
    """
    reply = await link.call(load_script("vacant"), [session.control, session.hash], [token, known])
    if reply[0] == b"exists":
        raise Taken
    if reply[0] == b"retry":
        raise TokenLost
    raise_unready(reply, [session])
    birth: bytes = reply[1]
    return birth


def _gathering(place: Place, args: Sequence[Argument]) -> tuple[Sequence[bytes], Sequence[Argument]]:
    return [place.control, place.hash], args


def _pieces(texts: Mapping[str, bytes], revision: bytes) -> Iterator[list[bytes]]:
    """Fields and values, in pieces that Redis takes in without blocking other calls for long."""
    piece: list[bytes] = []
    size = 0
    for key, text in texts.items():
        if piece and (len(piece) >= 2 * _PIECE_FIELDS or size + len(text) > _PIECE_BYTES):
            yield piece
            piece, size = [], 0
        piece += (key_field(key), revision + text)
        size += len(text)
    if piece:
        yield piece


def _trips(pieces: Iterable[tuple[Place, list[bytes]]]) -> Iterator[list[tuple[Place, list[bytes]]]]:
    """The pieces that go in one round trip: a session may have hundreds of namespaces of a few keys."""
    trip: list[tuple[Place, list[bytes]]] = []
    fields = size = 0
    for place, piece in pieces:
        more, larger = len(piece) // 2 + _OF_A_PIECE, sum(map(len, piece))
        is_full = fields + more > _MOST_FIELDS or size + larger > _MOST_BYTES
        # Four in any case: a distant server would otherwise be waited for with each large piece.
        if is_full and len(trip) >= _AT_ONCE:
            yield trip
            trip, fields, size = [], 0, 0
        trip.append((place, piece))
        fields, size = fields + more, size + larger
    if trip:
        yield trip


def ensure_time_left() -> None:
    """Raise once the time is over: pieces that were lost are stored again until then."""
    if seconds_left() <= 0:
        raise HotTierUnavailableError("the session could not be put together in time: Redis drops its pieces")


class LargeCreates:
    """Creates sessions of any size."""

    def __init__(self, hot: HotTier) -> None:
        self._hot = hot

    async def create(
        self, parts: Sequence[Part], head: Head, *, token: bytes, known: bytes, whole: Sequence[Place] = ()
    ) -> Written | Refused:
        """See `HotTier.create`; the private keys, which are those of the first part, may be as many as a scope has."""
        changes = [part.operations for part in parts]
        if is_within(sum(map(len, changes)), size_of(changes)):
            return await self._hot.create(parts, head, token=token, known=known, whole=whole)
        # Checked first: a shared scope that is not hot would be noticed only after everything was stored.
        await self._ready([part.place for part in parts[1:] if not part.temp])
        own = parts[0]
        scope = Birth(own.place, {operation.key: operation.text for operation in own.operations})
        # The keys are in the pieces already: the last step only gives them their place.
        bare = [own._replace(operations=()), *parts[1:]]
        while True:
            try:
                async with gathered(self._hot.link, token, known, [scope]) as pieces:
                    done = await self._hot.create(bare, head, token=token, known=known, whole=whole, pieces=pieces)
                    if isinstance(done, Refused):
                        return done
                    # What a caller expects for each of its keys: a SET has no result.
                    first = done.parts[0]._replace(results=[b""] * len(own.operations))
                    return Written(done.revision, [first, *done.parts[1:]], pieces.birth)
            except Erased:
                return Refused("erased", [])
            except PiecesLost:
                ensure_time_left()

    async def _ready(self, shared: Sequence[Place]) -> None:
        """Check that shared scopes are ready, before much is stored in vain.  Unready."""
        for reply in await self._hot.link.ask(self._hot.checking(shared)):
            raise_unready(reply, shared)
