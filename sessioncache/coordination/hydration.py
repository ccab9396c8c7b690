"""Hydration: a scope that is not hot is loaded from SQL, whole, under a token (R12, R13).

The *token* is what lets one loader install what it read: Redis destroys it with every write, delete or new incarnation,
so that a stale reading of SQL is never installed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sessioncache.coordination.fencing import Fencing
from sessioncache.coordination.loading import Loadings, Progress, held_elsewhere
from sessioncache.coordination.read_coalescing import ReadCoalescing
from sessioncache.durable.messages import FencedOff
from sessioncache.errors import HotTierUnavailableError
from sessioncache.hot.fields import Field, fields_of, key_field
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Token
from sessioncache.hot.signals import Gone, TokenLost, Unready
from sessioncache.hot.tier import HotTier
from sessioncache.primitives.deadline import seconds_left
from sessioncache.primitives.entries import Head, StoredScope
from sessioncache.primitives.revisions import decode_revision, encode_revision
from sessioncache.primitives.scopes import ScopeKind
from sessioncache.primitives.timestamps import json_size

if TYPE_CHECKING:
    from sessioncache.durable.tier import DurableTier

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.1
"""Most seconds between two attempts at a scope that another process is loading: at first, and after long waiting."""
_CHUNK_BYTES = 1024 * 1024
_CHUNK_FIELDS = 500


class Found(NamedTuple):
    """What SQL has of a scope, valid as long as the token is held."""

    token: bytes
    stored: StoredScope
    birth: bytes = b""
    """For a namespace: the birth of the session that it was read for."""

    @property
    def is_free(self) -> bool:
        """Whether a session may be created under this id."""
        return self.stored.absent or self.stored.head.deleted

    @property
    def known(self) -> int:
        """The largest revision that SQL knows of it."""
        return self.stored.known


class Hydrator:
    """Loads scopes from SQL into the hot tier."""

    def __init__(self, hot: HotTier, durable: DurableTier, fencing: Fencing) -> None:
        self._hot = hot
        self._coalescing = ReadCoalescing(durable)
        self._fencing = fencing
        self._loadings = Loadings()

    async def hydrate(self, places: Sequence[Place]) -> None:
        """Load each scope, or wait until somebody else has; raises Gone for a session that is in neither tier.

        Returns also where something changed meanwhile: the caller tries its call again.  Sessions come first: nothing
        is loaded beside one that does not exist.
        """
        sessions = [place for place in places if place.ref.kind is ScopeKind.SESSION]
        for place in sessions:
            await self._share(place)
        await asyncio.gather(*(self._share(place) for place in places if place not in sessions))

    async def _share(self, place: Place) -> None:
        """Load a scope, or wait for the loading of another call of this process, and share its outcome."""
        await self._loadings.share(place, lambda progress: self._load(place, progress))

    async def _load(self, place: Place, progress: Progress) -> None:
        async with AsyncExitStack() as reading:
            found = await reading.enter_async_context(self._reading(place, progress))
            if found is None:
                return
            if place.ref.kind is ScopeKind.SESSION and found.is_free:
                # Redis has to confirm it: somebody may have created the session since SQL was read.
                await self._hot.confirm_absent(place, found.token)
                raise Gone
            await self._install(place, found)

    async def find(self, place: Place) -> Found | None:
        """What SQL has of a scope, under a token that stays held; None: try again, it may be hot now.

        For calls that create the hash themselves: a create where the id is free, a delete, an erasure.
        """
        async with self._reading(place, Progress()) as found:
            return found

    async def install(self, place: Place, found: Found) -> None:
        """Install a session that was found after all."""
        # Whoever destroyed the token has changed the scope: the caller tries again anyway.
        with suppress(TokenLost):
            await self._install(place, found)

    @asynccontextmanager
    async def _reading(self, place: Place, progress: Progress) -> AsyncIterator[Found | None]:
        """What SQL has of a scope, under a token; None where the scope is hot, or something changed meanwhile.

        The token is given back where the block fails.
        """
        taken = await self._token(place, progress)
        if taken is None:
            yield None
            return
        token, is_used = taken.value, False
        try:
            # R13: renewed as long as SQL works, so that a slow loader is not overtaken by the next one.
            with self._hot.kept(place, token):
                with progress.asking_sql():
                    stored = await self._coalescing.read(place.ref, taken.incarnation.decode())
                yield Found(token, stored, taken.birth)
            is_used = True
        # SQL names another incarnation than the token bears: this one has to be registered first.
        except FencedOff as fenced:
            with progress.asking_sql():
                await self._fencing.register(fenced.buckets)
            yield None
        # Somebody has changed the scope since: the caller tries again, and finds what is there now.
        except TokenLost:
            pass
        finally:
            if not is_used:
                await self.release(place, token)

    async def _token(self, place: Place, progress: Progress) -> Token | None:
        """The token, once nobody else has it; None: the scope is hot by now."""
        pause, taken = _FIRST_PAUSE, await self._hot.take_token(place)
        with progress.behind_another():
            while isinstance(taken, float):
                if seconds_left() <= 0:
                    raise held_elsewhere()
                # At random, or all that wait would ask again at the same moment.
                await asyncio.sleep(min(taken, random.uniform(pause / 4, pause)))
                pause = min(2 * pause, _LONGEST_PAUSE)
                taken = await self._hot.take_token(place)
        return taken

    async def release(self, place: Place, token: bytes) -> None:
        """Give back a token that was not used, so that nobody waits for a loader that failed or was cancelled."""
        # It expires by itself where Redis does not answer; under another incarnation it is worth nothing any more.
        with suppress(TokenLost, Unready, HotTierUnavailableError):
            await self._hot.confirm_absent(place, token)

    async def aclose(self) -> None:
        """Cancel what is under way."""
        await self._loadings.aclose()
        await self._coalescing.aclose()

    async def _install(self, place: Place, found: Found) -> None:
        stored = found.stored
        if found.birth:
            stored = _of_life(stored, decode_revision(found.birth))
        chunks = list(_chunks(_fields(place, stored)))
        # R12: all pieces but the last are stored apart, and the script of the last one makes the hash of them at once.
        for chunk in chunks[:-1]:
            await self._hot.stage(place, found.token, chunk, birth=found.birth)
        staged = sum(map(len, chunks[:-1])) // 2
        await self._hot.install(place, found.token, chunks[-1], staged=staged, birth=found.birth)


def _of_life(stored: StoredScope, birth: int) -> StoredScope:
    """A namespace as it is in the life of its session that began at `birth`."""
    # R5: SQL's rows may still be of an earlier life of the session.
    living = [entry for entry in stored.entries if entry.revision >= birth]
    flushed = stored.head.flushed if stored.head.flushed >= birth else 0
    is_same = stored.head.birth == birth and not stored.head.deleted
    cleared = max(birth - 1, stored.head.cleared) if is_same else birth - 1
    head = replace(stored.head, birth=birth, cleared=cleared, flushed=flushed)
    # R3: the next revision of the namespace must be above the birth of its session, below which everything is dead.
    return StoredScope(head, living, known=max(stored.known, birth))


def _fields(place: Place, stored: StoredScope) -> list[tuple[bytes, bytes]]:
    """Fields and values of the hash; the scope revision counts all that SQL knew (R3)."""
    flat = fields_of(_named(place, stored.head), place.ref.kind)
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    if place.ref.kind is ScopeKind.NAMESPACE:
        fields[Field.HOLDER] = place.parents
        # R5: of its values alone: the scope revision counts more, and an `if_revision` from before would not match it.
        fields[Field.VALUES_REVISION] = encode_revision(stored.head.values_revision)
    fields[Field.REVISION] = encode_revision(stored.known)
    fields[Field.PURGED] = fields[Field.REVISION]  # what SQL knew and is not here was deleted or purged
    fields[Field.KEYS] = b"%d" % len(stored.entries)
    fields[Field.BYTES] = b"%d" % sum(json_size(entry.text) for entry in stored.entries)
    pairs = [(key_field(entry.key), encode_revision(entry.revision) + entry.text) for entry in stored.entries]
    return [*pairs, *fields.items()]


def _named(place: Place, head: Head) -> Head:
    """The head with the identity that was asked for: SQL may have blanked it (a user who was erased, and is back)."""
    ref = place.ref
    if ref.kind is ScopeKind.SESSION:
        return head
    return replace(head, org=ref.org, app=ref.app, user=ref.user, session=ref.session, namespace=ref.namespace)


def _chunks(pairs: list[tuple[bytes, bytes]]) -> Iterator[list[bytes]]:
    """Pieces that Redis takes in without blocking other calls for long."""
    chunk: list[bytes] = []
    size = 0
    for name, value in pairs:
        if len(chunk) >= 2 * _CHUNK_FIELDS or (size + len(value) > _CHUNK_BYTES and chunk):
            yield chunk
            chunk, size = [], 0
        chunk += (name, value)
        size += len(value)
    yield chunk
