"""Handles: reading and writing the keys of one session, or of one shared scope.

A handle keeps a local view of what it has read and written, so that `state` needs no round trip, and a record of its
unflushed writes.  The record is what `flush()` waits for: that nothing is dirty would prove nothing, since Redis may
have forgotten a write together with its mark (R11).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple, Self, TypeVar

from sessioncache.coordination.tiers import Tiers
from sessioncache.coordination.usage import InUse
from sessioncache.errors import ConfigurationError, InvalidNameError, SessionNotFoundError
from sessioncache.handle.edit import Edit, KeyChange
from sessioncache.handle.flush_wait import flush
from sessioncache.handle.local_view import LocalView, State
from sessioncache.handle.refusals import error_of
from sessioncache.handle.unflushed_writes import UnflushedWrites
from sessioncache.hot.fields import Code
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Content, Operation, Part, Refused, Wanted, Written, WrittenPart
from sessioncache.hot.signals import Gone
from sessioncache.hot.tier import Plan
from sessioncache.hot.write import Write
from sessioncache.primitives import arithmetic
from sessioncache.primitives.deadline import check_seconds, within
from sessioncache.primitives.names import Key, KeyScope
from sessioncache.primitives.revisions import decode_revision, encode_revision
from sessioncache.primitives.values import (
    Json,
    check_flag,
    check_mapping,
    check_revision,
    decode_entry,
    decode_value,
    encode_value,
)
from sessioncache.watch import Watch

T = TypeVar("T")


def gone_keys(mapping: Mapping[str, Json], delete: Iterable[str]) -> tuple[str, ...]:
    """The keys that an update deletes, each once.  InvalidNameError for one that it sets as well."""
    # A str is made of strs, too: each of its letters would be a key to delete.
    if isinstance(delete, str | bytes) or not isinstance(delete, Iterable):
        raise InvalidNameError(f"delete takes several keys, not {type(delete).__name__}")
    keys = tuple(delete)
    for key in keys:
        if type(key) is not str:
            raise InvalidNameError(f"a key must be a str, not {type(key).__name__}")
    gone = tuple(dict.fromkeys(keys))
    for key in gone:
        if key in mapping:
            raise InvalidNameError(f"the key {key!r} is both set and deleted")
    return gone


class _Reading(NamedTuple):
    """Whole scopes that are read together, planned once and used again."""

    scopes: tuple[KeyScope, ...]
    asked: tuple[tuple[KeyScope, Sequence[str] | None], ...]
    """All that is asked, in the order of the plan: None for a whole scope."""
    plan: Plan


class Handle(ABC):
    """What sessions and shared scopes have in common.

    A write is one atomic step.  Every call may raise the errors that are listed at `SessionCache`, besides its own,
    and every write these.

    Raises:
        StaleLeaseError: The handle writes under a run lease, which was lost; nothing was written.
        StaleSessionError: The user was erased less than a minute ago; nothing was written.
    """

    def __init__(self, tiers: Tiers, open_unflushed: Callable[[], UnflushedWrites]) -> None:
        self._tiers = tiers
        self._open_unflushed = open_unflushed
        self._unflushed: UnflushedWrites | None = None
        self._known = LocalView()
        self._reading: _Reading | None = None
        """The latest reading of whole scopes: nearly always the same one again."""
        self._lease = b""
        """The token of the run lease under which this handle writes."""
        self._in_use: InUse | None = None
        """When the session was last known to be in use, if the handle is one of a session."""

    @property
    def unflushed(self) -> UnflushedWrites | None:
        """What was written through this handle and is not known to be durable."""
        return self._unflushed

    def moved(
        self, tiers: Tiers, open_unflushed: Callable[[], UnflushedWrites], writes: UnflushedWrites | None
    ) -> Self:
        """The same handle, of the same life, over other connections to the same tiers, for example in a forked child.

        ConfigurationError under a lease: a child that continued under it would be a second runner.
        """
        if self._lease:
            raise ConfigurationError("a run lease stays with the process that took it: take one here")
        other = copy(self)
        # A copy: each process continues from what was known at the fork, and must not see the other's later calls.
        other._known = self._known.copy()
        other._tiers, other._open_unflushed, other._unflushed = tiers, open_unflushed, writes
        return other

    # ---- what each kind of handle defines

    @abstractmethod
    def _split(self, key: object) -> Key:
        """The scope of a key and its name there."""

    @abstractmethod
    def _full(self, scope: KeyScope, name: str) -> str:
        """The key as the caller writes it."""

    @abstractmethod
    def _places(self) -> Mapping[KeyScope, Place]:
        """The scopes of this handle."""

    _first = KeyScope.SESSION
    """The scope that is part of every call; `_places` begins with it."""
    _own = KeyScope.SESSION
    """The scope whose revision is the handle's."""

    @property
    def _birth(self) -> bytes:
        """The life of the session that this handle belongs to; empty for shared scopes."""
        return b""

    @property
    def of_session(self) -> str:
        """The id of the session that this handle belongs to; empty for shared scopes."""
        return ""

    def gone(self) -> SessionNotFoundError:
        """What every call raises once the life that this handle belongs to is over."""
        return SessionNotFoundError("there is no such session")

    def _noticed(self, content: Content) -> None:  # noqa: B027 - most have nothing to remember
        """Called with the head of the handle's own scope whenever it was read."""

    def _changed(self, revision: bytes) -> None:  # noqa: B027
        """Called when the handle's own scope was written."""

    # ---- reading

    @property
    def state(self) -> State:
        """All keys as last read by this handle, plus its own writes; changing a value in it changes nothing else."""
        return State(self._known.values, self.of_session)

    @property
    def revision(self) -> int:
        """The revision of the handle's own keys that `state` shows: passed as `if_revision`, no unseen write is
        overwritten.

        A write through the handle advances it, unless somebody else wrote since the scope was read whole: then it stays
        until `refresh()`.  Reading a single key does not advance it.
        """
        return decode_revision(self._known.revision(self._own))

    async def get(self, key: str, default: Any = None) -> Any:
        """The value of a key as the hot tier has it now; `default` where it is absent.

        Raises:
            DamagedValueError: What is stored of the key is no JSON text.
        """
        scope, name = self._split(key)
        began = self._known.begin()
        try:
            content = (await self._read({scope: [name]}))[scope]
            value = content.entries.get(name)
            self._known.read(began, scope, self._full(scope, name), value, content.version)
        finally:
            self._known.end(began)
        return default if value is None else decode_entry(value, key, self.of_session)

    async def refresh(self) -> None:
        """Read everything again, in one atomic step; a scope that did not change since it was last read is not sent
        again."""
        await self._read_whole(self._readable())

    async def read_all(self) -> Mapping[str, bytes]:
        """Read everything again: key -> nine digits of revision and the text."""
        await self.refresh()
        return self._known.values

    def _readable(self) -> Iterable[KeyScope]:
        """The scopes that the handle's state is merged from."""
        return self._places()

    async def _read_whole(self, scopes: Iterable[KeyScope]) -> None:
        """Read all keys of some scopes, and remember them."""
        reading, planned = self._reading, tuple(scopes)
        if reading is None or reading.scopes != planned:
            # R5: the first scope first: its life is checked before what belongs to it.  The own one for its head.
            asked: dict[KeyScope, Sequence[str] | None] = {self._first: (), self._own: (), **dict.fromkeys(scopes)}
            reading = _Reading(planned, tuple(asked.items()), self._tiers.hot.plan(self._wanted(asked)))
            self._reading = reading
        began, versions = self._known.begin(), self._known.versions()
        held = [versions.get(scope, b"") for scope, _ in reading.asked] if versions else ()
        try:
            contents = await self._of_life(self._tiers.perform(self._tiers.hot.look, reading.plan, held))
            for (scope, keys), content in zip(reading.asked, contents, strict=True):
                if keys is None:
                    self._take(began, scope, content)
        finally:
            self._known.end(began)
        await self._note_use()

    def _take(self, began: int, scope: KeyScope, content: Content | None) -> None:
        """Take in a scope that was read whole; None: it has not changed."""
        if content is None:
            self._known.confirm(scope)
            return
        # Not if something newer was known: the head that came with it is as old as the keys.
        if self._known.replace(began, scope, self._full(scope, ""), content) and scope is self._own:
            self._noticed(content)

    async def _read(self, keys: Mapping[KeyScope, Sequence[str] | None]) -> dict[KeyScope, Content]:
        asked = {self._first: keys.get(self._first, ()), self._own: keys.get(self._own, ()), **keys}
        found = await self._of_life(self._tiers.perform(self._tiers.hot.read, self._wanted(asked)))
        contents = dict(zip(asked, found, strict=True))
        self._noticed(contents[self._own])
        await self._note_use()
        return contents

    def _wanted(self, asked: Mapping[KeyScope, Sequence[str] | None]) -> list[Wanted]:
        places, first = self._places(), self._first
        return [
            Wanted(places[scope], keys, self._birth if scope is first else b"", scope is KeyScope.TEMP)
            for scope, keys in asked.items()
        ]

    def watch(self) -> Watch:
        """Which keys are written, by any process: ``async for change in s.watch()``; see `Watch`."""
        return Watch(self._tiers, self._places(), self._readable(), self._birth, self._full, self.gone)

    async def _read_own(self) -> Mapping[str, bytes]:
        """The keys of the handle's own scope, read anew: key -> nine digits of revision and the text."""
        await self._read_whole([self._own])
        return {key: self._known.values[key] for key in self._known.keys_of(self._own)}

    async def _of_life(self, call: Awaitable[T]) -> T:
        """The result of a call; what `gone` says where the life that this handle belongs to is over."""
        try:
            return await call
        except Gone:
            raise self.gone() from None

    async def _note_use(self) -> None:
        """For retention: a reading, `temp:` keys and shared keys leave no time in the session's head by themselves."""
        if self._in_use is not None and self._tiers.usage.needed:
            await self._in_use.note(self._tiers)

    # ---- writing

    async def set(self, key: str, value: Json) -> int:
        """Set one key; the new revision.  It raises what `update` raises."""
        if type(key) is not str:
            self._split(key)  # refuses it, also where it could be no key of a dict
        return await self.update({key: value})

    async def update(
        self, mapping: Mapping[str, Json], *, delete: Iterable[str] = (), if_revision: int | None = None
    ) -> int:
        """Set and delete keys in one step; the new revision.

        Use `revision`, which stands for what `state` shows, as `if_revision`.  The revision that a write returned means
        only that nobody wrote after that write.

        Raises:
            StaleSessionError: The handle's own keys are not at `if_revision` any more; nothing was written.
        """
        changes: dict[KeyScope, list[Operation]] = {}
        for key, value in check_mapping("an update", mapping).items():
            scope, name = self._split(key)
            changes.setdefault(scope, []).append(Operation(Code.SET, name, encode_value(key, value)))
        for key in () if delete == () else gone_keys(mapping, delete):
            scope, name = self._split(key)
            changes.setdefault(scope, []).append(Operation(Code.DELETE, name))
        _, written = await self._write(changes, if_revision)
        return decode_revision(written.revision)

    async def delete(self, key: str) -> bool:
        """Delete one key; whether it existed."""
        return await self._change_one(key, Code.DELETE) == 1

    async def increment(self, key: str, by: float = 1) -> Any:
        """Add to a number, in one atomic step; the new number.  An absent key counts as 0.

        Raises:
            TypeMismatchError: The value is not a number.
            InvalidValueError: `by` is not a finite number, or the sum would not be one.
        """
        arithmetic.check(key, by)
        done = bytes(await self._change_one(key, Code.INCREMENT, encode_value(key, by), by))
        return decode_value(done, key, self.of_session)

    async def append(self, key: str, *items: Json) -> int:
        """Append to a list, in one atomic step; the new length.  An absent key counts as empty.

        Raises:
            TypeMismatchError: The value is not a list.
        """
        texts = [encode_value(f"{key}[+{index}]", item) for index, item in enumerate(items)]
        done = bytes(await self._change_one(key, Code.APPEND, b",".join(texts)))
        return len(decode_value(done, key, self.of_session))

    def edit(self, *, overwrite: bool = False) -> Edit:
        """A draft of fresh values: ``async with s.edit() as draft``; what differs on exit is written in one step.

        The end of the block raises StaleSessionError, and nothing is written, where a changed key is not as the draft
        read it any more (`.keys`), unless `overwrite`.
        """
        return Edit(self, overwrite=check_flag("overwrite", overwrite))

    async def apply(self, changes: Iterable[KeyChange]) -> None:
        """Write the changes of a draft in one step; StaleSessionError where a key is not as it was read any more."""
        sorted_out: dict[KeyScope, list[Operation]] = {}
        for key, text, expected in changes:
            scope, name = self._split(key)
            operation = (
                Operation(Code.DELETE, name, b"", expected)
                if text is None
                else Operation(Code.SET, name, text, expected)
            )
            sorted_out.setdefault(scope, []).append(operation)
        if sorted_out:
            await self._write(sorted_out)

    async def _clear(self) -> int:
        write, written = await self._write({self._own: [Operation(Code.CLEAR, "")]})
        return int(written.parts[write.scopes.index(self._own)].results[0])

    async def flush(self, timeout: float = 30) -> None:
        """Wait until every write through this handle is durable; `timeout` in seconds.

        A session and each of its namespaces are handles of their own: `SessionCache.flush` waits for all of them.

        Raises:
            ConfigurationError: `timeout` is not a number of seconds.
            FlushTimeoutError: Something is not durable in time; it is still waiting in Redis.
            DeadLetterError: The database refuses a value that was written.
            WriteLostError: Redis forgot a write before it was durable.
        """
        check_seconds("timeout", timeout)
        if self._unflushed:
            # A step would otherwise take the time-out of a call, which may be longer than this one.
            with within(timeout):
                await flush(self._tiers, [self._unflushed], timeout)

    async def _change_one(self, key: str, code: bytes, text: bytes = b"", by: float = 0) -> bytes | int:
        """Change one key; the result of its operation."""
        scope, name = self._split(key)
        # One time-out for all attempts: another writer may be faster any number of times.
        with within(self._tiers.settings.timeout):
            write, outcome = await self._change_exactly(key, scope, Operation(code, name, text), by)
        written, place = self._accepted(write, outcome), write.scopes.index(scope)
        # A SET, in which the client computed the value, has no result: what it left is what was sent.
        result = written.parts[place].results[0]
        return write.parts[place].operations[0].text if result == b"" else result

    async def _change_exactly(
        self, key: str, scope: KeyScope, operation: Operation, by: float
    ) -> tuple[Write, Written | Refused]:
        """One change as it was sent last, and its outcome.

        What Lua cannot add exactly (R19) is added here, and written only if nobody else wrote the key meanwhile.
        """
        write = asked = self._change({scope: [operation]})
        outcome = await self._send(write)
        # Stale: somebody wrote the key after it was read for the sum, so that Lua is asked again from the start.
        while isinstance(outcome, Refused) and outcome.why in ("compute", "stale"):
            write = asked
            if outcome.why == "compute":
                value = decode_value(outcome.text, key, self.of_session)
                text = encode_value(key, arithmetic.add(key, value, by))
                write = self._change({scope: [Operation(Code.SET, operation.key, text, outcome.revision)]})
            outcome = await self._send(write)
        return write, outcome

    async def _write(
        self, changes: Mapping[KeyScope, Sequence[Operation]], if_revision: int | None = None
    ) -> tuple[Write, Written]:
        write = self._change(changes, if_revision)
        return write, self._accepted(write, await self._send(write))

    def _change(self, changes: Mapping[KeyScope, Sequence[Operation]], if_revision: int | None = None) -> Write:
        """The changes by scope, with the two that every write checks: the life of the first, the revision of the
        handle's own.  LimitExceededError."""
        condition = b"" if if_revision is None else encode_revision(check_revision("if_revision", if_revision))
        places, first, own = self._places(), self._first, self._own
        scopes = tuple(dict.fromkeys((first, own, *changes)))
        parts = [
            Part(
                places[scope],
                changes.get(scope, ()),
                self._birth if scope is first else b"",
                condition if scope is own else b"",
                scope is KeyScope.TEMP,
            )
            for scope in scopes
        ]
        write = Write(parts, scopes, self._lease)
        write.check_size()
        return write

    async def _send(self, write: Write) -> Written | Refused:
        # Before the call: whatever other calls record from now on may be newer than what this one brings.
        began = self._known.begin()
        try:
            outcome = await self._of_life(self._tiers.write(write))
            # Nothing is awaited in between: a caller that is cancelled from now on does not miss it.
            if isinstance(outcome, Written):
                self._note(write, outcome, began)
        finally:
            self._known.end(began)
        await self._note_use()
        return outcome

    def _note(self, write: Write, written: Written, began: int = 0, *, life: bool = False) -> None:
        """Take in what was written; `life`: the session was created by it."""
        revision = written.revision
        for scope, part, done in zip(write.scopes, write.parts, written.parts, strict=True):
            # Nothing was written here, so that what the call was given must not be shown as if it had been.
            if not done.changed:
                self._note_absent(scope, part.operations, done, began)
                continue
            self._note_part(scope, part.operations, done, revision, began)
            if scope is self._own:
                self._changed(revision)
        if self._unflushed is None:
            self._unflushed = self._open_unflushed()
        self._unflushed.note(write.parts, written, life=life)

    def _note_part(
        self, scope: KeyScope, operations: Sequence[Operation], done: WrittenPart, revision: bytes, began: int
    ) -> None:
        known = self._known
        for (code, key, given, _), result in zip(operations, done.results, strict=True):
            if code == Code.CLEAR:
                known.clear(began, scope, done, revision)
            else:
                # Only increments and appends return a text: what they made of the value that was there.
                text = result if result and isinstance(result, bytes) else given
                known.write(began, scope, self._full(scope, key), revision, None if code == Code.DELETE else text)
        known.advance(scope, done, revision)

    def _note_absent(self, scope: KeyScope, operations: Sequence[Operation], done: WrittenPart, began: int) -> None:
        """Record what a write without effect shows: the keys that it was to delete are absent."""
        version = done.incarnation + done.before if done.before else b""
        for code, key, _, _ in operations:
            absent = (
                self._known.keys_of(scope)
                if code == Code.CLEAR
                else [self._full(scope, key)]
                if code == Code.DELETE
                else []
            )
            for name in absent:
                self._known.read(began, scope, name, None, version)

    def _accepted(self, write: Write, outcome: Written | Refused) -> Written:
        if isinstance(outcome, Written):
            return outcome
        # Below 0: a limit of the whole scope, of which no single key is the cause.
        keys = [self._full(write.scopes[i], write.parts[i].operations[j].key) for i, j in outcome.where if j >= 0]
        raise error_of(outcome, keys)
