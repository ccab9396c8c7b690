"""Creating a session: the id must be free in both tiers, and the initial state is written in the same step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sessioncache.coordination.id_reservation import IdReservation
from sessioncache.coordination.places import SessionPlaces
from sessioncache.coordination.tiers import Tiers
from sessioncache.errors import (
    DamagedValueError,
    DurableTierUnavailableError,
    HotTierUnavailableError,
    LimitExceededError,
    OutcomeUnknownError,
    SessionExistsError,
)
from sessioncache.handle.refusals import raise_refusal
from sessioncache.hot.fields import NEW, Code
from sessioncache.hot.limits import check_size, size_of
from sessioncache.hot.messages import Operation, Part, Refused, Written, WrittenPart
from sessioncache.hot.signals import Taken
from sessioncache.operations.touch import check_title
from sessioncache.primitives.entries import Head
from sessioncache.primitives.names import KeyScope, split_key
from sessioncache.primitives.values import Json, encode_value
from sessioncache.settings import MAX_SCOPE_BYTES, MAX_SCOPE_KEYS

if TYPE_CHECKING:
    from sessioncache.session import Session

_SHARED = (KeyScope.USER, KeyScope.APP)


class Creation:
    """One attempt to create a session."""

    def __init__(
        self, tiers: Tiers, places: SessionPlaces, title: str, state: Mapping[str, Json], *, generated: bool
    ) -> None:
        self._tiers = tiers
        self._places = places
        self._title = check_title(title)
        self._parts = _parts(places, state)
        self._reservation = IdReservation(tiers, places.session, generated=generated)

    async def run(self, handle_of: Callable[[Mapping[KeyScope, Part], Written], Session]) -> Session:
        """Create it; the handle that `handle_of` makes of the write.  SessionExistsError."""
        ref = self._places.session.ref
        outcome: Written | Refused | None = None
        try:
            outcome = await self._tiers.perform(self._attempt)
        except Taken:
            raise SessionExistsError(
                f"there is a session {ref.session!r} of this user already; nothing was changed", session_id=ref.session
            ) from None
        finally:
            await self._reservation.end(is_filled=isinstance(outcome, Written))
        if isinstance(outcome, Refused):
            raise_refusal(outcome.why)
            raise LimitExceededError(f"the initial state is too large ({outcome.detail}); nothing was created")
        created = handle_of(self._parts, outcome)
        if any(done.content is None for scope, done in self._by_scope(outcome) if scope in _SHARED):
            await self._read(created)
        return created

    def _by_scope(self, written: Written) -> Iterable[tuple[KeyScope, WrittenPart]]:
        return zip(self._parts, written.parts, strict=True)

    async def _read(self, created: Session) -> None:
        """Read again, since somebody wrote a shared scope between the step that created the session and the reading
        after it."""
        try:
            await created.refresh()
        except (HotTierUnavailableError, DurableTierUnavailableError, DamagedValueError) as error:
            raise OutcomeUnknownError(f"the session {created.id!r} was created, and cannot be read now") from error

    async def _attempt(self) -> Written | Refused:
        ref, parts = self._places.session.ref, list(self._parts.values())
        await self._tiers.back_pressure.admit()
        head = Head(ref.org, ref.app, ref.user, ref.session, revision=0, title=self._title)
        whole = [self._places.by_scope[scope] for scope in _SHARED]
        return await self._reservation.fill(
            lambda token, known: self._tiers.large_creates.create(parts, head, token=token, known=known, whole=whole)
        )


def _parts(places: SessionPlaces, state: Mapping[str, Json]) -> dict[KeyScope, Part]:
    # The shared scopes are parts in any case: no session is created whose state could not be read.
    operations: dict[KeyScope, list[Operation]] = {KeyScope.SESSION: [], **{scope: [] for scope in _SHARED}}
    for key, value in state.items():
        scope, name = split_key(key)
        operations.setdefault(scope, []).append(Operation(Code.SET, name, encode_value(key, value)))
    _check_limits(operations)
    return {
        scope: Part(
            places.by_scope[scope],
            changes,
            NEW if scope is KeyScope.SESSION else b"",
            temp=scope is KeyScope.TEMP,
        )
        for scope, changes in operations.items()
    }


def _check_limits(operations: Mapping[KeyScope, Sequence[Operation]]) -> None:
    """Private keys may be stored in pieces, if they are many; shared and `temp:` keys have to fit into one script."""
    others = [changes for scope, changes in operations.items() if scope is not KeyScope.SESSION]
    check_size(sum(map(len, others)), size_of(others))
    own = operations[KeyScope.SESSION]
    if len(own) > MAX_SCOPE_KEYS or size_of([own]) > MAX_SCOPE_BYTES:
        raise LimitExceededError(
            f"a session has at most {MAX_SCOPE_KEYS} private keys and {MAX_SCOPE_BYTES} bytes of values as JSON;"
            " nothing was created"
        )
