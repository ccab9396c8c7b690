"""The names of Redis keys and fields.  Pure: no I/O.

Every key of bucket b is ``PREFIX:{b}:…``: one hash slot.  The scripts derive the rest (see ``lua/prelude.lua``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from sessioncache.primitives.scopes import ScopeKind, ScopeRef, app_id, bare_id, org_id, org_user_id, user_id


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a scope in Redis."""

    ref: ScopeRef
    control: bytes
    hash: bytes
    parents: bytes
    """For a session the ids of its app, user, bare session id, org, and user name in the org; for a namespace that of
    its session's scope; empty for shared scopes."""

    @property
    def user(self) -> bytes:
        """The id of the user whose scope it is; empty for that of an app."""
        ref = self.ref
        return b"" if ref.kind is ScopeKind.APP else user_id(ref.org, ref.app, ref.user).encode()

    @property
    def dirty(self) -> bytes:
        """The set of the scope's dirty fields."""
        # All keys of a bucket begin like its control, whose name ends with ``ctl``.
        return self.control[:-3] + b"d:" + self.ref.member.encode()

    @property
    def temp(self) -> bytes:
        """The hash of the session's `temp:` keys."""
        return self.control[:-3] + b"temp:" + self.ref.id.encode()

    def gathered(self, name: bytes) -> tuple[bytes, bytes]:
        """The names under which the scope's entries, and their marks, are stored in pieces before it is created."""
        pieces = self.control[:-3] + b"p:" + self.ref.member.encode() + b":" + name
        return pieces, pieces + b":d"

    @property
    def channel(self) -> bytes:
        """The channel on which changes of the scope, and of the `temp:` keys of a session, are announced."""
        return self.control[:-3] + b"w:" + self.ref.member.encode()

    @property
    def bucket_channel(self) -> bytes:
        """The channel on which it is announced that Redis may have forgotten something of the bucket."""
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
        """A pattern (MATCH) for the hashes of all scopes, or of those of one bucket."""
        return literally(self.prefix) + b":{" + (b"*" if bucket is None else b"%d" % bucket) + b"}:h:*"

    def place(self, ref: ScopeRef) -> Place:
        """The address of a scope."""
        return Place(ref, self.control(ref.bucket), self.hash(ref.bucket, ref.member), parents(ref))

    def host(self, place: Place, session_scope: str) -> Place:
        """The address of the session of a namespace."""
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
        """The hash that records the installation that this Redis belongs to."""
        return f"{self.prefix}:layout".encode()

    @property
    def wake_channel(self) -> str:
        """The channel on which a bucket that becomes dirty is announced."""
        return f"{self.prefix}:wake"

    def bucket_of_base(self, base: bytes) -> int:
        """The bucket whose keys begin with `base`."""
        return int(base.rsplit(b"{", 1)[1].split(b"}", 1)[0])


_MEANS_MORE = re.compile(rb"[*?\[\]\\]")


def literally(name: str) -> bytes:
    """A name as a part of a Redis pattern that matches only this name: every pattern is built with it."""
    return _MEANS_MORE.sub(rb"\\\g<0>", name.encode())


@lru_cache(maxsize=4096)
def parents(ref: ScopeRef) -> bytes:
    """See Place.parents."""
    if ref.kind is ScopeKind.NAMESPACE:
        return ref.holder.encode()
    return parents_of(ref.org, ref.app, ref.user, ref.session) if ref.kind is ScopeKind.SESSION else b""


def parents_of(org: str, app: str, user: str, session: str) -> bytes:
    """See Place.parents: of a session."""
    # In this order: the scripts find the index of each by its place (``unflushed_index`` in lua/prelude.lua).
    ids = (app_id(org, app), user_id(org, app, user), bare_id(org, session), org_id(org), org_user_id(org, user))
    return "".join(ids).encode()
