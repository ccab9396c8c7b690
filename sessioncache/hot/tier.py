"""The hot tier as the client uses it: one typed wrapper per script."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from redis.exceptions import ResponseError

from sessioncache.errors import HotTierUnavailableError
from sessioncache.hot.client import Argument, HotClient, Reply, Request, evaluation, pairs_of
from sessioncache.hot.connection import LARGE
from sessioncache.hot.errors import explain
from sessioncache.hot.fields import HEAD_MARK, TEMP_PART, Field, fields_of, key_field
from sessioncache.hot.idempotency import Idempotency
from sessioncache.hot.layout import Layout, Place
from sessioncache.hot.messages import (
    Content,
    Deleted,
    FlushState,
    Gathered,
    Part,
    Refused,
    Stamp,
    Token,
    Touch,
    Wanted,
    Written,
    WrittenPart,
)
from sessioncache.hot.scripts import Script, load_script
from sessioncache.hot.signals import Need, PiecesLost, Taken, TokenLost, Unready, raise_unready
from sessioncache.hot.tokens import TOKEN_LIFETIME_MS, Kept
from sessioncache.hot.unflushed import Unflushed, read_unflushed
from sessioncache.hot.write import Write
from sessioncache.primitives.entries import Head, StoredScope
from sessioncache.primitives.revisions import encode_revision
from sessioncache.primitives.scopes import ScopeKind
from sessioncache.settings import MAX_SCOPE_BYTES, MAX_SCOPE_KEYS, MAX_VALUE_BYTES

_MOST_LARGE = 4096
"""Most large scopes that a process remembers."""
LIMITS = (MAX_SCOPE_KEYS, MAX_SCOPE_BYTES, MAX_VALUE_BYTES)
_HEAD = (Field.INCARNATION, Field.REVISION, Field.BIRTH, Field.CLEARED, Field.VALUES_REVISION, Field.UPDATED)
"""What is read of a head beside some keys."""
# Times to live of 0 renew nothing; the kind of a shared scope, since no session of any life is asked for.
_PEEK: tuple[Argument, ...] = (0, 0, b"u", b"", b"", -1)


class Plan:
    """Whole scopes that are read together again and again; see `HotTier.plan`."""

    __slots__ = ("request", "wanted")

    def __init__(self, wanted: Sequence[Wanted], request: Request) -> None:
        self.wanted, self.request = wanted, request


class HotTier:
    """Reads and writes scopes in Redis.  A wrapper raises Unready where something must be made ready first."""

    def __init__(self, link: HotClient, layout: Layout, *, idle_ttl: float, temp_ttl: float) -> None:
        self.link = link
        self.layout = layout
        self.idempotency = Idempotency(link)
        self.idle_ms = max(1, int(idle_ttl * 1000))
        self._temp_ms = max(1, int(temp_ttl * 1000))
        self._temp_s = max(1, round(temp_ttl))
        self._large: dict[bytes, None] = {}
        """Hashes that were found to be large, the latest last."""

    async def write(self, write: Write) -> Written | Refused:
        """Write all of it in one step, or nothing.  OutcomeUnknownError where no answer came."""
        # R15: what only deletes is accepted when memory is full.
        script = load_script("write") if write.adds else load_script("write", "allow-oom")
        return self._written(write, await self._call_writing(script, write))

    async def touch(self, part: Part, touch: Touch, lease: bytes = b"") -> tuple[Written | Refused, dict[bytes, bytes]]:
        """Count a use, and name the session; the head fields that lists show, empty where it was refused."""
        told = (touch.messages, touch.tokens, b"1" if touch.rename else b"", touch.title.encode())
        write = Write([part], lease=lease)
        reply = await self._call_writing(load_script("touch"), write, *told)
        if reply[0] != b"ok":
            return self._written(write, reply), {}
        fields = zip(
            (Field.BIRTH, Field.UPDATED, Field.TITLE, Field.MESSAGES, Field.TOKENS, Field.FORKED_FROM),
            reply[3],
            strict=True,
        )
        return self._written(write, reply[:3]), {name: value or b"" for name, value in fields}

    async def use(self, place: Place, birth: bytes, interval: int) -> int:
        """Record that a session is in use, unless that was recorded less than `interval` µs ago; µs by the clock of
        Redis.

        Gone, Unready.
        """
        args = (birth, place.parents, interval)
        reply = await self.link.call(load_script("use"), [place.control, place.hash], args)
        raise_unready(reply, [place])
        return int(reply[1])

    async def create(
        self,
        parts: Sequence[Part],
        head: Head,
        *,
        token: bytes,
        known: bytes,
        whole: Sequence[Place] = (),
        pieces: Gathered | None = None,
    ) -> Written | Refused:
        """Create the session of the first part; `token`: ``*`` for a generated id, empty when SQL has not been read.

        `whole`: scopes among the parts that are read as well (`WrittenPart.content`); `pieces`: its private keys, where
        they are not operations of the first part.  Taken, TokenLost, PiecesLost.
        """
        identity = (head.org, head.app, head.user, head.session, head.title, head.forked_from)
        ready = (pieces.birth, pieces.name, *pieces.counts[0][:2]) if pieces else (b"", b"", 0, 0)
        write = Write(parts)
        after = [b"", token, known, *(text.encode() for text in identity), *ready, *write.arguments()]
        bodies = [(b"HGETALL", place.hash) for place in whole]
        reply, *found = await self.idempotency.call_beside(
            load_script("create"), parts[0].place, write.hashes(), [*LIMITS, self._temp_s], after, bodies
        )
        if reply[0] == b"exists":
            raise Taken
        if reply[0] == b"retry":
            raise TokenLost
        if reply[0] == b"pieces":
            raise PiecesLost
        outcome = self._written(write, reply)
        if isinstance(outcome, Refused):
            return outcome
        return _with_contents(parts, outcome, {place.hash: body for place, body in zip(whole, found, strict=True)})

    async def delete(self, place: Place, birth: bytes = b"", *, unused_since: int | None = None) -> Deleted:
        """Delete a session; with `unused_since` only a clean one that has not been in use since that revision."""
        return await self._delete(place, birth, unused_since, ())

    async def bury(
        self, place: Place, token: bytes, stored: StoredScope, *, unused_since: int | None = None
    ) -> Deleted:
        """Delete a session that is not hot but in SQL, under the token of the reading.  TokenLost."""
        cold = (token, encode_revision(stored.known), *fields_of(stored.head, place.ref.kind))
        return await self._delete(place, b"", unused_since, cold)

    async def _delete(self, place: Place, birth: bytes, unused_since: int | None, cold: Sequence[Argument]) -> Deleted:
        condition = b"" if unused_since is None else encode_revision(unused_since)
        reply = await self.idempotency.call(
            load_script("delete"), place, [place.control, place.hash], [birth, place.parents], [condition, *cold]
        )
        _held(reply, place)
        if reply[0] == b"kept":
            return Deleted(existed=False, written=None)
        _, existed, revision, incarnation, flushed, living, spaces = reply
        written = Written(revision, [WrittenPart(incarnation, flushed, bool(existed), [])])
        dirty = {name.decode(): count for name, count in zip(spaces[::2], spaces[1::2], strict=True)} if spaces else {}
        return Deleted(bool(existed), written, None if living < 0 else living, dirty)

    async def erase(self, place: Place, seconds: float, token: bytes = b"", stored: StoredScope | None = None) -> Stamp:
        """Erase a user's scope, and refuse writes of the user for some seconds.  May be repeated.

        A scope that is not hot: with what SQL has, under the token of the reading.  TokenLost.
        """
        args: list[Argument] = [int(seconds * 1_000_000), place.ref.user.encode()]
        if token:
            ref = place.ref
            head = stored.head if stored else Head("", "", "", "", revision=0)
            # SQL may know nothing of the scope, or have blanked its names in an earlier erasure (R14).
            fields = fields_of(replace(head, org=ref.org, app=ref.app, user=ref.user), ref.kind)
            args += [token, encode_revision(stored.known if stored else 0), *fields]
        reply = await self.link.call(load_script("erase"), [place.control, place.hash], args)
        _held(reply, place)
        return Stamp(reply[1], len(stored.entries) if token and stored else reply[2], reply[3])

    async def read(self, wanted: Sequence[Wanted]) -> list[Content]:
        """Read scopes, or some of their keys, in one step."""
        contents = await self._ask([one._replace(held=b"") if one.held else one for one in wanted])
        return [content for content in contents if content is not None]

    def plan(self, wanted: Sequence[Wanted]) -> Plan:
        """A reading of whole scopes, to be made any number of times; of one without keys it is only checked that it
        exists.

        The script checks, and Redis' own command reads: a body that goes through Lua costs three times as much.
        """
        script, (keys, args) = load_script("read"), self._asked(wanted, only_check=True)
        bodies = [(b"HGETALL", one.place.hash) for one in wanted if _is_apart(one)]
        return Plan(wanted, Request([evaluation(script, keys, args), *bodies], script))

    def checking(self, places: Sequence[Place]) -> Request:
        """A request that checks whether shared scopes are ready."""
        script = load_script("read")
        calls = [evaluation(script, *self._asked([Wanted(one) for one in places], only_check=True))] if places else []
        return Request(calls, script)

    def look(self, plan: Plan, held: Sequence[bytes]) -> Awaitable[Sequence[Content | None]]:
        """Read whole scopes in one step; None for one that still has the version that is held (empty: none is)."""
        if any(held):
            return self._ask([one._replace(held=of) for one, of in zip(plan.wanted, held, strict=True)])
        return self.read_whole(plan)

    async def read_whole(self, plan: Plan) -> Sequence[Content]:
        """Read whole scopes in one step.

        Bodies that have the revisions that the script found are what it would have read.  Where somebody wrote in
        between, the script reads them itself.
        """
        # Its body would hold up the small calls of the same connection.
        if self._large and any(one.place.hash in self._large for one in plan.wanted):
            return await self.read(plan.wanted)
        reply, *found = await self.link.ask(plan.request)
        if reply[0] == b"large":  # only temp: keys go through Lua here
            return await self.read(plan.wanted)
        if reply[0] != b"ok":
            await self._more_than_read(reply, plan.wanted)
        contents, bodies = [_content(part) for part in reply[1:]], iter(found)
        for one, content in zip(plan.wanted, contents, strict=True):
            if _is_apart(one):
                # R1: a body of another version is of another moment than the rest, so that all is read again by the
                # script.
                body = pairs_of(next(bodies))
                if (
                    body.get(Field.REVISION) != content.fields[Field.REVISION]
                    or body.get(Field.INCARNATION) != content.incarnation
                ):
                    return await self.read(plan.wanted)
                content.fields = body
        self._learn(plan.wanted, contents)
        return contents

    async def _ask(self, wanted: Sequence[Wanted]) -> list[Content | None]:
        reply = await self.link.call(load_script("read"), *self._asked(wanted))
        if reply[0] == b"large":
            return await self.read_large(wanted)
        if reply[0] != b"ok":
            await self._more_than_read(reply, wanted)
        contents = [None if part == 1 else _content(part) for part in reply[1:]]
        self._learn(wanted, contents)
        return contents

    async def read_large(self, wanted: Sequence[Wanted], *, renew: bool = True) -> list[Content | None]:
        """Read what Lua would hold Redis up with: the script returns the versions, plain commands read the bodies.

        What the caller holds already is not sent.  Where somebody wrote in between, it is read again.
        """
        script, (keys, args) = load_script("read"), self._asked(wanted, only_check=True, apart=True)
        if not renew:  # a namespace is read by itself, whatever life its session is in
            args[:3] = _PEEK[:3]
        check = evaluation(script, keys, args)
        told = await self.link.call(script, keys, args)
        while True:
            if told[0] != b"ok":
                await self._more_than_read(told, wanted)
            changed = [at for at, part in enumerate(told[1:]) if part != 1]
            # The script once more, right before the bodies: only then does its answer show whether they are of one
            # version. Others may write any number of times: it ends with the time of the call.
            request = Request([check, *(_body_of(wanted[at]) for at in changed)], script)
            told, *bodies = await self.link.ask(request, is_large=True)
            if told[0] in (b"ok", b"renew"):
                found = {at: _body(wanted[at], body) for at, body in zip(changed, bodies, strict=True)}
                contents = [None if part == 1 else _same(part, found.get(at)) for at, part in enumerate(told[1:])]
                if all(content or part == 1 for content, part in zip(contents, told[1:], strict=True)):
                    self._learn(wanted, contents)
                    return contents

    def _asked(
        self, wanted: Sequence[Wanted], *, only_check: bool = False, apart: bool = False
    ) -> tuple[list[bytes], list[Argument]]:
        keys: list[bytes] = []
        args: list[Argument] = [self.idle_ms, self._temp_ms]
        for place, names, birth, temp, held in wanted:
            keys += (place.control, place.temp if temp else place.hash)
            args += (TEMP_PART if temp else place.ref.kind, birth, held)
            if names is None or only_check:
                # -2: the revision alone. No command follows for `temp:` keys of a plan, so that they come through Lua
                # (-1).
                args.append(-2 if only_check and (apart or not temp) else -1)
            else:
                args.append(len(names))
                args += [name.encode() for name in names]
        return keys, args

    async def _more_than_read(self, reply: Reply, wanted: Sequence[Wanted]) -> None:
        """Raise Unready or Gone; else renew the time to live of what was read, where that is due and Redis takes
        writes."""
        raise_unready(reply, [one.place for one in wanted])
        keys, _ = self._asked(wanted)
        kinds = [TEMP_PART if one.temp else one.place.ref.kind for one in wanted]
        # R15: what is hot can be read while Redis takes no writes; the next reading renews it.
        with suppress(HotTierUnavailableError):
            await self.link.call(load_script("keep"), keys, [self.idle_ms, self._temp_ms, *kinds])

    def _learn(self, wanted: Sequence[Wanted], contents: Sequence[Content | None]) -> None:
        for one, content in zip(wanted, contents, strict=True):
            if content is not None:
                self.idempotency.learn(one.place.ref.bucket, content.incarnation)
                if content.size > LARGE:  # read past Lua, and over the connection for what is large, from now on
                    self._large[one.place.hash] = None
                    if len(self._large) > _MOST_LARGE:
                        del self._large[next(iter(self._large))]

    async def peek(self, place: Place) -> Content | None:
        """What a scope holds, without renewing its time to live; None where it is dirty.  Unready, Gone."""
        commands = [(b"SCARD", place.dirty), evaluation(load_script("read"), [place.control, place.hash], _PEEK)]
        script = load_script("read")
        marks, reply = await self.link.exchange(commands, {script.sha: script})
        for answer in (marks, reply):
            if isinstance(answer, ResponseError):
                raise explain(answer)
        raise_unready(reply, [place])
        if reply[0] == b"large":
            (content,) = await self.read_large([Wanted(place)], renew=False)
            return None if marks else content
        return None if marks else _content(reply[1])

    async def take_token(self, place: Place) -> Token | float | None:
        """The token; or the seconds that another loader has left; or None: the scope is hot."""
        token = secrets.token_hex(8).encode()
        args = (TOKEN_LIFETIME_MS, b"", place.parents, self.idle_ms, token)
        (reply,) = await self.link.call(load_script("token"), [place.control, place.hash], args)
        raise_unready(reply, [place])
        if reply[0] == b"host":
            raise Unready(Need(reply[1].decode()), [self.layout.host(place, reply[2].decode())])
        if reply[0] == b"hot":
            return None
        return int(reply[1]) / 1000 if reply[0] == b"wait" else Token(token, reply[1], reply[8])

    def kept(self, place: Place, token: bytes) -> Kept:
        """A block in which a token is kept."""
        return Kept(self.link, [(place, token)])

    async def stage(self, place: Place, token: bytes, fields: Sequence[bytes], *, birth: bytes = b"") -> None:
        """Store a piece of a large scope, and renew the token; `birth` as in `install`."""
        args: list[Argument] = [token, TOKEN_LIFETIME_MS, place.user, _host(place), birth, *fields]
        _held(await self.link.call(load_script("stage"), [place.control, place.hash], args), place)

    async def install(
        self, place: Place, token: bytes, fields: Sequence[bytes], *, staged: int, birth: bytes = b""
    ) -> None:
        """Install a scope (`staged` fields are stored in pieces); TokenLost where SQL has to be read again.

        `birth`: of the session that a namespace was read for.
        """
        args: list[Argument] = [token, self.idle_ms, int(staged), _host(place), birth, *fields]
        _held(await self.link.call(load_script("install"), [place.control, place.hash], args), place)

    async def confirm_absent(self, place: Place, token: bytes) -> None:
        """Confirm that a session is in neither tier; TokenLost where that may be outdated."""
        _held(await self.link.call(load_script("absent"), [place.control, place.hash], [token]), place)

    async def flush_state(self, places: Sequence[Place]) -> list[FlushState]:
        """How far scopes have been flushed; also asks the workers to flush them soon."""
        calls = [([place.control, place.hash], ()) for place in places]
        replies = await self.link.call_many(load_script("flushed"), calls)
        for place, reply in zip(places, replies, strict=True):
            raise_unready(reply, [place])
        return [_flush_state(reply) for reply in replies]

    async def unflushed(self, by: str, index_id: str, buckets: Sequence[int]) -> list[Unflushed]:
        """Sessions (tombstones too) whose head SQL lacks, by one of the indexes of ``prelude.lua``.  UnreadyBuckets."""
        return await read_unflushed(self.link, self.layout, by, index_id, buckets)

    def _call_writing(self, script: Script, write: Write, *more: Argument) -> Awaitable[Reply]:
        """The reply of a script that makes a write; `more`: arguments of its own before those of the parts."""
        before, after = [*LIMITS, self._temp_s], [write.lease, *more, *write.arguments()]
        return self.idempotency.call(script, write.parts[0].place, write.hashes(), before, after)

    def _written(self, write: Write, reply: Reply) -> Written | Refused:
        outcome = write.outcome(reply)
        if isinstance(outcome, Written):
            for part, done in zip(write.parts, outcome.parts, strict=True):
                self.idempotency.learn(part.place.ref.bucket, done.incarnation)
        return outcome


def _host(place: Place) -> bytes:
    """The id of the session's scope, for a namespace."""
    return place.parents if place.ref.kind is ScopeKind.NAMESPACE else b""


def _with_contents(parts: Sequence[Part], written: Written, bodies: Mapping[bytes, Reply]) -> Written:
    """A write with the scopes that were read after it: those with the revision that it left are of its moment."""

    def seen(part: Part, done: WrittenPart) -> WrittenPart:
        body = bodies.get(part.place.hash)
        if part.temp or body is None or isinstance(body, Exception):
            return done
        content = Content(done.incarnation, pairs_of(body))
        # R1: another revision is of another moment: the caller reads that scope once more.
        left = written.revision if done.changed else done.before
        is_that = (
            content.fields.get(Field.INCARNATION) == done.incarnation and content.fields.get(Field.REVISION) == left
        )
        return done._replace(content=content) if is_that else done

    return Written(written.revision, [seen(*pair) for pair in zip(parts, written.parts, strict=True)])


def _held(reply: Reply, place: Place) -> None:
    if reply[0] == b"retry":
        raise TokenLost
    raise_unready(reply, [place])


def _is_apart(one: Wanted) -> bool:
    """Whether a plan reads a scope by a command of its own."""
    return one.keys is None and not one.temp


def _body_of(one: Wanted) -> tuple[Argument, ...]:
    """The command that reads what is wanted of a scope."""
    key = one.place.temp if one.temp else one.place.hash
    if one.keys is None:
        return (b"HGETALL", key)
    return (b"HMGET", key, *_HEAD, *(key_field(name) for name in one.keys))


def _body(one: Wanted, reply: Reply) -> dict[bytes, bytes]:
    if one.keys is None:
        return pairs_of(reply)
    names = (*_HEAD, *map(key_field, one.keys))
    return {name: value for name, value in zip(names, reply, strict=True) if value is not None}


def _same(part: Reply, body: dict[bytes, bytes] | None) -> Content | None:
    """A body, if it is of the version that the script returned; None where somebody wrote in between."""
    checked = _content(part)
    if not checked.fields:  # temp: keys of no life or of another one
        return checked
    if (
        body is None
        or body.get(Field.REVISION) != checked.fields[Field.REVISION]
        or body.get(Field.INCARNATION, checked.incarnation) != part[0]
    ):
        return None
    return Content(checked.incarnation, body)


def _content(flat: list[bytes]) -> Content:
    return Content(flat[0], dict(zip(flat[1::2], flat[2::2], strict=True)))


def _flush_state(reply: Reply) -> FlushState:
    _, incarnation, of_hash, flushed_through, marks, dead = reply
    letters = dict(zip(dead[::2], dead[1::2], strict=True))
    headless = letters.pop(HEAD_MARK, None) is not None
    refused = {field[1:].decode(): revision for field, revision in letters.items()}
    return FlushState(incarnation, of_hash, flushed_through, marks, refused, headless)
