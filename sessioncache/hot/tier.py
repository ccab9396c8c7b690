"""The hot tier as the client uses it: one typed wrapper per script."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from redis.exceptions import ResponseError

from sessioncache.entries import Head, StoredScope
from sessioncache.hot.calls import (
    Content,
    FlushState,
    Gone,
    Need,
    Part,
    Refused,
    Taken,
    TokenLost,
    Unready,
    Wanted,
    Written,
    WrittenPart,
)
from sessioncache.hot.layout import Layout, Place, fields_of, head_of
from sessioncache.hot.link import Argument, HotLink, Reply, evaluation, explain
from sessioncache.hot.once import Once
from sessioncache.hot.scripts import load_script
from sessioncache.revisions import DIGITS, ZERO, encode_revision
from sessioncache.settings import MAX_SCOPE_BYTES, MAX_SCOPE_KEYS, MAX_VALUE_BYTES

TOKEN_LIFETIME_MS = 2_000
"""Milliseconds after which another loader takes over from a silent one."""
_LIMITS = (MAX_SCOPE_KEYS, MAX_SCOPE_BYTES, MAX_VALUE_BYTES)
_LIST_CHUNK = 500
# Times to live of 0 renew nothing; a shared scope's kind, since no session of any life is asked for.
_PEEK: tuple[Argument, ...] = (0, 0, b"u", b"", -1)


class HotTier:
    """Reads and writes scopes in Redis.  A wrapper raises Unready where something must be made ready first."""

    def __init__(self, link: HotLink, layout: Layout, *, idle_ttl: float, temp_ttl: float) -> None:
        self.link = link
        self.layout = layout
        self._once = Once(link)
        self._idle_ms = max(1, int(idle_ttl * 1000))
        self._temp_ms = max(1, int(temp_ttl * 1000))
        self._temp_s = max(1, round(temp_ttl))

    async def write(self, parts: Sequence[Part]) -> Written | Refused:
        """Write all parts in one step, or nothing.  OutcomeUnknownError where no answer came."""
        deletes_only = all(operation.code == b"D" for part in parts for operation in part.operations)
        script = load_script("write", "allow-oom") if deletes_only else load_script("write")

        def args(operation: Sequence[Argument]) -> list[Argument]:
            return [*_LIMITS, self._temp_s, *operation, *_part_args(parts)]

        return self._written(parts, await self._once.call(script, parts[0].place, _part_keys(parts), args))

    async def create(self, parts: Sequence[Part], head: Head, *, token: bytes, known: bytes) -> Written | Refused:
        """Create the session of the first part; `token`: ``*`` for a generated id, empty when SQL has not been read."""
        identity = (head.org, head.app, head.user, head.session, head.title, head.forked_from)

        def args(operation: Sequence[Argument]) -> list[Argument]:
            told = (token, known, *(text.encode() for text in identity))
            return [*_LIMITS, self._temp_s, *operation, *told, *_part_args(parts)]

        reply = await self._once.call(load_script("create"), parts[0].place, _part_keys(parts), args)
        if reply[0] == b"exists":
            raise Taken
        if reply[0] == b"retry":
            raise TokenLost
        return self._written(parts, reply)

    async def delete(self, place: Place, birth: bytes) -> tuple[bool, Written]:
        """Delete a session; whether it existed."""
        return await self._delete(place, birth, ())

    async def bury(self, place: Place, token: bytes, stored: StoredScope) -> tuple[bool, Written]:
        """Delete a session that is not hot but in SQL, under the token of the reading.  TokenLost."""
        return await self._delete(
            place, b"", (token, encode_revision(stored.known), *fields_of(stored.head, place.ref.kind))
        )

    async def _delete(self, place: Place, birth: bytes, cold: Sequence[Argument]) -> tuple[bool, Written]:
        def args(operation: Sequence[Argument]) -> list[Argument]:
            return [birth, place.parents, *operation, *cold]

        reply = await self._once.call(load_script("delete"), place, [place.control, place.hash], args)
        _held(reply, place)
        _, existed, revision, incarnation, flushed = reply
        return bool(existed), Written(revision, [WrittenPart(incarnation, flushed, bool(existed), [])])

    async def read(self, wanted: Sequence[Wanted]) -> list[Content]:
        """Read scopes in one step."""
        keys: list[bytes] = []
        args: list[Argument] = [self._idle_ms, self._temp_ms]
        for part in wanted:
            keys += (part.place.control, part.place.temp if part.temp else part.place.hash)
            args += (b"t" if part.temp else part.place.ref.kind, part.birth)
            args.append(-1 if part.keys is None else len(part.keys))
            args += (key.encode() for key in part.keys or ())
        reply = await self.link.call(load_script("read"), keys, args)
        _raise_unready(reply, [part.place for part in wanted])
        contents = [_content(flat) for flat in reply[1:]]
        for part, content in zip(wanted, contents, strict=True):
            self._once.learn(part.place.ref.bucket, content.incarnation)
        return contents

    async def peek(self, place: Place) -> Content | None:
        """What a scope holds, without renewing its time to live; None where it is dirty.  Unready, Gone."""
        commands = [(b"SCARD", place.dirty), evaluation(load_script("read"), [place.control, place.hash], _PEEK)]
        script = load_script("read")
        marks, reply = await self.link.exchange(commands, {script.sha: script})
        for answer in (marks, reply):
            if isinstance(answer, ResponseError):
                raise explain(answer)
        _raise_unready(reply, [place])
        return None if marks else _content(reply[1])

    async def take_token(self, place: Place) -> tuple[bytes, bytes] | float | None:
        """(token, incarnation); or the seconds another loader has left; or None: the scope is hot."""
        token = secrets.token_hex(8).encode()
        reply = await self.link.call(load_script("token"), [place.control, place.hash], [token, TOKEN_LIFETIME_MS, b""])
        _raise_unready(reply, [place])
        if reply[0] == b"hot":
            return None
        return int(reply[1]) / 1000 if reply[0] == b"wait" else (token, reply[1])

    async def stage(self, place: Place, token: bytes, fields: Sequence[bytes]) -> None:
        """Store a chunk of a large scope beside, and renew the token."""
        reply = await self.link.call(
            load_script("stage"), [place.control, place.hash], [token, TOKEN_LIFETIME_MS, *fields]
        )
        _held(reply, place)

    async def install(
        self, place: Place, token: bytes, fields: Sequence[bytes], *, staged: int, ttl_ms: int = 0
    ) -> None:
        """Bring a scope into being (`staged` fields lie beside); TokenLost where SQL has to be read again."""
        args: list[Argument] = [token, ttl_ms or self._idle_ms, int(staged), *fields]
        _held(await self.link.call(load_script("install"), [place.control, place.hash], args), place)

    async def confirm_absent(self, place: Place, token: bytes) -> None:
        """Confirm that a session is in neither tier; TokenLost where that may be outdated."""
        _held(await self.link.call(load_script("absent"), [place.control, place.hash], [token]), place)

    async def flush_state(self, places: Sequence[Place]) -> list[FlushState]:
        """How far scopes have been flushed; asks for their flush."""
        calls = [([place.control, place.hash], ()) for place in places]
        replies = await self.link.call_many(load_script("flushed"), calls)
        for place, reply in zip(places, replies, strict=True):
            _raise_unready(reply, [place])
        return [_flush_state(reply) for reply in replies]

    async def unflushed(self, by: str, scope_id: str, buckets: Sequence[int]) -> list[Head]:
        """Heads (tombstones too) that SQL lacks: of a user (``u``), an app (``a``) or a bare session id (``b``)."""
        heads: list[Head] = []
        todo: dict[int, Argument] = dict.fromkeys(buckets, b"-inf")
        while todo:
            calls = [([self.layout.control(b)], (by, scope_id, since, _LIST_CHUNK)) for b, since in todo.items()]
            replies = await self.link.call_many(load_script("unflushed"), calls)
            _raise_unregistered(self.layout, list(todo), replies)
            heads += [_listed_head(row) for reply in replies for row in reply[3:]]
            # From the last score again: a few may share a microsecond (never a whole page).
            todo = {
                b: reply[2]
                for (b, since), reply in zip(todo.items(), replies, strict=True)
                if reply[1] == _LIST_CHUNK and reply[2] != since
            }
        return heads

    def _written(self, parts: Sequence[Part], reply: Reply) -> Written | Refused:
        outcome = _outcome(parts, reply)
        if isinstance(outcome, Written):
            for part, done in zip(parts, outcome.parts, strict=True):
                self._once.learn(part.place.ref.bucket, done.incarnation)
        return outcome


def _part_keys(parts: Sequence[Part]) -> list[bytes]:
    keys: list[bytes] = []
    for part in parts:
        keys += (part.place.control, part.place.temp if part.temp else part.place.hash)
    return keys


def _part_args(parts: Sequence[Part]) -> list[Argument]:
    args: list[Argument] = []
    for part in parts:
        kind = b"t" if part.temp else part.place.ref.kind.value
        args += (kind, part.birth, part.if_revision, part.place.parents, len(part.operations))
        for operation in part.operations:
            args += (operation.code, operation.key.encode(), operation.text, operation.expected)
    return args


def _outcome(parts: Sequence[Part], reply: Reply) -> Written | Refused:
    if reply[0] == b"ok":
        return Written(
            reply[1],
            [WrittenPart(inc, flushed, changed == 1, list(results)) for inc, flushed, changed, results in reply[2:]],
        )
    _raise_unready(reply, [part.place for part in parts])
    why = reply[0].decode()
    if why == "stale":
        return Refused(why, [(i - 1, j - 1) for i, j in zip(reply[1::2], reply[2::2], strict=True)])
    where = [(reply[1] - 1, reply[2] - 1)]
    if why == "compute":
        return Refused(why, where, text=reply[3], revision=reply[4])
    return Refused(why, where, detail=reply[3].decode() if len(reply) > 3 else "")


def _raise_unready(reply: Reply, places: Sequence[Place]) -> None:
    status = reply[0]
    if status == b"gone":
        raise Gone
    if status in (b"register", b"revalidate", b"cold"):
        raise Unready(Need(status.decode()), [places[i - 1] for i in reply[1:]])


def _raise_unregistered(layout: Layout, buckets: Sequence[int], replies: Sequence[Reply]) -> None:
    """One signal for all buckets that have to be registered, so that they are in one go."""
    missing = [bucket for bucket, reply in zip(buckets, replies, strict=True) if reply[0] == b"register"]
    if missing:
        raise UnreadyBuckets(missing)


class UnreadyBuckets(Exception):  # noqa: N818 - a signal
    """The incarnations of these buckets have to be registered first."""

    def __init__(self, buckets: list[int]) -> None:
        super().__init__(buckets)
        self.buckets = buckets


def _held(reply: Reply, place: Place) -> None:
    if reply[0] == b"retry":
        raise TokenLost
    _raise_unready(reply, [place])


def _content(flat: list[bytes]) -> Content:
    """Sorts head fields from entries, and leaves out what was deleted or is dead (R14)."""
    pairs = iter(flat)
    content = Content(next(pairs), {}, {})
    head, entries = content.head, content.entries
    for name, value in zip(pairs, pairs, strict=True):
        if name[0] == 61:  # '='
            if len(value) > DIGITS:
                entries[name[1:].decode()] = value
        else:
            head[name] = value
    cleared = head.get(b"c") or ZERO
    if cleared != ZERO:
        for key in [key for key, value in entries.items() if value[:DIGITS] <= cleared]:
            del entries[key]
    return content


def _flush_state(reply: Reply) -> FlushState:
    _, incarnation, of_hash, flushed_through, marks, dead = reply
    letters = {field[1:].decode(): revision for field, revision in zip(dead[::2], dead[1::2], strict=True)}
    return FlushState(incarnation, of_hash, flushed_through, marks, letters)


def _listed_head(row: list[bytes]) -> Head:
    names = (b"r", b"b", b"c", b"x", b"o", b"a", b"w", b"s", b"t", b"m", b"k", b"q", b"v", b"u")
    return head_of(dict(zip(names, row[1:], strict=True)))
