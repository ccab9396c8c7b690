"""Creating a session: the id must be free in both tiers, the initial state is part of the same step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sessioncache.entries import Head
from sessioncache.errors import InvalidNameError, LimitExceededError, SessionExistsError
from sessioncache.hot.calls import Need, Operation, Part, Refused, Taken, TokenLost, Unready, Written
from sessioncache.ledger import Ledger
from sessioncache.names import KeyScope, split_key
from sessioncache.revisions import ZERO, encode_revision
from sessioncache.session import Session, SessionPlaces
from sessioncache.tiers import Tiers
from sessioncache.values import Json, encode_value

_GENERATED = b"*"
_UNREAD = b""
MAX_TITLE_BYTES = 1_024
"""Longest title, in bytes of UTF-8."""


class Creation:
    """One attempt to create a session."""

    def __init__(
        self, tiers: Tiers, places: SessionPlaces, title: str, state: Mapping[str, Json], *, generated: bool
    ) -> None:
        self._tiers = tiers
        self._places = places
        self._title = _check_title(title)
        self._parts = _parts(places, state)
        # A generated id is new: SQL need not be asked.  For another id the token proves that SQL does not have it.
        self._token, self._known = (_GENERATED if generated else _UNREAD), ZERO

    async def run(self, open_ledger: Callable[[], Ledger]) -> Session:
        """Create it, or raise SessionExistsError."""
        ref = self._places.session.ref
        outcome: Written | Refused | None = None
        try:
            outcome = await self._tiers.perform(self._attempt)
        except Taken:
            raise SessionExistsError(
                f"there is a session {ref.session!r} of this user already; nothing was changed", session_id=ref.session
            ) from None
        finally:
            if not isinstance(outcome, Written) and self._token not in (_GENERATED, _UNREAD):
                await self._tiers.hydrator.release(self._places.session, self._token)
        if isinstance(outcome, Refused):
            raise LimitExceededError(f"the initial state is too large ({outcome.detail}); nothing was created")
        return Session.created(self._tiers, open_ledger, self._places, self._parts, outcome, self._title)

    async def _attempt(self) -> Written | Refused:
        ref, parts = self._places.session.ref, list(self._parts.values())
        await self._tiers.pressure.admit()
        head = Head(ref.org, ref.app, ref.user, ref.session, revision=0, title=self._title)
        while True:
            try:
                return await self._tiers.hot.create(parts, head, token=self._token, known=self._known)
            except TokenLost:
                self._token = _UNREAD
            except Unready as why:
                if why.need is not Need.COLD or why.places != [self._places.session] or self._token != _UNREAD:
                    raise
                await self._find_vacancy()

    async def _find_vacancy(self) -> None:
        place = self._places.session
        found = await self._tiers.hydrator.find_session(place)
        if found is None:
            return
        if found.is_free:
            self._token, self._known = found.token, encode_revision(found.known)
        else:
            await self._tiers.hydrator.install(place, found)


def _parts(places: SessionPlaces, state: Mapping[str, Json]) -> dict[KeyScope, Part]:
    parts = {KeyScope.SESSION: Part(places.session, [], birth=b"+")}
    for key, value in state.items():
        scope, name = split_key(key)
        part = parts.setdefault(scope, Part(places.by_scope[scope], [], temp=scope is KeyScope.TEMP))
        part.operations.append(Operation(b"S", name, encode_value(key, value)))
    return parts


def _check_title(title: object) -> str:
    if type(title) is not str:
        raise InvalidNameError(f"a title must be a str, not {type(title).__name__}")
    try:
        size = len(title.encode())
    except UnicodeEncodeError:
        raise InvalidNameError("the title contains a lone surrogate, which no database can store") from None
    if "\0" in title:
        raise InvalidNameError("the title contains a NUL character")
    if size > MAX_TITLE_BYTES:
        raise LimitExceededError(f"the title has {size} bytes of UTF-8, at most {MAX_TITLE_BYTES} are allowed")
    return title
