"""A thousand to a million hot sessions: what a set, a merged read, a get and a page cost, and one bare command beside.

The sessions are small, have a user each, and lie in both tiers.  They are brought into Redis and PostgreSQL in bulk, as
a reading of SQL and a flush would have left them; the calls go to a thousand of them, spread over all.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from benchmarks.listing import fill, user_of
from benchmarks.measuring import Spread, alternate, median_latency, ratios
from benchmarks.results import figure, missing
from sessioncache import Session, SessionCache
from sessioncache.coordination.connecting import open_tiers
from sessioncache.coordination.tiers import Tiers
from sessioncache.hot.client import Argument
from sessioncache.hot.fields import fields_of, key_field
from sessioncache.hot.incarnations import Incarnations
from sessioncache.primitives.entries import Head
from sessioncache.primitives.names import KeyScope
from sessioncache.primitives.revisions import encode_revision
from sessioncache.primitives.scopes import session_ref
from sessioncache.settings import CacheSettings
from tests.helpers import BUCKETS
from tests.servers import PostgreSQLServer, RedisKind, RedisServer, ServerMissingError

LEVELS = (1_000, 10_000, 100_000, 1_000_000)
OPERATIONS = ("page", "get", "refresh", "bare", "set")
"""In this order: pages are read while nothing is dirty."""
SAMPLE = 1_000
"""Sessions that calls go to, at every level."""
CALLS = {"page": 40, "get": 200, "refresh": 300, "bare": 300, "set": 300}
"""Calls of one round, of which the median counts."""
PAGE = 50
PER_USER = 1
"""As many buckets are in use at every level."""
APP = "bench"
KEYS = 4
TEXT = b'"what an agent remembers"'
_CHUNK = 1_000


class Level:
    """So many hot sessions, and a sample of them."""

    def __init__(self, cache: SessionCache, sessions: Sequence[Session]) -> None:
        self._cache = cache
        self._link = cache._tiers.link
        self._sessions = sessions
        self._next = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, number: int, server: PostgreSQLServer, kind: RedisKind) -> AsyncIterator[Level]:
        """Fill both tiers, and open the sample."""
        redis, database = RedisServer(kind).start(), server.url(server.create_database())
        try:
            await fill(database, number, PER_USER)
            async with open_tiers(redis.url, database, CacheSettings()) as tiers:
                await _heat(tiers, number)
            async with SessionCache.connect(redis.url, database, app=APP) as cache:
                chosen = random.Random(1).sample(range(number), min(number, SAMPLE))
                yield cls(cache, [await cache.get(user_of(n, PER_USER), f"s{n:06}") for n in chosen])
        finally:
            redis.destroy()

    def _one(self) -> Session:
        self._next = (self._next + 1) % len(self._sessions)
        return self._sessions[self._next]

    async def page(self, _: int) -> object:
        """The first page of the app."""
        return await self._cache.list(limit=PAGE)

    async def get(self, _: int) -> object:
        """Open a session."""
        session = self._one()
        return await self._cache.get(session.user, session.id)

    async def refresh(self, _: int) -> None:
        """Read all three scopes of an open session."""
        await self._one().refresh()

    async def bare(self, _: int) -> object:
        """Read one session's hash by Redis' own command: what grows there grows for everybody."""
        return await self._link.command(b"HGETALL", self._one()._by_scope[KeyScope.SESSION].hash)

    async def set(self, number: int) -> object:
        """Set one key."""
        return await self._one().set("key0", number)


async def _heat(tiers: Tiers, sessions: int) -> None:
    """Bring sessions that SQL has into Redis, clean."""
    await tiers.fencing.register(range(BUCKETS))
    found = await Incarnations(tiers.link, tiers.layout).current(range(BUCKETS), {})
    current = {bucket: one.id for bucket, one in found.items()}
    commands: list[Sequence[Argument]] = []
    for number in range(sessions):
        commands += _hot(tiers, number, current)
        if len(commands) >= 2 * _CHUNK or number == sessions - 1:
            await tiers.link.exchange(commands, {})
            commands = []


def _hot(tiers: Tiers, number: int, incarnations: dict[int, str]) -> Iterator[Sequence[Argument]]:
    ref = session_ref(BUCKETS, "", APP, user_of(number, PER_USER), f"s{number:06}")
    place, born = tiers.layout.place(ref), int(time.time() * 1_000_000) - 3_600_000_000
    head = Head(ref.org, ref.app, ref.user, ref.session, born, born, born - 1, values_revision=born, updated=born)
    revision = encode_revision(born)
    fields: list[Argument] = [
        b"i",
        incarnations[ref.bucket],
        *fields_of(head, ref.kind),
        b"p",
        revision,
        b"l",
        revision,
    ]
    fields += [b"n", KEYS, b"z", KEYS * len(TEXT)]
    for key in range(KEYS):
        fields += [key_field(f"key{key}"), revision + TEXT]
    yield (b"HSET", place.hash, *fields)
    yield (b"PEXPIRE", place.hash, 86_400_000)


def _calls(levels: dict[str, Level], operation: str) -> dict[str, Callable[[], Awaitable[float]]]:
    return {
        name: partial(median_latency, getattr(level, operation), 0, CALLS[operation]) for name, level in levels.items()
    }


def short(number: int) -> str:
    """1k for 1,000, 1m for 1,000,000."""
    for size, letter in ((1_000_000, "m"), (1_000, "k")):
        if number >= size and number % size == 0:
            return f"{number // size}{letter}"
    return str(number)


async def measure(rounds: int, levels: Sequence[int] = LEVELS) -> dict[str, object]:
    """The keys of the results, on Valkey; the ratios of the ends on Redis, too, where it is installed."""
    results = _results(await _measure(rounds, levels, "valkey"), levels)
    keys = [f"growth_ratio_{operation}" for operation in OPERATIONS]
    try:
        ends = _results(await _measure(rounds, (levels[0], levels[-1]), "redis"), (levels[0], levels[-1]))
    except ServerMissingError as error:
        return results | missing([f"{key}_redis" for key in keys], str(error))
    for key in keys:
        results |= {f"{key}_redis{part}": ends[key + part] for part in ("", "_low", "_high")}
    return results


async def _measure(rounds: int, levels: Sequence[int], kind: RedisKind) -> dict[str, dict[str, list[float]]]:
    """Operation -> level -> p50 of each round, in microseconds."""
    found: dict[str, dict[str, list[float]]] = {}
    server = PostgreSQLServer(shared_buffers="256MB").start()
    try:
        async with AsyncExitStack() as stack:
            opened = {short(n): await stack.enter_async_context(Level.open(n, server, kind)) for n in levels}
            for operation in OPERATIONS:
                calls = _calls(opened, operation)
                await alternate(calls, 1)
                found[operation] = await alternate(calls, rounds)
    finally:
        server.destroy()
    return found


def _results(found: dict[str, dict[str, list[float]]], levels: Sequence[int]) -> dict[str, object]:
    results: dict[str, object] = {}
    curve = [{"sessions": number} for number in levels]
    for operation, by_level in found.items():
        for point, (name, values) in zip(curve, by_level.items(), strict=True):
            results[f"growth_{operation}_{name}_us"] = Spread.of(values).middle
            point[f"{operation}_us"] = round(Spread.of(values).middle)
        few, many = (by_level[short(number)] for number in (levels[0], levels[-1]))
        results |= figure(f"growth_ratio_{operation}", ratios(many, few))
    return {**results, "growth": curve}
