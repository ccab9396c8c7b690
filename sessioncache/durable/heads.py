"""Heads as rows, and rows as heads."""

from __future__ import annotations

from sqlalchemy import RowMapping

from sessioncache.durable.bulk import Row
from sessioncache.durable.errors import RefusedDataError
from sessioncache.primitives.entries import Dirt, Head
from sessioncache.primitives.scopes import ScopeKind, app_id, bare_id, user_id


def head_row(dirt: Dirt) -> Row:
    """The row of a scope's head, in the order of its table's columns, and what the hash knows to be flushed.

    RefusedDataError for a NUL in a name.
    """
    head = dirt.head
    _refuse_nul(head.org, head.app, head.user, head.session, head.title, head.forked_from)
    if dirt.kind in (ScopeKind.SESSION, ScopeKind.NAMESPACE):
        return _session_row(dirt, head)
    names = (head.org, head.app, head.user) if dirt.kind is ScopeKind.USER else (head.org, head.app)
    life = (head.revision, head.birth, head.cleared, head.deleted)
    return (dirt.scope_id, *names, *life, dirt.bucket, dirt.through, head.flushed)


def space_row(dirt: Dirt) -> Row:
    """The row of a namespace's own record, and what its hash knows to be flushed."""
    # What was flushed of an earlier life counts no more in this one: the hash may still have it.
    flushed = dirt.namespace_flushed if dirt.namespace_flushed >= dirt.head.birth else 0
    return dirt.rows_id, dirt.namespace, dirt.namespace_cleared, dirt.through, flushed


def head_of(kind: ScopeKind, row: RowMapping) -> Head:
    """The head that a row holds."""
    shared = {name: row[name] for name in ("org", "app", "revision", "birth", "cleared", "deleted")}
    shared["flushed"] = row["revision"] if row["flushed"] is None else row["flushed"]
    if kind is ScopeKind.APP:
        return Head(user="", session="", **shared)
    if kind is ScopeKind.USER:
        return Head(user=row["user_id"], session="", **shared)
    names = ("title", "message_count", "token_total", "forked_from", "values_revision", "updated")
    return Head(user=row["user_id"], session=row["session_id"], **shared, **{name: row[name] for name in names})


def _session_row(dirt: Dirt, head: Head) -> Row:
    return (
        dirt.rows_id,
        head.org,
        head.app,
        head.user,
        head.session,
        user_id(head.org, head.app, head.user),
        app_id(head.org, head.app),
        bare_id(head.org, head.session),
        head.title,
        head.birth,
        head.updated,
        head.cleared,
        head.deleted,
        head.revision,
        head.values_revision,
        head.message_count,
        head.token_total,
        head.forked_from,
        dirt.bucket,
        0 if dirt.holder else dirt.through,  # a namespace's flush does not contain the session's own keys
        head.flushed,
    )


def _refuse_nul(*texts: str) -> None:
    # PostgreSQL cannot store NUL; SQLite could, but one database should refuse what the other does.
    if "\0" in "".join(texts):
        raise RefusedDataError("the database refuses the data (NUL in a name)")
