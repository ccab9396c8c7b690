"""Run leases in memory."""

from __future__ import annotations

from sessioncache.hot.client import HotClient
from sessioncache.hot.layout import Place
from sessioncache.hot.leases import Leases
from sessioncache.hot.signals import Gone
from sessioncache.testing.store import HeldLease, MemoryStore


class MemoryLeases(Leases):
    """Takes, renews and gives back, by the clock of the store."""

    def __init__(self, store: MemoryStore, link: HotClient) -> None:
        super().__init__(link)
        self._store = store

    async def take(self, place: Place, birth: bytes, token: bytes, seconds: float) -> float | None:
        """None: the lease is ours for so many seconds; else the seconds that its holder has left.  Gone."""
        with self._store.lock:
            session, now = self._store.session(place, birth), self._store.now()
            if session.lease and session.lease.token != token and session.lease.ends > now:
                return (session.lease.ends - now) / 1_000_000
            session.lease = HeldLease(token, now + int(seconds * 1_000_000))
            return None

    async def renew(self, place: Place, birth: bytes, token: bytes, seconds: float) -> bool:
        """Whether the lease is still ours, for so many seconds from now.  Gone."""
        with self._store.lock:
            session = self._store.session(place, birth)
            if session.lease is None or session.lease.token != token:
                return False
            session.lease = HeldLease(token, self._store.now() + int(seconds * 1_000_000))
            return True

    async def free(self, place: Place, birth: bytes, token: bytes) -> None:
        """Give the lease back, if it is still ours."""
        with self._store.lock:
            try:
                session = self._store.session(place, birth)
            except Gone:
                return
            if session.lease and session.lease.token == token:
                session.lease = None
