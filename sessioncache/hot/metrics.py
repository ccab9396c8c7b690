"""The metrics of the hot tier: how much waits for SQL, what has been done so far, who works on it.

Reading them writes nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sessioncache.hot.client import HotClient, Reply
from sessioncache.hot.layout import Layout
from sessioncache.hot.scripts import load_script

SILENT = 30.0
"""Seconds without a heartbeat after which a worker counts as gone."""
_CHUNK = 32
"""Buckets of one exchange: Redis answers nobody else before it has worked on all of them."""
_SAMPLE = 16
"""Scopes of a bucket whose dirty entries are counted; where there are more, these stand for all."""
_LETTERS = 256
"""Dead letters of a bucket that are distinguished from failures that are none yet."""
_SCAN = 10_000
_SCANS = 20


@dataclass(frozen=True, slots=True)
class WorkerSample:
    """A worker by its last heartbeat."""

    name: str
    host: str
    """Empty if the heartbeat did not contain it."""
    pid: int | None
    age: float
    """Seconds since the heartbeat."""
    away: Mapping[str, str] = field(default_factory=dict)
    """Tiers that it cannot use, and why."""
    failing: Mapping[str, str] = field(default_factory=dict)
    """Background tasks of it that fail, and why."""
    ailing: Sequence[tuple[int, str, str]] = ()
    """Some of the scopes that it cannot flush: bucket, member, why."""
    ailing_in_all: int = 0

    @property
    def alive(self) -> bool:
        """Whether its last heartbeat is recent (see SILENT)."""
        return self.age < SILENT


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The incarnation of a bucket."""

    id: str
    """Empty for a bucket that was never used, or that Redis forgot."""
    registered: bool
    """Whether it is known to be registered in SQL; else whoever uses the bucket next registers it."""
    forgot: bool = False
    """Whether it was made because Redis had lost something, or may have."""


@dataclass(frozen=True, slots=True)
class ServerSample:
    """The Redis server itself."""

    used_memory: int
    """Bytes."""
    max_memory: int
    """Bytes; 0: no limit."""
    clients: int
    """Connections."""
    operations: int
    """Commands a second, as the server counts them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The metrics at one time.  Counters begin at 0 again where Redis forgot them."""

    time: float
    """Seconds since 1970 by the clock of Redis."""
    dirty_scopes: int
    """Scopes with something that SQL lacks, dead letters left out."""
    dirty_entries: int
    """Their entries that SQL lacks."""
    exact: bool
    """Whether the entries were counted; else they are estimated from a sample of each bucket."""
    oldest_age: float | None
    """Seconds that the oldest dirty scope has been waiting; None: nothing is dirty."""
    dead_letters: int
    """Entries that the database refuses."""
    rows: int
    """Rows flushed so far."""
    flushes: int
    """Flushes of a scope so far."""
    hydrates: int
    """Scopes loaded from SQL so far."""
    conflicts: int
    """Writes refused so far because something else had changed what they were based on, including those that a client
    repeats by itself."""
    lags: Mapping[int, int]
    """Step -> rows that took about `lag_seconds(step)` from write to acknowledgement."""
    workers: Sequence[WorkerSample]
    """By name; workers that ended in good order, or have been silent for an hour, are not among them."""
    incarnations: Mapping[int, Incarnation]
    """By bucket."""
    server: ServerSample


def lag_seconds(step: int) -> float:
    """The lag in the middle of a step of the histogram; steps are quarter octaves of milliseconds."""
    return float(2 ** (step / 4)) / 1000


class Metrics:
    """Reads the metrics of one installation."""

    def __init__(self, link: HotClient, layout: Layout) -> None:
        self._link = link
        self._layout = layout

    async def read(self, *, sample: int = _SAMPLE) -> Sample:
        """The metrics now: an exchange for every 32 buckets and a few more, however much is dirty.

        `sample`: scopes of each bucket whose dirty entries are counted.  HotTierUnavailableError.
        """
        now = await self._link.time()
        workers = await self._workers(now)
        server = await self._server()
        buckets = [_bucket(reply) for reply in await self._buckets(sample)]
        return _pulse(now, buckets, workers, server)

    async def workers(self) -> list[WorkerSample]:
        """The workers by their heartbeats.  HotTierUnavailableError."""
        return await self._workers(await self._link.time())

    async def _buckets(self, sample: int) -> list[Reply]:
        calls = [([self._layout.control(bucket)], (sample, _LETTERS)) for bucket in range(self._layout.buckets)]
        script, replies = load_script("metrics"), list[Reply]()
        for first in range(0, len(calls), _CHUNK):
            replies += await self._link.call_many(script, calls[first : first + _CHUNK])
        return replies

    async def _workers(self, now: int) -> list[WorkerSample]:
        """Workers by their heartbeats, which stand among much else in one hash."""
        found, cursor = dict[str, WorkerSample](), b"0"
        # In bounds: the hash may hold millions of other fields, and grow while it is read.
        for _ in range(_SCANS):
            control = self._layout.control(0)
            cursor, pairs = await self._link.command(b"HSCAN", control, cursor, b"MATCH", b"w:*", b"COUNT", _SCAN)
            for named, beat in zip(pairs[::2], pairs[1::2], strict=True):
                name = named[2:].decode()
                found[name] = _worker(name, beat, now)
            if cursor == b"0":
                break
        return [found[name] for name in sorted(found)]

    async def _server(self) -> ServerSample:
        told = await self._link.info("memory", "clients", "stats")
        return ServerSample(
            used_memory=int(told.get("used_memory", 0)),
            max_memory=int(told.get("maxmemory", 0)),
            clients=int(told.get("connected_clients", 0)),
            operations=int(told.get("instantaneous_ops_per_sec", 0)),
        )


@dataclass(frozen=True, slots=True)
class _Bucket:
    """The metrics of one bucket."""

    incarnation: Incarnation
    dirty: int
    counted: int
    entries: int
    """Dirty entries of the scopes that were counted."""
    oldest: int
    """Microseconds; 0: nothing is dirty."""
    dead: int
    counters: Mapping[str, int]

    @property
    def all_entries(self) -> int:
        """Dirty entries of all scopes, estimated from those that were counted."""
        return round(self.entries * self.dirty / self.counted) if self.counted else 0


def _bucket(reply: Reply) -> _Bucket:
    identity, registered, dirty, counted, entries, oldest, dead, told, forgot = reply
    counters = {name.decode(): int(value) for name, value in zip(told[::2], told[1::2], strict=True)}
    incarnation = Incarnation(identity.decode(), registered == 1, forgot == 1)
    return _Bucket(incarnation, dirty, counted, entries, int(oldest), dead, counters)


def _worker(name: str, beat: bytes, now: int) -> WorkerSample:
    at, _, about = beat.partition(b"|")
    told = json.loads(about or b"{}")
    return WorkerSample(
        name,
        str(told.get("host", "")),
        told.get("pid"),
        max(0.0, (now - int(at)) / 1_000_000),
        away=told.get("away", {}),
        failing=told.get("failing", {}),
        ailing=[(bucket, member, cause) for bucket, member, cause, *_ in told.get("ailing", [])],
        ailing_in_all=told.get("ailing_in_all", 0),
    )


def _pulse(now: int, buckets: Sequence[_Bucket], workers: Sequence[WorkerSample], server: ServerSample) -> Sample:
    counters = _sum(bucket.counters for bucket in buckets)
    oldest = min((bucket.oldest for bucket in buckets if bucket.oldest), default=None)
    return Sample(
        time=now / 1_000_000,
        dirty_scopes=sum(bucket.dirty for bucket in buckets),
        dirty_entries=sum(bucket.all_entries for bucket in buckets),
        exact=all(bucket.counted == bucket.dirty for bucket in buckets),
        # Never negative: the clock of Redis may have been set back.
        oldest_age=None if oldest is None else max(0.0, (now - oldest) / 1_000_000),
        dead_letters=sum(bucket.dead for bucket in buckets),
        rows=counters["rows"],
        flushes=counters["flushes"],
        hydrates=counters["hydrates"],
        conflicts=counters["conflicts"],
        lags={int(float(name[4:])): count for name, count in counters.items() if name.startswith("lag:")},
        workers=tuple(workers),
        incarnations={number: bucket.incarnation for number, bucket in enumerate(buckets)},
        server=server,
    )


def _sum(many: Iterable[Mapping[str, int]]) -> Counter[str]:
    total = Counter[str]()
    for counters in many:
        total.update(counters)
    return total
