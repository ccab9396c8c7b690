"""Forking a session: its private keys and namespaces, unflushed writes included, in one atomic step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sessioncache.coordination.id_reservation import IdReservation
from sessioncache.coordination.tiers import Tiers
from sessioncache.errors import SessionExistsError
from sessioncache.handle.refusals import raise_refusal
from sessioncache.handle.unflushed_writes import UnflushedWrites
from sessioncache.hot.fields import Code, Field
from sessioncache.hot.forking import Fork, MoreNamespaces, Spaces, TooLarge
from sessioncache.hot.large_creates import Birth, ensure_time_left, find_birth, gathered
from sessioncache.hot.layout import Place
from sessioncache.hot.limits import check_fork
from sessioncache.hot.messages import Content, Operation, Part, Refused, Wanted, Written
from sessioncache.hot.signals import Erased, PiecesLost, Taken
from sessioncache.primitives.names import check_name, new_session_id
from sessioncache.primitives.revisions import DIGITS, ZERO
from sessioncache.primitives.scopes import ScopeRef, app_ref, namespace_ref, session_ref, user_ref


class Forker:
    """One fork of one life of a session."""

    def __init__(self, tiers: Tiers, parent: Place, birth: bytes, new_id: str | None, lease: bytes = b"") -> None:
        """Fork the session at `parent`, in any life if `birth` is empty; `lease`: see Handle."""
        self._tiers = tiers
        self._parent = parent
        self._birth = birth
        self._lease = lease
        ref = parent.ref
        name = new_session_id() if new_id is None else check_name("a session id", new_id)
        self.child = tiers.layout.place(session_ref(tiers.settings.buckets, ref.org, ref.app, ref.user, name))
        self._reservation = IdReservation(tiers, self.child, generated=new_id is None)
        n, place = tiers.settings.buckets, tiers.layout.place
        # No session is created whose state could not be read.
        self._shared = [place(user_ref(n, ref.org, ref.app, ref.user)), place(app_ref(n, ref.org, ref.app))]
        self._namespaces: list[str] = []
        self._is_large = False
        """Whether the parent is too large for one script."""
        self._stored: list[Birth] = []
        """What was stored of it in pieces, if so."""

    async def run(self) -> Written:
        """Fork; the revision of the write is the new session's birth.

        SessionExistsError; StaleLeaseError; Gone where there is no parent.
        """
        outcome: Written | Refused | None = None
        try:
            outcome = await self._tiers.perform(self._attempt)
        except Taken:
            name = self.child.ref.session
            raise SessionExistsError(
                f"there is a session {name!r} of this user already; nothing was changed", session_id=name
            ) from None
        finally:
            await self._reservation.end(is_filled=isinstance(outcome, Written))
        if isinstance(outcome, Refused):
            raise_refusal(outcome.why)
        assert isinstance(outcome, Written)
        return outcome

    async def _attempt(self) -> Written | Refused:
        await self._tiers.back_pressure.admit()
        while True:
            spaces = await self._tiers.forking.spaces(self._parent, self._birth, self._shared)
            stored = [] if spaces.none_yet else await self._tiers.durable.namespaces(self._parent.ref)
            self._namespaces = sorted({*stored, *spaces.dirty})
            check_fork(len(self._namespaces))
            try:
                return await self._reservation.fill(partial(self._fork, spaces))
            except MoreNamespaces:
                continue

    async def _fork(self, spaces: Spaces, token: bytes, known: bytes) -> Written | Refused:
        pairs = [(self._space(self._parent.ref, n), self._space(self.child.ref, n)) for n in self._namespaces]
        fork = Fork(self._parent, self.child, spaces, pairs, self._lease)
        if not self._is_large:
            try:
                return await self._tiers.forking.fork(fork, token=token, known=known)
            except TooLarge:
                self._is_large = True
        while True:
            try:
                return await self._in_pieces(fork, token, known)
            except Erased:
                return Refused("erased", [])
            except PiecesLost:
                ensure_time_left()

    async def _in_pieces(self, fork: Fork, token: bytes, known: bytes) -> Written | Refused:
        """Read the parent with its namespaces, as they are at one moment, and fork from the pieces that are stored of
        it."""
        # Checked first: nothing is read for an id that is not free, or not known to be free.
        await find_birth(self._tiers.link, self.child, token, known)
        wanted = [Wanted(self._parent, birth=fork.spaces.birth), *(Wanted(one) for one, _ in fork.pairs)]
        own, *spaces = [one for one in await self._tiers.hot.read_large(wanted) if one is not None]
        if own.fields.get(Field.NAMESPACES_MARK, b"") != fork.spaces.mark:
            raise MoreNamespaces
        found = [(pair, space) for pair, space in zip(fork.pairs, spaces, strict=True) if space.entries]
        scopes = [Birth(fork.child, _texts(own)), *(Birth(child, _texts(space)) for (_, child), space in found)]
        self._stored = scopes
        async with gathered(self._tiers.link, token, known, scopes) as pieces:
            ready = replace(fork, pairs=[pair for pair, _ in found], pieces=pieces)
            return await self._tiers.forking.fork(ready, token=token, known=known)

    def _space(self, session: ScopeRef, name: str) -> Place:
        return self._tiers.layout.place(namespace_ref(session, name))

    async def note(self, writes: UnflushedWrites, written: Written) -> None:
        """Record as unflushed what has to become durable: the fork's own writes are those of its revision.  Gone."""
        for place, texts in self._stored or await self._copied(written.revision):
            part = Part(place, [Operation(Code.SET, key, text) for key, text in texts.items()])
            if part.operations or place is self.child:
                done = written.parts[0]._replace(flushed_through=ZERO, results=[b""] * len(part.operations))
                writes.note([part], Written(written.revision, [done]), life=place is self.child)

    async def _copied(self, birth: bytes) -> list[Birth]:
        """What the script copied, as far as it has not been written since.  Gone."""
        places = [self.child, *(self._space(self.child.ref, name) for name in self._namespaces)]
        wanted = [Wanted(place, birth=birth if place is self.child else b"") for place in places]
        contents = await self._tiers.perform(lambda: self._tiers.hot.read(wanted))
        return [Birth(place, _texts(content, birth)) for place, content in zip(places, contents, strict=True)]


def _texts(content: Content, revision: bytes = b"") -> dict[str, bytes]:
    """The texts of all keys, or of those that have this revision."""
    return {key: value[DIGITS:] for key, value in content.entries.items() if value.startswith(revision)}
