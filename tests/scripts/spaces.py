"""Namespaces on the bench: loaded, written, dirty beside a clean session."""

from __future__ import annotations

from collections.abc import Sequence

from sessioncache.hot.fields import fields_of, key_field
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Operation, Part, Token, Written
from sessioncache.primitives.entries import Entry, Head
from sessioncache.primitives.revisions import decode_revision, encode_revision
from sessioncache.primitives.scopes import ScopeKind
from tests.scripts.bench import Bench, put


async def take(bench: Bench, place: Place) -> Token:
    """The token of a namespace that is not hot."""
    taken = await bench.hot.take_token(place)
    assert isinstance(taken, Token)
    return taken


async def load(bench: Bench, place: Place, *entries: Entry, taken: Token | None = None, known: int = 0) -> None:
    """Hydrate a namespace with what SQL is said to have."""
    taken = taken or await take(bench, place)
    ref, birth = place.ref, decode_revision(taken.birth)
    known = max([birth, known, *(entry.revision for entry in entries)])
    head = Head(ref.org, ref.app, ref.user, ref.session, known, birth, birth - 1, namespace=ref.namespace)
    flat = [*fields_of(head, ScopeKind.NAMESPACE), b"d", place.parents, b"n", b"%d" % len(entries)]
    flat += [b"v", encode_revision(max((entry.revision for entry in entries), default=0))]
    flat += [b"z", b"%d" % sum(len(entry.text) for entry in entries)]
    for entry in entries:
        flat += [key_field(entry.key), encode_revision(entry.revision) + entry.text]
    await bench.hot.install(place, taken.value, flat, staged=0, birth=taken.birth)


async def write(bench: Bench, place: Place, *operations: Operation, birth: bytes = b"") -> Written:
    """Write to a namespace through a handle of the present life."""
    session = bench.session()
    parts = [Part(session, [], birth or bench.field(session, "b")), Part(place, list(operations))]
    written = await bench.write_parts(parts)
    assert isinstance(written, Written)
    return written


async def with_dirty_namespaces(bench: Bench, *names: str) -> Sequence[Place]:
    """A clean session and dirty namespaces of it."""
    session, places = bench.session(), [bench.space(name) for name in names]
    await bench.create(session)
    for place in places:
        await load(bench, place)
        await write(bench, place, put("k", "1"))
    await bench.flush(session)
    return places
