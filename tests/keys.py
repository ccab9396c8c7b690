"""The checker of keys left behind: accounts for every key of a Redis, its type, its time to live, and what it holds.

What a test leaves must be what `prelude.lua` declares, and whole: a mark without an index entry, a hash that is dirty
and may expire, or one that is clean and never does, is a scope lost or a leak in production.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import redis

from sessioncache.hot.layout import Layout
from sessioncache.primitives.revisions import ALPHABET, DIGITS, ZERO
from sessioncache.primitives.timestamps import json_size

_MEMBER = "[snua][0-9a-f]{32}"
_KEY = re.compile(r"(?P<base>.+:\{\d+\}:)(?P<kind>[a-z]+)(?::(?P<rest>.*))?", re.DOTALL)
_RECORD = re.compile("[^{}]+:layout")
_CONTROL = re.compile(
    rf"incarnation|replid|run|fed|before|forgot|replaced|registered|delay|ops|rows|flushes|hydrates|conflicts|idle_ttl|pressure|measuring|older|restored|turn:.+|lag:\d+(\.0)?|w:.+|[tcl]:{_MEMBER}",
    re.DOTALL,
)
_HEAD = frozenset("irbcxfpynzvhuoawstmkqdglej")
_DIGITS = re.compile(f"[{re.escape(ALPHABET)}]{{{DIGITS}}}".encode())

_KINDS: dict[str, tuple[str, str]] = {
    "ctl": ("hash", ""),
    "h": ("hash", _MEMBER),
    "d": ("set", _MEMBER),
    "dirty": ("zset", ""),
    "since": ("zset", ""),
    "unflushed": ("zset", "[aubow]:[0-9a-f]{32}"),
    "temp": ("hash", "[0-9a-f]{32}"),
    "ops": ("hash", "[01]"),
    "dead": ("hash", ""),
    "ns": ("set", "[0-9a-f]{32}"),
    "spaces": ("set", ""),
    "pieces": ("zset", ""),
    "erased": ("hash", ""),
    "p": ("hash", f"{_MEMBER}:[0-9a-f]+"),
    "p:d": ("set", f"{_MEMBER}:[0-9a-f]+:d"),
}
"""Kind of key -> its type, and what may follow."""


@dataclass(frozen=True, slots=True)
class Held:
    """One key of a server."""

    type: str
    expires: bool
    content: Any
    """A hash as a dict of bytes, the members of a set or sorted set; None for other types."""


Dump = Mapping[str, Held]


def check_keys(client: redis.Redis, layout: Layout | None = None, *, foreign: bool = False) -> None:
    """Raise AssertionError naming every key that is not as it must be.

    With `layout` every key must be of that installation; without, of any.  `foreign`: ignore what is of none.
    """
    dump = read_dump(client)
    wrong = sorted(set(offences(dump, layout, foreign=foreign)))
    assert not wrong, "Redis was left with\n  " + "\n  ".join(wrong)


def read_dump(client: redis.Redis) -> dict[str, Held]:
    """Every key of a server."""
    keys = client.scan_iter("*", count=1000)
    return {_text(key): _held(client, key) for key in keys}


def _held(client: Any, key: bytes | str) -> Held:
    kind = _text(client.type(key))
    content: Any = None
    if kind == "hash":
        content = {_bytes(name): _bytes(value) for name, value in client.hgetall(key).items()}
    elif kind == "set":
        content = {_bytes(member) for member in client.smembers(key)}
    elif kind == "zset":
        content = {_bytes(member) for member in client.zrange(key, 0, -1)}
    return Held(kind, client.pttl(key) != -1, content)


def offences(dump: Dump, layout: Layout | None = None, *, foreign: bool = False) -> Iterator[str]:
    """What is wrong with the keys of a server, a line each."""
    bases: set[str] = set()
    for key, held in dump.items():
        if _RECORD.fullmatch(key):
            yield from _expect(key, held, "hash", expires=False)
            continue
        found = _KEY.fullmatch(key)
        declared = _KINDS.get(_kind(found)) if found else None
        if found is None or declared is None or not re.fullmatch(declared[1], found["rest"] or "", re.DOTALL):
            if not foreign:
                yield f"{key}: not a key of ours"
            continue
        bases.add(found["base"])
        expires = None if found["kind"] == "h" else found["kind"] in ("temp", "p")
        yield from _expect(key, held, declared[0], expires=expires)
    for base in bases:
        yield from _Bucket(base, dump).offences()
    if layout is not None:
        yield from _outside(dump, layout)


def _kind(found: re.Match[str]) -> str:
    """The kind of a key; the marks of what is stored in pieces have a kind of their own."""
    are_marks = found["kind"] == "p" and (found["rest"] or "").endswith(":d")
    return found["kind"] + ":d" if are_marks else found["kind"]


def _outside(dump: Dump, layout: Layout) -> Iterator[str]:
    ours = {layout.control(bucket)[:-3].decode() for bucket in range(layout.buckets)}
    for key in dump:
        found = _KEY.fullmatch(key)
        if found is not None and found["base"] not in ours:
            yield f"{key}: of another installation, or of a bucket beyond the last"


def _expect(key: str, held: Held, kind: str, *, expires: bool | None) -> Iterator[str]:
    if held.type != kind:
        yield f"{key}: a {held.type} instead of a {kind}"
    if expires is not None and held.expires is not expires:
        yield f"{key}: has a TTL" if held.expires else f"{key}: has no TTL"


class _Bucket:
    """All keys of one bucket."""

    def __init__(self, base: str, dump: Dump) -> None:
        self.base = base
        self.own = {key[len(base) :]: held for key, held in dump.items() if key.startswith(base)}
        self.marks = {key[2:]: held.content for key, held in self.own.items() if key.startswith("d:")}
        self.dirty, self.since = self._members("dirty"), self._members("since")

    def offences(self) -> Iterator[str]:
        """What is wrong in the bucket."""
        for problem in (
            *self._index(),
            *self._unflushed(),
            *self._control(),
            *self._scopes(),
            *self._temps(),
            *self._spaces(),
        ):
            yield self.base + problem

    def _members(self, name: str) -> set[str]:
        return {_text(member) for member in self.own[name].content} if name in self.own else set()

    def _resting(self) -> set[str]:
        """Scopes of which only dead letters are dirty, or whose head is one: they are pinned, and not in the index."""
        return {
            member
            for member, marks in self.marks.items()
            if member not in self.dirty
            and (self._is_headless(member) or all(self._is_dead(member, mark) for mark in marks))
        }

    def _is_headless(self, member: str) -> bool:
        """Whether the database refuses for good the head of a scope, or that of a namespace's session."""
        scope = self.own.get(f"h:{member}")
        session = scope.content.get(b"d") if scope else None
        host = "s" + _text(session) if session else member
        return self._is_dead(host, b"!", b"h" if host[0] == "s" else b"r")

    def _is_dead(self, member: str, mark: bytes, field: bytes = b"") -> bool:
        """Whether the database refuses for good what a field holds now."""
        letters = self.own["dead"].content if "dead" in self.own else {}
        scope = self.own.get(f"h:{member}")
        letter: bytes = letters.get(member.encode() + mark, b"")
        value: bytes = scope.content.get(field or mark, b"") if scope else b""
        return letter[DIGITS : DIGITS + 3] == b"|1|" and letter[:DIGITS] == value[:DIGITS]

    def _index(self) -> Iterator[str]:
        for member in set(self.marks) - self.dirty - self._resting():
            yield f"d:{member}: marks of a scope that is not in the dirty index"
        for member in self.dirty - set(self.marks):
            yield f"dirty: {member} has no marks"
        for member in self.dirty ^ self.since:
            yield f"since: {member} is in one of dirty and since only"
        for member in self.dirty:
            if f"h:{member}" not in self.own:
                yield f"dirty: {member} has no hash"

    def _unflushed(self) -> Iterator[str]:
        heads = {member for member, marks in self.marks.items() if b"!" in marks and member.startswith("s")}
        listed: dict[str, list[str]] = {letter: [] for letter in "aubow"}
        for key in self.own:
            if key.startswith("unflushed:"):
                listed[key.split(":")[1]] += self._members(key)
        for letter, members in listed.items():
            for member in set(members) - heads:
                yield f"unflushed:{letter}: {member} has no mark of its head"
            for member in heads - set(members):
                yield f"unflushed:{letter}: lacks {member}"
            if len(members) != len(set(members)):
                yield f"unflushed:{letter}: a session of two parents"

    def _control(self) -> Iterator[str]:
        control = self.own.get("ctl")
        if control is None:
            if self.own:
                yield "ctl: is missing"
            return
        for name in map(_text, control.content):
            if not _CONTROL.fullmatch(name):
                yield f"ctl: unknown field {name!r}"
            if name.startswith("c:") and name[2:] not in self.dirty:
                yield f"ctl: a claim on {name[2:]}, which is not dirty"

    def _scopes(self) -> Iterator[str]:
        pinned = self.dirty | self._resting() | {"s" + session for session in self._hosts()}
        for key, held in self.own.items():
            if key.startswith("h:"):
                member = key[2:]
                if held.expires is (member in pinned):
                    yield f"{key}: dirty and may expire" if held.expires else f"{key}: clean and has no TTL"
                yield from (f"{key}: {why}" for why in _scope(held.content, self.marks.get(member, set())))

    def _hosts(self) -> dict[str, set[str]]:
        """Scopes of sessions that are pinned with their dirty namespaces."""
        return {key[3:]: self._members(key) for key in self.own if key.startswith("ns:")}

    def _spaces(self) -> Iterator[str]:
        for member in {key[2:] for key in self.own if key.startswith("h:n")} - self._members("spaces"):
            yield f"spaces: lacks {member}"
        listed = {(session, space) for session, spaces in self._hosts().items() for space in spaces}
        dirty = set()
        for member in self.marks:
            scope = self.own.get(f"h:{member}")
            if member.startswith("n") and scope is not None:
                dirty.add((_text(scope.content.get(b"d", b"")), member))
        for session, member in listed - dirty:
            yield f"ns:{session}: {member} is not dirty"
        for session, member in dirty - listed:
            yield f"ns:{session}: lacks {member}"

    def _temps(self) -> Iterator[str]:
        for key in self.own:
            session = self.own.get(f"h:s{key[5:]}") if key.startswith("temp:") else None
            if session is not None and b"x" in session.content:
                yield f"{key}: outlives its session"


def _scope(fields: Mapping[bytes, bytes], marks: Iterable[bytes]) -> Iterator[str]:
    """What is wrong in one scope's hash: its fields, its revisions, its counts."""
    entries = {name: value for name, value in fields.items() if name[:1] == b"="}
    for name in fields.keys() - entries.keys():
        if _text(name) not in _HEAD:
            yield f"unknown field {name!r}"
    last, cleared = fields.get(b"r", ZERO), fields.get(b"c", ZERO)
    for name in (b"v", b"h", b"u", b"f", b"c", b"b"):
        if fields.get(name, ZERO) > last:
            yield f"{_text(name)} is above the scope revision"
    texts = [value[DIGITS:] for value in entries.values() if len(value) > DIGITS and value[:DIGITS] > cleared]
    counted, has = (fields.get(b"n"), fields.get(b"z")), (b"%d" % len(texts), b"%d" % sum(map(json_size, texts)))
    if counted != has:
        yield f"counts keys and bytes {counted}, has {has}"
    for name, value in entries.items():
        if not _DIGITS.match(value):
            yield f"{name!r} has no revision"
        elif value[:DIGITS] > last:
            yield f"{name!r} is above the scope revision"
        elif len(value) == DIGITS and name not in marks:
            yield f"{name!r} is a tombstone that was flushed"


def _text(data: bytes | str) -> str:
    return data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else data


def _bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data
