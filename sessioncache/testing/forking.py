"""Forks in memory."""

from __future__ import annotations

from collections.abc import Sequence

from sessioncache.hot.fields import Field
from sessioncache.hot.forking import Fork, Forking, MoreNamespaces, Spaces
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Refused, Written, WrittenPart
from sessioncache.primitives.entries import Head
from sessioncache.primitives.revisions import DIGITS
from sessioncache.testing.hot import birth_fields, user_of, vacant
from sessioncache.testing.staging import DURABLE, INCARNATION, next_revision
from sessioncache.testing.store import Cell, MemoryStore


class MemoryForking(Forking):
    """Forks sessions in this process."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def spaces(self, place: Place, birth: bytes = b"", beside: Sequence[Place] = ()) -> Spaces:
        """The namespaces of a session: all of them, there is no SQL to ask.  Gone."""
        with self._store.lock:
            session = self._store.session(place, birth)
            return Spaces(
                session.birth, session.birth, [name for name, space in session.spaces.items() if space.entries]
            )

    async def fork(self, fork: Fork, *, token: bytes, known: bytes) -> Written | Refused:
        """Fork in one step.  Taken, MoreNamespaces, Gone."""
        with self._store.lock:
            if self._store.is_erased(user_of(fork.child)):
                return Refused("erased", [])
            parent = self._store.session(fork.parent, fork.spaces.birth)
            if fork.lease and not self._store.is_held(parent, fork.lease):
                return Refused("lease", [])
            child = vacant(self._store, fork.child)
            given = {place.ref.namespace: own for place, own in fork.pairs}
            if any(space.entries and name not in given for name, space in parent.spaces.items()):
                raise MoreNamespaces
            revision = next_revision(self._store.now(), [child])
            child = _copy(parent, fork.child, revision)
            child.head = birth_fields(_head(parent, fork.child), revision)
            spaces = {name: parent.spaces[name] for name in given if name in parent.spaces}
            child.spaces = {name: _copy(space, given[name], revision) for name, space in spaces.items()}
            self._store.scopes[fork.child.hash] = child
            return Written(revision, [WrittenPart(INCARNATION, DURABLE, True, [])])


def _copy(cell: Cell, place: Place, revision: bytes) -> Cell:
    """The keys of a scope, written anew in another."""
    entries = {key: revision + value[DIGITS:] for key, value in cell.entries.items()}
    return Cell(place, {Field.REVISION: revision, Field.VALUES_REVISION: revision}, entries, cell.size)


def _head(parent: Cell, child: Place) -> Head:
    ref = child.ref
    title, forked_from = parent.head.get(Field.TITLE, b"").decode(), parent.place.ref.session
    return Head(ref.org, ref.app, ref.user, ref.session, revision=0, title=title, forked_from=forked_from)
