"""Scopes and buckets: which id a scope has, and which bucket it lives in.

A scope's id is BLAKE2b-128 over its length-prefixed parts, with a domain tag, so that no two identities ever meet in
one id, whatever characters their names hold.  Ids are 32 lower-case hexadecimal digits: no database folds or pads them.
Pure: no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b


class ScopeKind(StrEnum):
    """The kinds of scopes that have a hash in Redis; the letter is part of Redis keys."""

    SESSION = "s"
    NAMESPACE = "n"
    USER = "u"
    APP = "a"


def hash_id(domain: str, *parts: str) -> str:
    """32 hexadecimal digits for `parts`, different for every domain and every way to cut the text into parts."""
    digest = blake2b(digest_size=16, person=domain.encode())
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(4, "big"))
        digest.update(data)
    return digest.hexdigest()


@lru_cache(maxsize=16384)
def key_id(namespace: str, key: str) -> str:
    """The id of one key of a scope in SQL."""
    return hash_id("key", namespace, key)


def bucket_of(buckets: int, org: str, app: str, user: str | None = None) -> int:
    """The bucket of a user's scope and sessions, or, without a user, of the app's scope."""
    parts = ("app-bucket", org, app) if user is None else ("bucket", org, app, user)
    return int(hash_id(*parts)[:16], 16) % buckets


@dataclass(frozen=True, slots=True)
class ScopeRef:
    """One scope by its readable identity; `id` and `bucket` follow from it."""

    kind: ScopeKind
    org: str
    app: str
    user: str = ""
    session: str = ""
    namespace: str = ""
    holder: str = field(default="", compare=False)
    """The id of its session's scope, for a namespace."""
    id: str = field(default="", compare=False)
    bucket: int = field(default=0, compare=False)

    @property
    def member(self) -> str:
        """Kind and id in one word, as the dirty index holds it."""
        return self.kind.value + self.id

    @property
    def rows_id(self) -> str:
        """The id under which SQL keeps the rows and the head: a namespace's are with those of its session."""
        return self.holder or self.id


def app_ref(buckets: int, org: str, app: str) -> ScopeRef:
    """The scope that all sessions of an app share."""
    return ScopeRef(ScopeKind.APP, org, app, id=app_id(org, app), bucket=bucket_of(buckets, org, app))


def user_ref(buckets: int, org: str, app: str, user: str) -> ScopeRef:
    """The scope that all sessions of a user share."""
    return ScopeRef(
        ScopeKind.USER, org, app, user, id=user_id(org, app, user), bucket=bucket_of(buckets, org, app, user)
    )


def session_ref(buckets: int, org: str, app: str, user: str, session: str) -> ScopeRef:
    """A session's own scope."""
    return ScopeRef(
        ScopeKind.SESSION,
        org,
        app,
        user,
        session,
        id=session_scope_id(org, app, user, session),
        bucket=bucket_of(buckets, org, app, user),
    )


def namespace_ref(session: ScopeRef, namespace: str) -> ScopeRef:
    """One namespace of a session."""
    names = (session.org, session.app, session.user, session.session)
    own = hash_id("namespace", *names, namespace)
    return ScopeRef(ScopeKind.NAMESPACE, *names, namespace, holder=session.id, id=own, bucket=session.bucket)


@lru_cache(maxsize=1024)
def app_id(org: str, app: str) -> str:
    """The id of an app's scope."""
    return hash_id("app", org, app)


@lru_cache(maxsize=8192)
def user_id(org: str, app: str, user: str) -> str:
    """The id of a user's scope."""
    return hash_id("user", org, app, user)


def session_scope_id(org: str, app: str, user: str, session: str) -> str:
    """The id of a session's scope."""
    return hash_id("session", org, app, user, session)


@lru_cache(maxsize=8192)
def bare_id(org: str, session: str) -> str:
    """The id that all sessions of one org with the same session id share."""
    return hash_id("bare", org, session)


@lru_cache(maxsize=1024)
def org_id(org: str) -> str:
    """The id that all sessions of an org share."""
    return hash_id("org", org)


@lru_cache(maxsize=8192)
def org_user_id(org: str, user: str) -> str:
    """The id that all sessions of one user name in an org share, whatever the app."""
    return hash_id("org-user", org, user)
