"""Dirty fields and their acknowledgement, in the form that the scripts use.  Pure: no I/O.

An acknowledgement names each field with the revision that was read, and whether SQL has exactly that one: what was
written between the reading and the commit has another revision, and stays dirty (R8).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from sessioncache.hot.client import Argument, Reply
from sessioncache.hot.fields import HEAD_MARK, head_from, key_field, text_of
from sessioncache.hot.layout import parents_of
from sessioncache.primitives.entries import Committed, Dirt, Entry
from sessioncache.primitives.revisions import DIGITS, ZERO, decode_revision, encode_revision
from sessioncache.primitives.scopes import ScopeKind

_HEAD, _CLEARED, _HEAD_REVISION, _HOLDER, _NAMES = 2, 4, 7, 17, 20
"""Positions in the reply of the script that reads dirty fields: the head and some of its fields, the marked ones
after."""
PIECE_ROWS, PIECE_BYTES = 1_000, 512 * 1024
"""What one script acknowledges at most (a larger single value apart), since it reads the values through Lua."""
_KINDS = {kind.value: kind for kind in ScopeKind}

# Entries that one call wrote bear one revision.
_decode = lru_cache(maxsize=1024)(decode_revision)
_encode = lru_cache(maxsize=1024)(encode_revision)


def dirt_of(bucket: int, member: str, reply: Reply, values: Sequence[bytes | None] | None = None) -> Dirt:
    """What is dirty in a scope, from the script's reply; `values`: those of its marks, where they were read by
    commands."""
    _, incarnation, read_at, have, marks, told, host, left_out = reply
    about = head_from(have[_HEAD:_NAMES])
    entries, phantoms = _marked(marks, told if values is None else values, have[_CLEARED] or ZERO)
    return Dirt(
        kind=_KINDS[member[0]],
        scope_id=member[1:],
        bucket=bucket,
        incarnation=incarnation.decode(),
        # R6: the rows of a namespace are written with its session's head, which is the lock of both in SQL.
        head=head_from(host[_HEAD:_NAMES]) if host else about,
        head_revision=have[_HEAD_REVISION] or b"",
        namespace=about.namespace,
        holder=text_of(have[_HOLDER]),
        namespace_revision=about.revision,
        namespace_cleared=about.cleared,
        namespace_flushed=about.flushed,
        entries=entries,
        phantoms=phantoms,
        read_at=int(read_at),
        left_out=left_out > 0,
    )


class Piece(NamedTuple):
    """A part of what is acknowledged of one scope, by places among its rows and then its phantoms (marks without a
    field)."""

    start: int
    end: int
    size: int
    """Bytes of its values."""


def pieces_of(one: Committed) -> list[Piece]:
    """What is acknowledged of one scope, in pieces for one script each; at least one."""
    sizes = [len(text) for _, _, text in one.dirt.entries]
    count, size = len(sizes) + len(one.dirt.phantoms), sum(sizes)
    if count <= PIECE_ROWS and size <= PIECE_BYTES:
        return [Piece(0, count, size)]
    return list(_cut([*sizes, *[0] * len(one.dirt.phantoms)]))


def _cut(sizes: Sequence[int]) -> Iterator[Piece]:
    start = total = 0
    for place, size in enumerate(sizes):
        # A value that is larger than a piece is one by itself.
        if place - start == PIECE_ROWS or (place > start and total + size > PIECE_BYTES):
            yield Piece(start, place, total)
            start, total = place, 0
        total += size
    yield Piece(start, len(sizes), total)


def acknowledgement_of(one: Committed, piece: Piece, held_back: bytes = b"") -> list[Argument]:
    """The arguments with which the script acknowledges a piece of one scope.

    `held_back`: ``-`` where it is not the last piece, ``2`` where a row of an earlier one was refused.
    """
    dirt, head, parents = one.dirt, one.dirt.head, one.dirt.holder.encode()
    if dirt.kind is ScopeKind.SESSION:
        parents = parents_of(head.org, head.app, head.user, head.session)
    args: list[Argument] = [0, dirt.incarnation, _encode(dirt.revision), dirt.read_at, parents, dirt.head_revision]
    # The head of a namespace is its session's, which is acknowledged with the session's own dirty fields.
    args.append(b"=" if dirt.holder or one.head_revision == head.revision else b">")
    entries, revisions = dirt.entries[piece.start : piece.end], one.revisions[piece.start : piece.end]
    args += (held_back or (b"1" if dirt.left_out else b"0"), len(entries))
    # Only what SQL holds at exactly our revision is acknowledged (R7).
    for (key, revision, _), stored in zip(entries, revisions, strict=True):
        args += (key_field(key), _encode(revision), b"=" if stored == revision else b">")
    rows = len(dirt.entries)
    args += dirt.phantoms[max(0, piece.start - rows) : max(0, piece.end - rows)]
    # Several scopes go in one call: by this number the script finds where the next one begins.
    args[0] = len(args) - 1
    return args


def _marked(marks: Sequence[bytes], values: Sequence[bytes | None], cleared: bytes) -> tuple[list[Entry], list[bytes]]:
    """The dirty entries, and the marks of what does not live: revisions compare as their digits do (R1)."""
    entries, phantoms = [], []
    for field, value in zip(marks, values, strict=True):
        if field == HEAD_MARK:
            continue
        # R1, R14: a mark without a living field is no row to write; it is acknowledged, and goes.
        if value is None or value[:DIGITS] <= cleared:
            phantoms.append(field)
        else:
            entries.append(Entry(field[1:].decode(), _decode(value[:DIGITS]), value[DIGITS:]))
    return entries, phantoms
