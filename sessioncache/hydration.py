"""Hydration: a scope that is not hot is loaded from SQL, whole, under a token (R12, R13)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from sessioncache.deadline import deadline
from sessioncache.durable.errors import FencedOff
from sessioncache.durable.tier import DurableTier
from sessioncache.entries import Head, StoredScope
from sessioncache.errors import DurableTierUnavailableError, HotTierUnavailableError
from sessioncache.hot.calls import Gone, TokenLost, Unready
from sessioncache.hot.layout import Place, fields_of, user_field
from sessioncache.hot.tier import HotTier
from sessioncache.registrar import Registrar
from sessioncache.revisions import encode_revision
from sessioncache.scopes import ScopeKind

_WAIT = 0.02
"""Most seconds between two looks at a scope that another loader is loading."""
_CHUNK_BYTES = 1024 * 1024
_CHUNK_FIELDS = 500


Tokens = dict[Place, tuple[bytes, bytes]]
"""Scope -> the token that is held for it, and the incarnation under which."""


class Vacancy(NamedTuple):
    """A session id that is free in both tiers, as long as the token is held."""

    token: bytes
    known: int
    """The largest revision that SQL knows of it."""


class Hydrator:
    """Loads scopes from SQL into the hot tier."""

    def __init__(self, hot: HotTier, durable: DurableTier, registrar: Registrar) -> None:
        self._hot = hot
        self._durable = durable
        self._registrar = registrar
        self._loading: dict[Place, asyncio.Future[None]] = {}

    async def hydrate(self, places: Sequence[Place]) -> None:
        """Make one attempt at each scope; raises Gone for a session that is in neither tier.

        Returns also where another loader is at work or was faster: the caller tries its call again.  Calls of this
        process wait for each other, and share the failure of a tier.
        """
        own = [place for place in places if place not in self._loading]
        if not own:
            await _wait_for(self._loading[places[0]])
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loading.update(dict.fromkeys(own, done))
        failure: Exception | None = None
        try:
            await self._load(own)
        except (HotTierUnavailableError, DurableTierUnavailableError) as error:
            failure = error
            raise
        finally:
            for place in own:
                del self._loading[place]
            _finish(done, failure)

    async def _load(self, places: Sequence[Place]) -> None:
        tokens: Tokens = {}
        gone = False
        try:
            await self._take_tokens(places, tokens)
            for place, token, stored in await self._read(tokens):
                try:
                    await self._settle(place, token, stored)
                except Gone:
                    gone = True
                except TokenLost:
                    pass
                del tokens[place]
        finally:
            await self.release(tokens)
        if gone:
            raise Gone

    async def find_vacancy(self, place: Place) -> Vacancy | None:
        """For a create: the session's id if it is free; None when it is hot now, or somebody else is at work."""
        tokens: Tokens = {}
        try:
            await self._take_tokens([place], tokens)
            for _, token, stored in await self._read(tokens):
                del tokens[place]
                if stored is None or stored.head.deleted:
                    return Vacancy(token, stored.known if stored else 0)
                with suppress(TokenLost):
                    await self._install(place, token, stored)
        finally:
            await self.release(tokens)
        return None

    async def _take_tokens(self, places: Sequence[Place], tokens: Tokens) -> None:
        waiting = 0.0
        for place in places:
            token = await self._hot.take_token(place)
            if isinstance(token, float):
                waiting = max(waiting, token)
            elif token is not None:
                tokens[place] = token
        if waiting and not tokens:
            await asyncio.sleep(min(waiting, random.uniform(_WAIT / 4, _WAIT)))

    async def release(self, tokens: Tokens) -> None:
        """Give back what was not used, so that nobody waits for a loader that failed or was cancelled."""
        for place, (token, _) in tokens.items():
            with suppress(TokenLost, Unready, HotTierUnavailableError):
                await self._hot.confirm_absent(place, token)

    async def _read(self, tokens: Tokens) -> list[tuple[Place, bytes, StoredScope | None]]:
        """What SQL has of each scope; nothing where the tokens died with their incarnation."""
        if not tokens:
            return []
        try:
            stored = await self._durable.read_scopes([(place.ref, inc.decode()) for place, (_, inc) in tokens.items()])
        except FencedOff as fenced:
            await self._registrar.register(fenced.buckets)
            return []
        return [(place, token, one) for (place, (token, _)), one in zip(tokens.items(), stored, strict=True)]

    async def _settle(self, place: Place, token: bytes, stored: StoredScope | None) -> None:
        kind = place.ref.kind
        if kind is ScopeKind.SESSION and (stored is None or stored.head.deleted):
            await self._hot.confirm_absent(place, token)
            raise Gone
        await self._install(place, token, stored or _empty(place))

    async def _install(self, place: Place, token: bytes, stored: StoredScope) -> None:
        chunks = list(_chunks(_fields(place, stored)))
        for chunk in chunks[:-1]:
            await self._hot.stage(place, token, chunk)
        await self._hot.install(place, token, chunks[-1], staged=sum(map(len, chunks[:-1])) // 2)


async def _wait_for(loading: asyncio.Future[None]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout_at(deadline()):
            await asyncio.shield(loading)


def _finish(done: asyncio.Future[None], failure: Exception | None) -> None:
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
        done.exception()  # seen, also where nobody waits for it


def _empty(place: Place) -> StoredScope:
    """The marker of a shared scope that SQL does not know, so that reading it does not go to SQL each time (R12)."""
    return StoredScope(Head(place.ref.org, place.ref.app, place.ref.user, place.ref.session, revision=0), [], known=0)


def _fields(place: Place, stored: StoredScope) -> list[tuple[bytes, bytes]]:
    """Fields and values of the hash; the scope revision counts all that SQL knew (R3)."""
    flat = fields_of(stored.head, place.ref.kind)
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    fields[b"r"] = encode_revision(stored.known)
    fields[b"n"] = b"%d" % len(stored.entries)
    fields[b"z"] = b"%d" % sum(len(entry.text) for entry in stored.entries)
    pairs = [(user_field(entry.key), encode_revision(entry.revision) + entry.text) for entry in stored.entries]
    return [*pairs, *fields.items()]


def _chunks(pairs: list[tuple[bytes, bytes]]) -> Iterator[list[bytes]]:
    """Pieces that Redis takes without blocking others for long."""
    chunk: list[bytes] = []
    size = 0
    for name, value in pairs:
        if len(chunk) >= 2 * _CHUNK_FIELDS or (size + len(value) > _CHUNK_BYTES and chunk):
            yield chunk
            chunk, size = [], 0
        chunk += (name, value)
        size += len(value)
    yield chunk
