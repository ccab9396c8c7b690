"""A hot tier over fakeredis whose clock stands still until a test moves it.

It shows what the scripts decide by time.  It never judges atomicity or durability: that is for real servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha1
from typing import Any, Self

import fakeredis
import pytest
import redis
from fakeredis.aioredis import FakeRedis

from sessioncache.hot import (
    backlog,
    dead_letters,
    forking,
    incarnations,
    large_creates,
    leases,
    merging,
    tier,
    tokens,
    unflushed,
)
from sessioncache.hot.backlog import Backlog
from sessioncache.hot.client import Argument, HotClient, Reply
from sessioncache.hot.dead_letters import DeadLetters
from sessioncache.hot.fields import fields_of, head_of, key_field
from sessioncache.hot.incarnations import Incarnations
from sessioncache.hot.layout import Layout, Place
from sessioncache.hot.leases import Leases
from sessioncache.hot.merging import Merging, TakenScope
from sessioncache.hot.messages import (
    ANY,
    Acknowledged,
    Content,
    Damaged,
    Deleted,
    Operation,
    Part,
    Refused,
    Wanted,
    Written,
)
from sessioncache.hot.reconciling import Looked, reconcile, stamp_anew
from sessioncache.hot.scripts import Script, load_script
from sessioncache.hot.tier import HotTier
from sessioncache.hot.unflushed import Unflushed
from sessioncache.hot.write import Write
from sessioncache.primitives.entries import Committed, Dirt, Entry, Head, StoredScope
from sessioncache.primitives.revisions import DIGITS, encode_revision
from sessioncache.primitives.scopes import ScopeKind, app_ref, namespace_ref, session_ref, user_ref
from sessioncache.primitives.timestamps import json_size
from tests.fake_link import FakeLink

BUCKETS = 2
START = 1_790_000_000_000_000
"""Microseconds since 1970 at which every test begins."""
SECOND = 1_000_000
IDLE = 1_000.0
"""Seconds a clean scope stays."""
TEMP = 100.0
"""Seconds a temp hash lives."""
DELAY = 1.0
"""Seconds of flush delay."""
LEASE = 15.0
"""Seconds of claim lease."""
INFO = "info:"
"""What the keys begin with that stand for the sections of INFO, which fakeredis lacks."""

_INFO = "call('INFO', section)"


class Clock:
    """The clock of the fake server, in microseconds; stands in for the module `time` there."""

    def __init__(self) -> None:
        self.micros = START

    def time(self) -> float:
        """Seconds since 1970."""
        return self.micros / SECOND

    def move(self, seconds: float) -> None:
        """Set the clock forwards, or backwards."""
        self.micros += round(seconds * SECOND)


@cache
def adapted(name: str, flags: str | None = None) -> Script:
    """A script without what fakeredis lacks: the ``#!lua`` line and INFO."""
    first, body = load_script(name, flags).text.decode().split("\n", 1)
    assert first.startswith("#!lua")
    assert _INFO in body or "INFO" not in body
    text = body.replace(_INFO, f"call('GET', '{INFO}' .. section)").encode()
    return Script(name, text, sha1(text).hexdigest().encode())


def install_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let all fake servers follow a clock, and the wrappers send adapted scripts."""
    clock = Clock()
    for module in ("_socket._base", "commands_mixins.server_mixin", "_helpers"):
        monkeypatch.setattr(f"fakeredis.{module}.time", clock)
    for user in (tier, unflushed, backlog, large_creates, forking, incarnations, leases, dead_letters, merging, tokens):
        monkeypatch.setattr(user, "load_script", adapted)
    return clock


class Sent:
    """Script calls as they were sent: a network may deliver one again, and late."""

    def __init__(self, link: HotClient) -> None:
        self._call = link.call
        self._calls: list[tuple[Script, Sequence[bytes], Sequence[Argument]]] = []

    async def __call__(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Reply:
        """Send a call, and remember it."""
        self._calls.append((script, keys, args))
        return await self._call(script, keys, args)

    def __len__(self) -> int:
        return len(self._calls)

    async def again(self, place: int = -1) -> Reply:
        """Deliver a call once more: the last one, or that at `place`."""
        return await self._call(*self._calls[place])


class Bench:
    """The hot tier of one server: the wrappers, and a plain client to look behind them."""

    def __init__(self, clock: Clock, link: HotClient, raw: redis.Redis) -> None:
        self.clock = clock
        self.link = link
        self.raw = raw
        self.layout = Layout("t", BUCKETS)
        self.hot = HotTier(self.link, self.layout, idle_ttl=IDLE, temp_ttl=TEMP)
        self.backlog = Backlog(self.link, self.layout, idle_ttl=IDLE)
        self.incarnations = Incarnations(self.link, self.layout)
        self.merging = Merging(self.link, self.layout, idle_ttl=IDLE)
        self.letters = DeadLetters(self.link, self.layout)
        self.leases = Leases(self.link)
        self.replid = ""
        """By which the server goes now."""

    @classmethod
    def fake(cls, clock: Clock) -> Self:
        """Over a fake server of its own."""
        server = fakeredis.FakeServer()
        bench = cls(
            clock,
            FakeLink(FakeRedis(server=server, protocol=2), owned=True),
            fakeredis.FakeRedis(server=server, protocol=2),
        )
        bench.fail_over("aa")
        return bench

    async def register(self) -> dict[int, str]:
        """Let SQL know the incarnations of all buckets, as far as Redis is concerned."""
        found = await self.incarnations.current(range(BUCKETS), {})
        await self.incarnations.confirm({bucket: one.id for bucket, one in found.items()})
        return {bucket: one.id for bucket, one in found.items()}

    def fail_over(self, replid: str = "bb") -> None:
        """Another server is the primary now."""
        self.tell(replid, run=replid)

    def tell(self, replid: str, *, run: str = "aa", fed: int = 0, second: str = "0" * 40) -> None:
        """Let INFO tell this of the server: its replid and the one before, its run, and bytes taken from a primary."""
        told = f"role:master\r\nmaster_replid:{replid.ljust(40, 'x')}\r\nmaster_replid2:{second}\r\n"
        self.replid = replid
        self.raw.set(INFO + "replication", told)
        self.raw.set(INFO + "server", f"run_id:{run}\r\n")
        self.raw.set(INFO + "stats", f"total_net_repl_input_bytes:{fed}\r\n")

    def hush(self) -> None:
        """Let nothing be among the keys that is not of the installation."""
        self.raw.delete(*(INFO + section for section in ("replication", "server", "stats")))

    # ---- scopes

    def session(self, name: str = "s", user: str = "u") -> Place:
        """Where a session lies."""
        return self.layout.place(session_ref(BUCKETS, "org", "app", user, name))

    def space(self, name: str = "n", session: str = "s") -> Place:
        """Where a namespace of a session lies."""
        return self.layout.place(namespace_ref(self.session(session).ref, name))

    def user(self, name: str = "u") -> Place:
        """Where a user's scope lies."""
        return self.layout.place(user_ref(BUCKETS, "org", "app", name))

    def app(self) -> Place:
        """Where the app's scope lies."""
        return self.layout.place(app_ref(BUCKETS, "org", "app"))

    async def create(
        self, place: Place, *operations: Operation, token: bytes = b"*", known: int = 0, others: Sequence[Part] = ()
    ) -> Written:
        """Create a session; the reply must be that it was."""
        written = await self.try_create(place, *operations, token=token, known=known, others=others)
        assert isinstance(written, Written)
        return written

    async def try_create(
        self, place: Place, *operations: Operation, token: bytes = b"*", known: int = 0, others: Sequence[Part] = ()
    ) -> Written | Refused:
        """Create a session."""
        ref = place.ref
        head = Head(ref.org, ref.app, ref.user, ref.session, 0)
        parts = [Part(place, list(operations), birth=b"+"), *others]
        return await self.hot.create(parts, head, token=token, known=encode_revision(known))

    async def install(
        self, place: Place, entries: Sequence[Entry] = (), *, known: int = 0, token: bytes = b"", **head: Any
    ) -> None:
        """Hydrate a scope with what SQL is said to have."""
        if not token:
            token = await self.take_token(place)
        ref = place.ref
        record = Head(ref.org, ref.app, ref.user, ref.session, known, **head)
        flat = fields_of(record, ref.kind)
        flat += [b"n", b"%d" % len(entries), b"z", b"%d" % sum(json_size(entry.text) for entry in entries)]
        for entry in entries:
            flat += [key_field(entry.key), encode_revision(entry.revision) + entry.text]
        await self.hot.install(place, token, flat, staged=0)

    async def take_token(self, place: Place) -> bytes:
        """The token of a scope that is not hot and that nobody loads."""
        taken = await self.hot.take_token(place)
        assert isinstance(taken, tuple)
        return taken[0]

    async def try_write(
        self, place: Place, *operations: Operation, birth: bytes = b"", if_revision: bytes = b""
    ) -> Written | Refused:
        """Write one scope; of a session the present life unless told otherwise."""
        if place.ref.kind is ScopeKind.SESSION and not birth:
            birth = self.field(place, "b")
        return await self.write_parts([Part(place, list(operations), birth, if_revision)])

    async def write_parts(self, parts: Sequence[Part], lease: bytes = b"") -> Written | Refused:
        """Write several scopes in one step."""
        return await self.hot.write(Write(parts, lease=lease))

    async def write(self, place: Place, *operations: Operation, birth: bytes = b"") -> Written:
        """Write one scope; the reply must be that it was."""
        written = await self.try_write(place, *operations, birth=birth)
        assert isinstance(written, Written)
        return written

    async def delete(self, place: Place, birth: bytes = b"") -> tuple[bool, Written]:
        """Delete a session; whether it existed, and the write."""
        return _done(await self.hot.delete(place, birth))

    async def bury(self, place: Place, token: bytes, stored: StoredScope) -> tuple[bool, Written]:
        """Delete a session that is not hot; whether it existed, and the write."""
        return _done(await self.hot.bury(place, token, stored))

    async def read(self, place: Place, *keys: str, birth: bytes = b"") -> Content:
        """Read one scope, whole or some keys."""
        (content,) = await self.hot.read([Wanted(place, list(keys) or None, birth)])
        return content

    async def values(self, place: Place) -> dict[str, bytes]:
        """The living texts of one scope."""
        return {key: value[DIGITS:] for key, value in (await self.read(place)).entries.items()}

    async def unflushed(self, letter: str, place: Place) -> list[Unflushed]:
        """The unflushed sessions of the bucket that share the app (a), user (u) … of one session."""
        at = 32 * "aubow".index(letter)
        return await self.hot.unflushed(letter, place.parents[at : at + 32].decode(), [place.ref.bucket])

    # ---- flushing

    async def claim(self, worker: str = "w", *, bucket: int, most: int = 100, everything: bool = False) -> list[str]:
        """Claim due scopes of one bucket."""
        claims = await self.backlog.claim([bucket], worker, lease=LEASE, delay=DELAY, most=most, everything=everything)
        found = claims[bucket]
        assert found is not None
        return found.members

    async def renew(self, place: Place, worker: str, seconds: float = LEASE) -> int:
        """Move the due time of a scope that a worker has claimed; how many it holds."""
        return await self.backlog.renew(worker, [(place.ref.bucket, place.ref.member)], seconds)

    async def dirt(self, place: Place) -> Dirt:
        """Read the dirt of one scope."""
        (found,) = await self.backlog.read_dirt([(place.ref.bucket, place.ref.member)])
        assert isinstance(found, Dirt)
        return found

    async def acknowledge(
        self, dirt: Dirt, newer: Mapping[str, int] | None = None, *, head: int | None = None
    ) -> Acknowledged:
        """Acknowledge what SQL took; `newer` and `head`: revisions it holds instead of ours."""
        done = await self.try_acknowledge(dirt, newer, head=head)
        assert done is not None
        return done

    async def try_acknowledge(
        self, dirt: Dirt, newer: Mapping[str, int] | None = None, *, head: int | None = None
    ) -> Acknowledged | None:
        """Acknowledge, whatever comes of it."""
        held = [(newer or {}).get(entry.key, entry.revision) for entry in dirt.entries]
        committed = Committed(dirt, dirt.head.revision if head is None else head, list(held))
        (done,) = await self.backlog.acknowledge([committed], delay=DELAY)
        assert not isinstance(done, Damaged)
        return done

    async def flush(self, place: Place) -> Acknowledged:
        """Read the dirt of one scope and acknowledge all of it."""
        return await self.acknowledge(await self.dirt(place))

    async def record_failure(self, dirt: Dirt, key: str, *, reason: str = "why", attempts: int = 1) -> bool:
        """Note that the database refused a key of `dirt`; whether it is a dead letter by now."""
        entry = next(entry for entry in dirt.entries if entry.key == key)
        return await self.backlog.record_failure(dirt, entry, reason, attempts=attempts)

    async def refuse(self, place: Place, key: str) -> Acknowledged:
        """Let a key become a dead letter, and flush the rest of its scope."""
        dirt = await self.dirt(place)
        assert await self.record_failure(dirt, key)
        rest = [entry for entry in dirt.entries if entry.key != key]
        return await self.acknowledge(replace(dirt, entries=rest, left_out=True))

    # ---- revalidation

    async def take_merge_token(self, place: Place) -> TakenScope:
        """The token of a scope that is to be revalidated and that nobody else is at."""
        (taken,) = await self.merging.take_tokens([place])
        assert isinstance(taken, TakenScope)
        return taken

    async def merge(self, place: Place, *entries: Entry, absent: bool = False, **head: Any) -> int:
        """Revalidate a scope with what SQL is said to have; the marks that are left.

        The head is the hot one, as a flush would have written it, but for the fields given.
        """
        taken = await self.take_merge_token(place)
        stored = nothing(head.get("purged", 0)) if absent else self.stored(place, *entries, **head)
        left = await self.merge_under(taken, stored)
        assert left is not None
        return left

    async def forget(self) -> None:
        """Give all buckets a new incarnation."""
        self.fail_over(self.replid + "c")
        await self.register()

    async def stamp(self, place: Place) -> int:
        """Stamp a scope of an older incarnation anew; the marks that are left."""
        taken = await self.take_merge_token(place)
        (looked,) = await self.merging.look([taken])
        assert isinstance(looked, Looked)
        (left,) = await self.merging.carry_out([(taken, looked, stamp_anew(place.ref.kind, looked))])
        assert isinstance(left, int)
        return left

    async def merge_under(self, taken: TakenScope, stored: StoredScope) -> int | None:
        """Revalidate under a token that was taken; the marks that are left, None where it is lost."""
        (looked,) = await self.merging.look([taken])
        if looked is None:
            return None
        assert isinstance(looked, Looked)
        made = reconcile(taken.place.ref.kind, looked, stored)
        (left,) = await self.merging.carry_out([(taken, looked, made)])
        assert not isinstance(left, Damaged)
        return left

    def stored(self, place: Place, *entries: Entry, **head: Any) -> StoredScope:
        """What SQL is said to have of a scope."""
        fields = dict(self.ask("HGETALL", place.hash))
        purged = head.pop("purged", 0)
        record = replace(head_of(fields), **head)
        known = max([record.revision, record.cleared, purged, *(entry.revision for entry in entries)])
        return StoredScope(record, list(entries), known, purged=purged)

    def record_calls(self, monkeypatch: pytest.MonkeyPatch) -> Sent:
        """The script calls that go over the link from now on, each of which may be sent again."""
        sent = Sent(self.link)
        monkeypatch.setattr(self.link, "call", sent)
        return sent

    # ---- looking inside

    def key(self, place: Place, kind: str) -> bytes:
        """A key of the bucket that a scope lies in."""
        return place.control[:-3] + kind.encode()

    def field(self, place: Place, name: str) -> bytes:
        """One field of a scope's hash; empty if it is not there."""
        return self.ask("HGET", place.hash, name) or b""

    def marks(self, place: Place) -> set[bytes]:
        """The dirty fields of a scope."""
        return set(self.ask("SMEMBERS", self.key(place, f"d:{place.ref.member}")))

    def due(self, place: Place) -> int | None:
        """When a scope is due (microseconds)."""
        return _whole(self.ask("ZSCORE", self.key(place, "dirty"), place.ref.member))

    def since(self, place: Place) -> int | None:
        """Since when a scope has been dirty (microseconds)."""
        return _whole(self.ask("ZSCORE", self.key(place, "since"), place.ref.member))

    def ttl(self, key: bytes) -> float | None:
        """Seconds a key has left; None: it stays."""
        left: int = self.ask("PTTL", key)
        assert left != -2, f"there is no {key!r}"
        return None if left == -1 else left / 1000

    def ask(self, *parts: Any) -> Reply:
        """The reply of one plain command."""
        return self.raw.execute_command(*parts)  # type: ignore[no-untyped-call]


def nothing(purged: int = 0) -> StoredScope:
    """Of a scope that SQL does not know."""
    return StoredScope(Head("", "", "", "", 0), [], purged, purged=purged, absent=True)


def _done(deleted: Deleted) -> tuple[bool, Written]:
    assert deleted.written is not None
    return deleted.existed, deleted.written


def _whole(score: bytes | float | None) -> int | None:
    return None if score is None else int(float(score))


def put(key: str, text: str, expected: bytes = ANY) -> Operation:
    """Set a key to a JSON text."""
    return Operation(b"S", key, text.encode(), expected)


def drop(key: str, expected: bytes = ANY) -> Operation:
    """Delete a key."""
    return Operation(b"D", key, b"", expected)


def add(key: str, by: str) -> Operation:
    """Increment a key."""
    return Operation(b"I", key, by.encode())


def push(key: str, *texts: str) -> Operation:
    """Append to a list."""
    return Operation(b"A", key, ",".join(texts).encode())
