"""The names of Redis keys and fields.  Pure: no I/O.

Every key of bucket b is ``PREFIX:{b}:…``: one hash slot.  The scripts derive the rest (see ``lua/prelude.lua``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sessioncache.primitives.entries import Head
from sessioncache.primitives.revisions import ZERO, decode_revision, encode_revision
from sessioncache.primitives.scopes import ScopeKind, ScopeRef, app_id, bare_id, org_id, org_user_id, user_id

HEAD_NAMES = tuple(name.encode() for name in "rbcxvhuoawstmkqdgf")
"""Head fields in the order in which ``dirt.lua`` tells them."""

# What one call wrote bears one revision in several fields.
_revision = lru_cache(maxsize=1024)(decode_revision)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a scope lies in Redis."""

    ref: ScopeRef
    control: bytes
    hash: bytes
    parents: bytes
    """Of a session the ids of its app, user, bare session id, org, and user name in the org; of a namespace that of
    its session's scope; empty for shared scopes."""

    @property
    def user(self) -> bytes:
        """The id of the user whose scope it is; empty for that of an app."""
        ref = self.ref
        return b"" if ref.kind is ScopeKind.APP else user_id(ref.org, ref.app, ref.user).encode()

    @property
    def dirty(self) -> bytes:
        """The set of the scope's dirty fields."""
        return self.control[:-3] + b"d:" + self.ref.member.encode()

    @property
    def temp(self) -> bytes:
        """The hash of the session's `temp:` keys."""
        return self.control[:-3] + b"temp:" + self.ref.id.encode()

    def gathered(self, name: bytes) -> tuple[bytes, bytes]:
        """Where the scope's entries, and their marks, lie in pieces before it is born."""
        pieces = self.control[:-3] + b"p:" + self.ref.member.encode() + b":" + name
        return pieces, pieces + b":d"

    @property
    def channel(self) -> bytes:
        """Where what happens to the scope, and to the `temp:` keys of a session, is told."""
        return self.control[:-3] + b"w:" + self.ref.member.encode()

    @property
    def bucket_channel(self) -> bytes:
        """Where is told that Redis may have forgotten something of the bucket."""
        return self.control[:-3] + b"w"


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of one installation."""

    prefix: str
    buckets: int

    def control(self, bucket: int) -> bytes:
        """The control hash of a bucket."""
        return f"{self.prefix}:{{{bucket}}}:ctl".encode()

    def dirty(self, bucket: int) -> bytes:
        """The dirty index of a bucket; it exists while something is dirty."""
        return f"{self.prefix}:{{{bucket}}}:dirty".encode()

    def spaces(self, bucket: int) -> bytes:
        """The set of the namespaces of a bucket that are hot, and of some that were."""
        return f"{self.prefix}:{{{bucket}}}:spaces".encode()

    def hash(self, bucket: int, member: str) -> bytes:
        """The hash of a scope."""
        return f"{self.prefix}:{{{bucket}}}:h:{member}".encode()

    def hashes(self, bucket: int | None = None) -> bytes:
        """A pattern (MATCH) that the hashes of all scopes, or of those of one bucket, are like."""
        return literally(self.prefix) + b":{" + (b"*" if bucket is None else b"%d" % bucket) + b"}:h:*"

    def place(self, ref: ScopeRef) -> Place:
        """Where a scope lies."""
        return Place(ref, self.control(ref.bucket), self.hash(ref.bucket, ref.member), parents(ref))

    def host(self, place: Place, session_scope: str) -> Place:
        """Where the session of a namespace lies."""
        ref = ScopeRef(
            ScopeKind.SESSION,
            place.ref.org,
            place.ref.app,
            place.ref.user,
            place.ref.session,
            id=session_scope,
            bucket=place.ref.bucket,
        )
        return self.place(ref)

    @property
    def record(self) -> bytes:
        """The hash that tells what this installation was set up with."""
        return f"{self.prefix}:layout".encode()

    @property
    def wake_channel(self) -> str:
        """Where a bucket that got its first dirt is announced."""
        return f"{self.prefix}:wake"

    def bucket_of_base(self, base: bytes) -> int:
        """The bucket whose keys begin with `base`."""
        return int(base.rsplit(b"{", 1)[1].split(b"}", 1)[0])


_MEANS_MORE = re.compile(rb"[*?\[\]\\]")


def literally(name: str) -> bytes:
    """A name as a part of a pattern of Redis that only this name is like: every pattern is built with it."""
    return _MEANS_MORE.sub(rb"\\\g<0>", name.encode())


@lru_cache(maxsize=4096)
def parents(ref: ScopeRef) -> bytes:
    """See Place.parents."""
    if ref.kind is ScopeKind.NAMESPACE:
        return ref.holder.encode()
    return parents_of(ref.org, ref.app, ref.user, ref.session) if ref.kind is ScopeKind.SESSION else b""


def parents_of(org: str, app: str, user: str, session: str) -> bytes:
    """See Place.parents: of a session."""
    ids = (app_id(org, app), user_id(org, app, user), bare_id(org, session), org_id(org), org_user_id(org, user))
    return "".join(ids).encode()


def user_field(key: str) -> bytes:
    """The field that holds a key: no head field begins like it."""
    return b"=" + key.encode()


def head_of(fields: dict[bytes, bytes]) -> Head:
    """A head from the head fields of a scope's hash."""
    return head_from([fields.get(name) for name in HEAD_NAMES])


def head_from(values: Sequence[bytes | None]) -> Head:
    """A head from the values of HEAD_NAMES; None where there is no such field."""
    r, b, c, x, v, _, u, o, a, w, s, t, m, k, q, _, g, f = values
    return Head(
        org=text_of(o),
        app=text_of(a),
        user=text_of(w),
        session=text_of(s),
        namespace=text_of(g),
        revision=_revision(r or ZERO),
        birth=_revision(b or ZERO),
        cleared=_revision(c or ZERO),
        deleted=bool(x),
        title=text_of(t),
        message_count=int(m or 0),
        token_total=int(k or 0),
        forked_from=text_of(q),
        values_revision=_revision(v or ZERO),
        updated=_revision(u or ZERO),
        flushed=_revision(f or ZERO),
    )


def text_of(value: bytes | None) -> str:
    """The text of a head field; empty where there is none."""
    return value.decode() if value else ""


def fields_of(head: Head, kind: ScopeKind) -> list[bytes]:
    """Head fields and values, in turn, for a scope that comes from SQL (without incarnation and counts)."""
    pairs = [
        (b"r", encode_revision(head.revision)),
        (b"b", encode_revision(head.birth)),
        (b"c", encode_revision(head.cleared)),
        (b"o", head.org.encode()),
        (b"a", head.app.encode()),
        (b"w", head.user.encode()),
    ]
    if head.flushed:
        pairs.append((b"f", encode_revision(head.flushed)))
    if kind is ScopeKind.SESSION:
        pairs += [
            (b"s", head.session.encode()),
            (b"v", encode_revision(head.values_revision)),
            (b"h", encode_revision(head.updated)),
            (b"u", encode_revision(head.updated)),
            (b"t", head.title.encode()),
            (b"m", b"%d" % head.message_count),
            (b"k", b"%d" % head.token_total),
            (b"q", head.forked_from.encode()),
        ]
    if kind is ScopeKind.NAMESPACE:
        pairs += [(b"s", head.session.encode()), (b"g", head.namespace.encode())]
    return [part for pair in pairs for part in pair]
