"""The backlog: the hot tier as a worker uses it, with claims, dirty fields, acknowledgements, heartbeats and
counters.

The keys of a script must share a hash slot, and Redis does nothing else while it works on one.  So what is asked of
many scopes is sent in groups: scopes of one bucket, and few enough that a call stays short.  A scope that is damaged,
or that another worker has settled meanwhile, changes nothing for the others of its group (R10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

from sessioncache.errors import DamagedValueError
from sessioncache.hot.client import Argument, HotClient, Reply, pairs_of
from sessioncache.hot.dirty_fields import PIECE_BYTES, PIECE_ROWS, Piece, acknowledgement_of, dirt_of, pieces_of
from sessioncache.hot.dirty_pieces import read_in_pieces
from sessioncache.hot.fields import HEAD_MARK, key_field
from sessioncache.hot.grouping import Call, call_groups
from sessioncache.hot.idempotency import LIFETIME
from sessioncache.hot.layout import Layout, Place
from sessioncache.hot.messages import GARBLED, Acknowledged, Claims, Damaged, Large
from sessioncache.hot.scripts import load_script
from sessioncache.hot.signals import Dropped, Need, Unready
from sessioncache.primitives.entries import Committed, Dirt, Entry
from sessioncache.primitives.revisions import encode_revision
from sessioncache.primitives.scopes import ScopeKind, ScopeRef
from sessioncache.settings import TOMBSTONE_RETENTION

A = TypeVar("A")
B = TypeVar("B")

_CHUNK = 64
"""Calls of one exchange."""
_OF_A_CALL = 16
"""Scopes of one call, over which Redis takes half a millisecond."""
_FORGOTTEN = 3_600.0
"""Seconds after which a silent worker, or a run lease that was neither given back nor taken again, is forgotten."""

ANY_SIZE = 1 << 40
"""Bytes: more than any scope has."""

_NOTHING = Acknowledged(0, 0, [])

Reading = Dirt | Large | Unready | Dropped | Damaged | None
"""What is dirty in a scope; Unready where something must be settled first, None where Redis lost the scope."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What all workers have done so far."""

    rows: int
    lags: dict[int, int]
    """Quarter octaves of milliseconds -> rows that took about 2 ** (step / 4) ms from write to acknowledgement."""


@dataclass(frozen=True, slots=True)
class Measured:
    """How much was dirty when some process measured it."""

    dirty: int
    oldest: int
    """Since when the oldest dirty scope waits (µs by the clock of Redis); 0: nothing is dirty."""
    now: int
    measure: bool
    """Whether the caller is to measure now."""


class Backlog:
    """What is dirty, on its way to SQL."""

    def __init__(self, link: HotClient, layout: Layout, *, idle_ttl: float) -> None:
        self.link = link
        self.layout = layout
        self.idle_ms = max(1, int(idle_ttl * 1000))
        self._generations: dict[int, tuple[bytes, float]] = {}
        """What was reported of the idempotency keys of buckets, and when, by a clock that nobody sets."""

    async def claim(
        self, buckets: Sequence[int], worker: str, *, lease: float, delay: float, most: int, everything: bool = False
    ) -> dict[int, Claims | None]:
        """Claim due scopes of each bucket; None for a bucket that has to be registered first."""
        # The delay of flushes goes along: the script records it in the bucket, where writers find it.
        args: tuple[Argument, ...] = (worker.encode(), _micro(lease), _micro(delay), most, b"1" if everything else b"0")

        async def claim(chunk: Sequence[int]) -> list[Claims | None]:
            calls = [([self.layout.control(bucket)], args) for bucket in chunk]
            return [_claims(reply) for reply in await self.link.call_many(load_script("claim"), calls)]

        return dict(zip(buckets, await _in_chunks(claim, buckets), strict=True))

    async def renew(self, worker: str, scopes: Sequence[tuple[int, str]], seconds: float) -> int:
        """Move the due time of scopes (bucket, member) that this worker holds; how many it still holds.

        0 seconds: it gives them back.
        """
        # One call a bucket: a script's keys have to share a hash slot.
        members: dict[int, list[Argument]] = {}
        for bucket, member in scopes:
            members.setdefault(bucket, []).append(member.encode())
        calls = [
            ([self.layout.control(bucket)], (worker.encode(), _micro(seconds), *of_bucket))
            for bucket, of_bucket in members.items()
        ]
        return sum(int(reply[1]) for reply in await self.link.call_many(load_script("renew"), calls))

    async def read_dirt(self, scopes: Sequence[tuple[int, str]], most: int = ANY_SIZE) -> list[Reading]:
        """What is dirty in scopes (bucket, member), in their order; for those with more than `most` bytes, their
        size."""
        # No sizes: they are known only to Redis, and the script stops by itself where it has read enough.
        groups = _groups(scopes, [Piece(0, 0, 0)] * len(scopes))
        found = await self._by_bucket("dirt", scopes, groups, (self.idle_ms, most, b""), lambda _: ())
        # A script reads only so much at a time: what it left is asked for again.
        later = [scope for scope, reply in zip(scopes, found, strict=True) if _is_later(reply)]
        more = iter(await self.read_dirt(later, most) if later else ())
        return [
            next(more) if _is_later(reply) else await self._reading(*scope, reply, most)
            for scope, reply in zip(scopes, found, strict=True)
        ]

    async def _reading(self, bucket: int, member: str, reply: Reply, most: int) -> Reading:
        if isinstance(reply, Damaged):
            return reply
        try:
            return await self._said(bucket, member, reply, most)
        # R10: a scope that no script of ours has left like this is set apart, and the others of the batch are read.
        except DamagedValueError as error:
            return Damaged(str(error))
        except ValueError:
            return GARBLED

    async def _said(self, bucket: int, member: str, reply: Reply, most: int) -> Reading:
        """The result that a reply stands for; what is too large for Lua, but has no more than `most` bytes, is read by
        commands."""
        if reply[0] != b"large":
            return self._dirt(bucket, member, reply)
        if reply[1] > most:
            return Large((bucket, member), reply[1])
        keys = [self.layout.control(bucket), self.layout.hash(bucket, member)]
        listed, values = await read_in_pieces(self.link, load_script("dirt"), keys, (self.idle_ms, most, b"1"))
        return dirt_of(bucket, member, listed, values) if listed[0] == b"ok" else self._dirt(bucket, member, listed)

    async def acknowledge(self, committed: Sequence[Committed], *, delay: float) -> list[Acknowledged | Damaged | None]:
        """Acknowledge by version; None where the incarnation has changed since the reading, and nothing was changed.

        A large scope is acknowledged in pieces (see ``ack.lua``).  Where that is interrupted, the rest stays dirty.
        """
        common = (_micro(delay), self.idle_ms, TOMBSTONE_RETENTION * 1000)
        pieces = [pieces_of(one) for one in committed]
        # The last piece settles the head and the flush watermark: it follows once all others are acknowledged.
        before = [
            await self._acknowledge_first(one, of_one[:-1], common) if len(of_one) > 1 else _NOTHING
            for one, of_one in zip(committed, pieces, strict=True)
        ]
        last = [place for place, done in enumerate(before) if isinstance(done, Acknowledged)]
        scopes = [_scope_of(committed[place]) for place in last]

        def args_of(at: int) -> list[Argument]:
            done = before[last[at]]
            # R8: the watermark must not pass a row that was refused in an earlier piece.
            held_back = b"2" if isinstance(done, Acknowledged) and _is_refused(done) else b""
            return acknowledgement_of(committed[last[at]], pieces[last[at]][-1], held_back)

        groups = _groups(scopes, [pieces[place][-1] for place in last])
        found = await self._by_bucket("ack", scopes, groups, common, args_of)
        results = before
        for place, reply in zip(last, found, strict=True):
            results[place] = _together(before[place], _acknowledged(reply))
        return results

    async def _acknowledge_first(
        self, one: Committed, pieces: Sequence[Piece], common: Sequence[Argument]
    ) -> Acknowledged | Damaged | None:
        """Acknowledge all pieces of a scope but the last one; None where the incarnation has changed."""
        done: Acknowledged | Damaged | None = _NOTHING
        bucket, member = _scope_of(one)
        keys = [self.layout.control(bucket), self.layout.hash(bucket, member)]
        # One after the other: together they would hold Redis up like one large script, and where one of them finds
        # another incarnation the rest need not be sent.
        for piece in pieces:
            args = [*common, *acknowledgement_of(one, piece, b"-")]
            (replies,) = await self.link.call_each(load_script("ack"), [(keys, args)])
            done = _together(done, _acknowledged(replies if isinstance(replies, Damaged) else replies[0]))
            if not isinstance(done, Acknowledged):
                break
        return done

    async def _by_bucket(
        self,
        script: str,
        scopes: Sequence[tuple[int, str]],
        groups: Sequence[tuple[int, list[int]]],
        common: Sequence[Argument],
        args_of: Callable[[int], Sequence[Argument]],
    ) -> list[Reply]:
        """What a script answers for each scope."""

        def call_of(places: Sequence[int]) -> Call:
            control = self.layout.control(scopes[places[0]][0])
            args = [*common]
            for place in places:
                args += args_of(place)
            return [control, *(self.layout.hash(*scopes[place]) for place in places)], args

        async def call(chunk: Sequence[tuple[int, list[int]]]) -> list[list[Reply]]:
            return await call_groups(self.link, load_script(script), [places for _, places in chunk], call_of)

        replies = await _in_chunks(call, groups)
        found: list[Reply] = [None] * len(scopes)
        for (_, places), answers in zip(groups, replies, strict=True):
            for place, answer in zip(places, answers, strict=True):
                found[place] = answer
        return found

    async def beat(self, worker: str, about: str, *, ended: bool = False) -> None:
        """Record that a worker is alive, or that it has ended."""
        args = (worker.encode(), b"ended" if ended else b"alive", about.encode())
        await self.link.call(load_script("heartbeat"), [self.layout.control(0)], args)

    async def heartbeats(self) -> dict[str, int]:
        """Living workers: name -> time of the last heartbeat (µs by the clock of Redis)."""
        beats = pairs_of(await self.link.command(b"HGETALL", self.layout.control(0)))
        return {n[2:].decode(): int(v.split(b"|", 1)[0]) for n, v in beats.items() if n.startswith(b"w:")}

    async def count_dirty(self, buckets: Sequence[int]) -> dict[int, int]:
        """Dirty scopes of each bucket; changes nothing."""
        replies = await self.link.exchange([(b"ZCARD", self.layout.control(b)[:-3] + b"dirty") for b in buckets], {})
        return {b: int(reply) for b, reply in zip(buckets, replies, strict=True) if isinstance(reply, int)}

    async def oldest(self, buckets: Sequence[int]) -> int | None:
        """Since when the oldest dirty scope has been waiting (µs by the clock of Redis), dead letters left out."""
        commands = [(b"ZRANGE", self.layout.control(b)[:-3] + b"since", 0, 0, b"WITHSCORES") for b in buckets]
        scores = [_score(reply) for reply in await self.link.exchange(commands, {}) if reply]
        return min(scores, default=None)

    async def pressure(self, good_for: float, *, dirty: int | None = None, oldest: int = 0) -> Measured:
        """What was measured lately; `dirty` and `oldest` (µs) record a measurement by the caller."""
        args: list[Argument] = [_micro(good_for)]
        if dirty is not None:
            args += [dirty, oldest]
        reply = await self.link.call(load_script("pressure"), [self.layout.control(0)], args)
        return Measured(reply[0], int(reply[1]), int(reply[2]), reply[3] == 1)

    async def note_older(self) -> None:
        """Record that SQL was found to have less than was flushed."""
        # By the clock of Redis: other processes write the time that this one is compared with.
        await self.link.command(b"HSET", self.layout.control(0), b"older", await self.link.time())

    async def note_restored(self) -> None:
        """Record that everything that is hot is being written again."""
        await self.link.command(b"HSET", self.layout.control(0), b"restored", await self.link.time())

    async def is_older(self) -> bool:
        """Whether SQL was found to have less than was flushed, and not everything hot has been marked since."""
        noted = await self.link.command(b"HMGET", self.layout.control(0), b"older", b"restored")
        older, restored = (int(value or 0) for value in noted)
        return bool(older > restored)

    async def take_turn(self, name: str, seconds: float, *, again: bool = False) -> bool:
        """Whether it is the caller's turn to do something for all processes, for the next seconds.

        `again`: the caller has the turn, and keeps it.
        """
        args = (name.encode(), _micro(seconds), int(again))
        return bool((await self.link.call(load_script("turn"), [self.layout.control(0)], args))[1])

    async def forget_silent(self, buckets: Sequence[int]) -> int:
        """Forget who has been silent for over an hour: workers, and run leases of runners that were killed; how many.

        Also forgets idempotency keys that are over, in buckets where no call has done so since this was called last.
        """
        calls = [
            ([self.layout.control(bucket)], (_micro(_FORGOTTEN), LIFETIME, *self._passed_since(bucket)))
            for bucket in buckets
        ]
        replies = await self.link.call_many(load_script("forget"), calls)
        # R4: however the clock of Redis is set, keys grow older by the time that this process has measured itself.
        self._generations |= {b: (reply[2], monotonic()) for b, reply in zip(buckets, replies, strict=True)}
        return sum(reply[1] for reply in replies)

    def _passed_since(self, bucket: int) -> tuple[Argument, Argument]:
        """What was reported of a bucket's idempotency keys, and the microseconds that have passed since then at
        least."""
        told, when = self._generations.get(bucket, (b"", 0.0))
        return told, _micro(monotonic() - when) if told else 0

    async def record_failure(self, dirt: Dirt, entry: Entry | None, reason: str, *, attempts: int) -> bool:
        """Record that the database refused an entry of a scope as data, or (None) its head; whether it is a dead letter
        now.

        The head of a namespace is its own record, not that of its session.
        """
        keys = [self.layout.control(dirt.bucket), self.layout.hash(dirt.bucket, dirt.member)]
        # A head is refused as part of what was read: the script compares the scope revision of the reading.
        field, revision = (key_field(entry.key), entry.revision) if entry else (HEAD_MARK, dirt.revision)
        args = (field, encode_revision(revision), attempts, reason.encode())
        return bool((await self.link.call(load_script("record_failure"), keys, args))[2])

    async def incarnations(self, buckets: Sequence[int]) -> dict[int, str]:
        """The incarnation that each bucket has, registered or not; those without one are left out."""
        replies = await self.link.exchange([(b"HGET", self.layout.control(b), b"incarnation") for b in buckets], {})
        return {b: reply.decode() for b, reply in zip(buckets, replies, strict=True) if isinstance(reply, bytes)}

    async def claims_of(self, buckets: Sequence[int]) -> dict[str, int]:
        """Scopes that each worker holds a claim on."""
        held: dict[str, int] = {}
        for control in await self._controls(buckets):
            for name, value in control.items():
                if name.startswith(b"c:"):
                    worker = value.split(b"|", 1)[0].decode()
                    held[worker] = held.get(worker, 0) + 1
        return held

    async def counters(self, buckets: Sequence[int]) -> Counters:
        """What has been flushed so far, over all workers."""
        rows, lags = 0, dict[int, int]()
        for control in await self._controls(buckets):
            rows += int(control.get(b"rows", 0))
            for name, value in control.items():
                if name.startswith(b"lag:"):
                    step = int(float(name[4:]))
                    lags[step] = lags.get(step, 0) + int(value)
        return Counters(rows, lags)

    async def _controls(self, buckets: Sequence[int]) -> list[Mapping[bytes, bytes]]:
        replies = await self.link.exchange([(b"HGETALL", self.layout.control(bucket)) for bucket in buckets], {})
        return [pairs_of(reply) for reply in replies]

    def _dirt(self, bucket: int, member: str, reply: Reply) -> Reading:
        status = reply[0].decode()
        if status == "missing":
            return None
        if status == "dropped":
            return Dropped()
        if status == "host":
            host = self.layout.host(self.place(bucket, member), reply[2].decode())
            return Unready(Need(reply[1].decode()), [host])
        if status != "ok":
            return Unready(Need(status), [self.place(bucket, member)])
        return dirt_of(bucket, member, reply)

    async def scrub(self, place: Place, revision: int, *, living: bool = False) -> bool:
        """Drop a scope that is at or below a revision at which SQL knows it to be dead; whether it is gone.

        A namespace of a living session stays, unless `living`.
        """
        args = (encode_revision(revision), place.parents, self.idle_ms, b"1" if living else b"0")
        return bool((await self.link.call(load_script("scrub"), [place.control, place.hash], args))[1])

    def place(self, bucket: int, member: str) -> Place:
        """The address of a scope of which only bucket and member are known."""
        ref = ScopeRef(ScopeKind(member[0]), "", "", id=member[1:], bucket=bucket)
        return Place(ref, self.layout.control(bucket), self.layout.hash(bucket, member), b"")


async def _in_chunks(call: Callable[[Sequence[A]], Awaitable[list[B]]], many: Sequence[A]) -> list[B]:
    """All results in order.  Redis works on one chunk while the replies to the one before are parsed.

    Two at a time: Redis answers nobody else before it has worked on all that has come in.
    """
    two = asyncio.Semaphore(2)

    async def one(chunk: Sequence[A]) -> list[B]:
        async with two:
            return await call(chunk)

    chunks = [many[at : at + _CHUNK] for at in range(0, len(many), _CHUNK)]
    return [result for found in await asyncio.gather(*map(one, chunks)) for result in found]


def _groups(scopes: Sequence[tuple[int, str]], pieces: Sequence[Piece]) -> list[tuple[int, list[int]]]:
    """Places of scopes of one bucket, few enough for one call."""
    groups: list[tuple[int, list[int]]] = []
    open_ones: dict[int, tuple[list[int], int, int]] = {}
    for place, ((bucket, _), (start, end, size)) in enumerate(zip(scopes, pieces, strict=True)):
        places, rows, total = open_ones.get(bucket, ([], 0, 0))
        rows, total = rows + end - start, total + size
        if not places or len(places) == _OF_A_CALL or rows > PIECE_ROWS or total > PIECE_BYTES:
            places, rows, total = [], end - start, size
            groups.append((bucket, places))
        places.append(place)
        open_ones[bucket] = (places, rows, total)
    return groups


def _scope_of(one: Committed) -> tuple[int, str]:
    return one.dirt.bucket, one.dirt.member


def _is_refused(done: Acknowledged) -> bool:
    """Whether SQL has a newer row of something that was not written again in the hot tier."""
    # `?`: SQL has exactly what was committed, and it is the hash that lacks it: nothing holds the watermark back.
    return any(not field.startswith(b"?") for field in done.refused)


def _together(
    before: Acknowledged | Damaged | None, then: Acknowledged | Damaged | None
) -> Acknowledged | Damaged | None:
    """What two pieces of one scope did together; None where the incarnation has changed."""
    if not isinstance(before, Acknowledged):
        return before
    if not isinstance(then, Acknowledged):
        return then
    if before is _NOTHING:
        return then
    return Acknowledged(then.left, before.rows + then.rows, before.refused + then.refused)


def _claims(reply: Reply) -> Claims | None:
    if reply[0] != b"ok":
        return None
    wait = None if reply[2] < 0 else reply[2] / 1_000_000
    return Claims(reply[1], wait, [member.decode() for member in reply[3:]])


def _is_later(reply: Reply) -> bool:
    """Whether the script left a scope for the next call."""
    return not isinstance(reply, Damaged) and bool(reply[0] == b"later")


def _acknowledged(reply: Reply) -> Acknowledged | Damaged | None:
    if isinstance(reply, Damaged):
        return reply
    return Acknowledged(reply[1], reply[2], list(reply[3:])) if reply[0] == b"ok" else None


def _score(reply: Reply) -> int:
    """The score of the one member: RESP3 pairs them, RESP2 does not."""
    pair = reply[0] if isinstance(reply[0], list) else reply
    return int(float(pair[1]))


def _micro(seconds: float) -> int:
    return int(seconds * 1_000_000)
