"""Namespaces: named sets of keys of a session, each a scope of its own beside the session's private keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sessioncache.coordination.tiers import Tiers
from sessioncache.errors import SessionNotFoundError
from sessioncache.handle.base import Handle
from sessioncache.handle.unflushed_writes import UnflushedWrites
from sessioncache.hot.layout import Place
from sessioncache.primitives.names import Key, KeyScope, check_name
from sessioncache.primitives.scopes import namespace_ref
from sessioncache.primitives.values import readable, tell_damaged


class Namespace(Handle):
    """One namespace of one life of a session; its keys are written without prefix, and prefixes mean nothing in them.

    It is created with its first key.  Every call raises SessionNotFoundError once the session was deleted.
    """

    _own = KeyScope.NAMESPACE

    def __init__(
        self,
        tiers: Tiers,
        open_unflushed: Callable[[], UnflushedWrites],
        session: Place,
        birth: bytes,
        name: str,
        lease: bytes = b"",
    ) -> None:
        """Of the session at `session` in the life of `birth`; `lease`: see Handle."""
        super().__init__(tiers, open_unflushed)
        self.name = check_name("a namespace", name)
        self.session_id = session.ref.session
        self._life = birth
        self._lease = lease
        own = tiers.layout.place(namespace_ref(session.ref, name))
        self._by_scope = {KeyScope.SESSION: session, KeyScope.NAMESPACE: own}

    def __repr__(self) -> str:
        return f"<Namespace {self.name!r} of {self.session_id!r}>"

    async def items(self) -> list[tuple[str, Any]]:
        """All keys with their values as the hot tier has them now, sorted by key.

        Damaged values are left out, with a line in the log.
        """
        values, damaged = await self.readable_items()
        tell_damaged(self.session_id, damaged, self.name)
        return list(values.items())

    async def readable_items(self) -> tuple[dict[str, Any], list[str]]:
        """Readable values by key, and the keys whose values are damaged."""
        return readable(await self.read_all(), self.session_id)

    async def clear(self) -> int:
        """Delete all keys in one step; how many there were."""
        return await self._clear()

    # ---- what Handle asks

    def _split(self, key: object) -> Key:
        return Key(KeyScope.NAMESPACE, check_name("a key", key))

    def _full(self, scope: KeyScope, name: str) -> str:
        return name

    def _places(self) -> Mapping[KeyScope, Place]:
        return self._by_scope

    def _readable(self) -> Iterable[KeyScope]:
        return (KeyScope.NAMESPACE,)

    @property
    def _birth(self) -> bytes:
        return self._life

    @property
    def of_session(self) -> str:
        """The id of its session."""
        return self.session_id

    def gone(self) -> SessionNotFoundError:
        """What every call raises once this life of the session is over."""
        return SessionNotFoundError(f"there is no session {self.session_id!r} of this user", session_id=self.session_id)
