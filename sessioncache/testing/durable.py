"""The durable tier in memory: it has no session that the hot tier does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sessioncache.durable.messages import Owned, Tombstone
from sessioncache.durable.tier import DurableTier
from sessioncache.hot.fields import Field, head_of
from sessioncache.hot.layout import Layout
from sessioncache.primitives.entries import StoredHead
from sessioncache.primitives.revisions import ZERO, decode_revision
from sessioncache.primitives.scopes import ScopeRef
from sessioncache.testing.hot import app_of, user_of
from sessioncache.testing.store import Cell, MemoryStore


class MemoryDurable(DurableTier):
    """Answers from the same store as the hot tier."""

    def __init__(self, store: MemoryStore, layout: Layout) -> None:
        self._store = store
        self._layout = layout

    async def list_sessions(self, *_: Any, **__: Any) -> list[StoredHead]:
        """Sessions that are durable and not among the unflushed ones: none."""
        return []

    async def find_sessions(self, *_: Any, **__: Any) -> list[StoredHead]:
        """Sessions that are durable and not among the unflushed ones: none."""
        return []

    async def named(self, user: ScopeRef, most: int) -> list[ScopeRef]:
        """Sessions of a user that have not been erased."""
        with self._store.lock:
            ours = [cell for cell in self._store.sessions() if user_of(cell.place) == user.id.encode()]
            return [cell.place.ref for cell in ours if self._is_ours(cell)][:most]

    async def erased(self, *_: Any) -> list[tuple[str, int]]:
        """Sessions that were erased, and are still hot: none."""
        return []

    async def owned(self, sessions: Sequence[ScopeRef]) -> list[Owned]:
        """All that they have is hot."""
        return [Owned(one, {}) for one in sessions]

    async def erase_rows(self, *_: Any) -> int:
        """Rows that are not hot: none."""
        return 0

    async def tidy(self) -> None:
        """Nothing to do."""

    async def note(self, name: str, value: str) -> None:
        """Record something beside the sessions."""
        self._store.notes[name] = value

    async def read_layout(self) -> dict[str, str]:
        """What is recorded."""
        return dict(self._store.notes)

    async def unused_sessions(
        self, app_scope_id: str, before: int, after: tuple[int, str], limit: int, noted: int
    ) -> list[StoredHead]:
        """Living sessions of an app last updated at or before `before` (µs), oldest first, after (updated, id).

        Without those that were recorded as in use later than `noted` (µs).
        """
        with self._store.lock:
            living = [cell for cell in self._store.sessions() if cell.birth and self._is_ours(cell)]
            heads = [
                StoredHead(cell.place.ref.id, head_of(cell.head))
                for cell in living
                if app_of(cell.place) == app_scope_id.encode()
                and decode_revision(cell.head.get(Field.USED, ZERO)) <= noted
            ]
        placed = sorted((one.head.updated, one.scope_id, one) for one in heads)
        return [one for updated, scope_id, one in placed if after < (updated, scope_id) and updated <= before][:limit]

    def _is_ours(self, cell: Cell) -> bool:
        """Whether it is of this installation: one prefix, one number of buckets."""
        return cell.place == self._layout.place(cell.place.ref)

    async def erase(self, user: ScopeRef, revision: int, tombstones: Sequence[Tombstone], incarnation: str) -> None:
        """Forget the tombstones of sessions, and with them what they were called."""
        with self._store.lock:
            for one in tombstones:
                self._store.scopes.pop(self._layout.place(one.session).hash, None)
