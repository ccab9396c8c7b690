"""The fields of a scope's hash, the codes of changes in the scripts, and the codec of a head.  Pure: no I/O.

The letters that Redis holds and the scripts use are spelled only here (``lua/prelude.lua`` lists them, too).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from sessioncache.primitives.entries import Head
from sessioncache.primitives.revisions import ZERO, decode_revision, encode_revision
from sessioncache.primitives.scopes import ScopeKind

KEY_MARK: Final = b"="
"""What the name of a field that holds a key begins with; no head field does."""
HEAD_MARK: Final = b"!"
"""What stands for the head among the dirty fields of a scope."""
NEW: Final = b"+"
"""In the place of a birth: the session is to be created."""
TEMP_PART: Final = b"t"
"""In the place of a scope's kind: the `temp:` keys of a session."""


class Field:
    """Head fields.  Revisions are nine digits, numbers decimal, names UTF-8."""

    INCARNATION: Final = b"i"
    """Of the bucket when the hash was written or revalidated."""
    REVISION: Final = b"r"
    """Of the scope: grows with every change."""
    VALUES_REVISION: Final = b"v"
    """Of the latest change of its keys."""
    HEAD_REVISION: Final = b"h"
    """Of the latest change of its head."""
    BIRTH: Final = b"b"
    """The revision at which the life of the session began; of a namespace: of its session."""
    CLEARED: Final = b"c"
    """What is older was cleared."""
    DELETED: Final = b"x"
    """The revision at which the session was deleted."""
    FLUSHED: Final = b"f"
    """The flush watermark: SQL has all that is not newer."""
    PURGED: Final = b"p"
    """What SQL knew at the last load or revalidation, and tombstones that were dropped: at or below it a row that the
    hash lacks is dead."""
    STALE: Final = b"y"
    """Marks the scope for revalidation."""
    KEYS: Final = b"n"
    """Living keys."""
    BYTES: Final = b"z"
    """Bytes of all values."""
    UPDATED: Final = b"u"
    """When the session's own keys or head last changed."""
    USED: Final = b"j"
    """When the session was last recorded to be in use."""
    ORG: Final = b"o"
    APP: Final = b"a"
    USER: Final = b"w"
    SESSION: Final = b"s"
    """Its id."""
    NAMESPACE: Final = b"g"
    HOLDER: Final = b"d"
    """For a namespace: the id of its session's scope."""
    TITLE: Final = b"t"
    MESSAGES: Final = b"m"
    TOKENS: Final = b"k"
    FORKED_FROM: Final = b"q"
    """The id of a session."""
    TEMP_REVISION: Final = b"e"
    """Of the latest write to `temp:` keys alone."""
    NAMESPACES_MARK: Final = b"l"
    """Changes as soon as there may be one more namespace; while it is the birth, there never was one."""


class Code:
    """What is done to a key."""

    SET: Final = b"S"
    SET_UNLESS_OLDER: Final = b"R"
    """Set, unless what is there has a later caller timestamp."""
    DELETE: Final = b"D"
    INCREMENT: Final = b"I"
    APPEND: Final = b"A"
    CLEAR: Final = b"C"
    """All keys of the scope are deleted."""


REMOVING = (Code.DELETE, Code.CLEAR)
"""The codes of what makes nothing larger."""


class Event:
    """What a channel announces of a scope."""

    WRITTEN: Final = b"w"
    TEMP_WRITTEN: Final = b"t"
    ENDED: Final = b"x"
    """The session is gone."""
    UNKNOWN: Final = b"?"
    """The scope may have changed: read it again."""


HEAD_NAMES = (
    Field.REVISION,
    Field.BIRTH,
    Field.CLEARED,
    Field.DELETED,
    Field.VALUES_REVISION,
    Field.HEAD_REVISION,
    Field.UPDATED,
    Field.ORG,
    Field.APP,
    Field.USER,
    Field.SESSION,
    Field.TITLE,
    Field.MESSAGES,
    Field.TOKENS,
    Field.FORKED_FROM,
    Field.HOLDER,
    Field.NAMESPACE,
    Field.FLUSHED,
)
"""Head fields in the order in which ``dirt.lua`` returns them."""

# What one call wrote has one revision in several fields.
_revision = lru_cache(maxsize=1024)(decode_revision)


def key_field(key: str) -> bytes:
    """The field that holds a key: no head field begins like it."""
    return KEY_MARK + key.encode()


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
        (Field.REVISION, encode_revision(head.revision)),
        (Field.BIRTH, encode_revision(head.birth)),
        (Field.CLEARED, encode_revision(head.cleared)),
        (Field.ORG, head.org.encode()),
        (Field.APP, head.app.encode()),
        (Field.USER, head.user.encode()),
    ]
    if head.flushed:
        pairs.append((Field.FLUSHED, encode_revision(head.flushed)))
    if kind is ScopeKind.SESSION:
        pairs += [
            (Field.SESSION, head.session.encode()),
            (Field.VALUES_REVISION, encode_revision(head.values_revision)),
            (Field.HEAD_REVISION, encode_revision(head.updated)),
            (Field.UPDATED, encode_revision(head.updated)),
            (Field.TITLE, head.title.encode()),
            (Field.MESSAGES, b"%d" % head.message_count),
            (Field.TOKENS, b"%d" % head.token_total),
            (Field.FORKED_FROM, head.forked_from.encode()),
        ]
    if kind is ScopeKind.NAMESPACE:
        pairs += [(Field.SESSION, head.session.encode()), (Field.NAMESPACE, head.namespace.encode())]
    return [part for pair in pairs for part in pair]
