"""Usage: sessions of apps with a retention are recorded as in use, whatever a handle does with them.

Writes to own keys, touches and titles bear their time; a reading, `temp:` keys and shared keys leave no trace.  Once in
each sixteenth of the retention the handle that is at work records its use in the head, which reaches SQL as every head
does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from sessioncache.errors import SessionCacheError
from sessioncache.hot.fields import Field
from sessioncache.hot.layout import Place
from sessioncache.hot.signals import Gone, Unready
from sessioncache.primitives.deadline import within
from sessioncache.primitives.retention_record import PARTS, retentions
from sessioncache.primitives.revisions import ZERO, decode_revision
from sessioncache.primitives.scopes import app_id

if TYPE_CHECKING:
    from sessioncache.coordination.tiers import Tiers
    from sessioncache.durable.tier import DurableTier

_LEARN_AGAIN = 300.0
"""Seconds after which a process reads again how long apps keep their sessions."""
_LEARN_PATIENCE = 5.0
_NOTE_AGAIN = 5.0
"""Seconds for which no use is recorded after it failed: Redis is away, or refuses writes."""
_APP_ID = 32
"""Bytes of an app's id, with which a session's `parents` begin."""


class Usage:
    """How long apps keep their sessions, as far as this process knows, and an estimate of the clock of Redis."""

    def __init__(self, durable: DurableTier) -> None:
        self._durable = durable
        self._seconds: dict[bytes, float] = {}
        self.needed = False
        """Whether any app keeps its sessions for a limited time."""
        self._learn_from = monotonic() + _LEARN_AGAIN  # until then the record read at the start is good
        self._learning: asyncio.Task[None] | None = None
        self._ahead: float | None = None
        """Microseconds by which the clock of Redis is ahead of our own."""
        self._note_from = 0.0

    def keep(self, org: str, app: str, seconds: float) -> None:
        """An app keeps its sessions for so long (0: for ever).  Of several recorded times the shortest counts."""
        if seconds > 0:
            self.needed, app_key = True, app_id(org, app).encode()
            # The shortest: another process may follow another setting, and a session recorded too often is no harm.
            self._seconds[app_key] = min(seconds, self._seconds.get(app_key, seconds))

    def interval(self, app: bytes) -> float | None:
        """Microseconds for which a recorded use of a session of this app is good; None: none is needed."""
        seconds = self._seconds.get(app)
        return None if seconds is None else seconds * 1_000_000 / PARTS

    def now(self) -> float:
        """The clock of Redis in microseconds since 1970, estimated; infinite where it is not known."""
        return inf if self._ahead is None else monotonic() * 1_000_000 + self._ahead

    def tell(self, micros: int) -> None:
        """Take in what the clock of Redis says now."""
        self._ahead = micros - monotonic() * 1_000_000

    def may_note(self) -> bool:
        """Whether the last attempt did not fail just now."""
        return monotonic() >= self._note_from

    def put_off(self) -> None:
        """Make a pause after a use could not be recorded: each attempt costs a round trip."""
        self._note_from = monotonic() + _NOTE_AGAIN

    def learn(self) -> None:
        """Read from time to time how long apps keep their sessions: other processes may set it."""
        if monotonic() >= self._learn_from:
            self._learn_from = monotonic() + _LEARN_AGAIN
            # Beside the call that noticed it, which need not wait for SQL.
            self._learning = asyncio.ensure_future(self._learn())

    async def _learn(self) -> None:
        with suppress(SessionCacheError), within(_LEARN_PATIENCE):
            self.told(await self._durable.read_layout())

    def told(self, record: Mapping[str, str]) -> None:
        """Take in what SQL has recorded of apps' retentions."""
        for one in retentions(record):
            self.keep(one.org, one.app, one.seconds)

    async def aclose(self) -> None:
        """Stop reading retentions."""
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.gather(self._learning, return_exceptions=True)


class InUse:
    """When one life of a session was known to be in use: shared by its handle and all that come from it."""

    __slots__ = ("_app", "_asked", "_birth", "_last", "_place")

    def __init__(self, place: Place, birth: bytes) -> None:
        self._place, self._birth, self._app = place, birth, place.parents[:_APP_ID]
        self._last, self._asked = ZERO, 0.0

    def seen(self, fields: Mapping[bytes, bytes]) -> None:
        """The head of the session, or a part of it, was read or written."""
        self._last = max(self._last, fields.get(Field.UPDATED, ZERO), fields.get(Field.USED, ZERO))

    async def note(self, tiers: Tiers) -> None:
        """Record that the session is in use, if that is due.  Where that fails, it is tried again a while later."""
        interval, now = tiers.usage.interval(self._app), tiers.usage.now()
        is_due = interval is not None and now >= max(decode_revision(self._last), self._asked) + interval
        if interval is None or not is_due or not tiers.usage.may_note():
            return
        # Set before the call: others of this handle must not record it as well, and a failed attempt is due again soon.
        self._asked = (0 if now == inf else now) - interval + interval / PARTS
        try:
            with suppress(Unready, Gone), within(tiers.settings.timeout):
                self._asked = await tiers.hot.use(self._place, self._birth, int(interval))
                tiers.usage.tell(int(self._asked))
        except SessionCacheError:
            tiers.usage.put_off()
