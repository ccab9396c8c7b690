"""Dead letters: entries that the database refuses; listed, retried, or dropped in favour of what SQL has (R10)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sessioncache.coordination.tiers import Tiers
from sessioncache.durable.messages import Asked
from sessioncache.hot.dead_letters import DeadLetters, RawDeadLetter
from sessioncache.hot.fields import Code
from sessioncache.hot.layout import Place, parents
from sessioncache.hot.messages import Operation, Part, Refused
from sessioncache.hot.write import Write
from sessioncache.primitives.deadline import within
from sessioncache.primitives.revisions import LARGEST, encode_revision, revision_time
from sessioncache.primitives.scopes import ScopeKind, ScopeRef, hash_id


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One entry, or head, that the database refuses; its value is not included."""

    id: str
    scope: str
    """``session``, ``namespace``, ``user`` or ``app``."""
    org: str
    app: str
    user: str
    session: str
    namespace: str
    key: str
    """Empty for a head."""
    revision: int
    attempts: int
    refused_at: datetime
    reason: str
    """The driver's error class and SQLSTATE."""
    bytes: int
    """Bytes of the value."""
    head: bool = False
    """Whether it is the head of the scope (names, title, counters) that is refused, and with it the whole scope."""
    retrying: bool = False
    """Whether it is being retried: it goes once the database accepts it, and stays if the database refuses it again."""


class DeadLetterQueue:
    """All dead letters of an installation."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers
        self._letters = DeadLetters(tiers.link, tiers.layout)
        self.deletions: list[str] = []
        """Dropped dead letters whose keys SQL never had: their deletion is written, and may be refused as well."""

    async def list(self) -> list[DeadLetter]:
        """All of them, oldest first."""
        raw = await self._letters.read(range(self._tiers.settings.buckets))
        return sorted((_told(one) for one in raw), key=lambda letter: letter.refused_at)

    async def retry(self, letter_id: str) -> bool:
        """Have the entry, or head, flushed again; False if there is no such dead letter.

        It stays in the list, as one that is being retried, until the database has accepted it.
        """
        raw = await self._find(letter_id)
        return raw is not None and await self._letters.retry(_place(self._tiers, raw), raw.field)

    async def drop(self, letter_id: str) -> bool:
        """Set the entry back to what SQL has; False if there is no such dead letter, or it was written again meanwhile.

        For a head: drop the whole scope, with the namespaces of a session, since SQL has accepted nothing of it.
        """
        raw = await self._find(letter_id)
        if raw is None:
            return False
        place = _place(self._tiers, raw)
        if raw.is_head:
            return await self._tiers.backlog.scrub(place, LARGEST, living=True)
        with within(self._tiers.settings.timeout):
            (evidence,) = await self._tiers.durable.evidence([Asked(place.ref, [raw.key])])
        row = evidence.rows.get(raw.key)
        text = row.text if row else b""
        operation = Operation(Code.SET if text else Code.DELETE, raw.key, text, encode_revision(raw.revision))
        part = Part(place, [operation], birth=raw.birth if place.ref.kind is ScopeKind.SESSION else b"")
        host = [Part(self._tiers.layout.host(place, raw.holder), birth=raw.birth)] if raw.holder else []
        outcome = await self._tiers.perform(self._tiers.hot.write, Write([*host, part]))
        if isinstance(outcome, Refused):
            return False
        await self._letters.retry(place, raw.field)  # a worker may have flushed it, and the letter, by now
        if row is None:
            self.deletions.append(letter_id)
        return True

    async def _find(self, letter_id: str) -> RawDeadLetter | None:
        raw = await self._letters.read(range(self._tiers.settings.buckets))
        return next((one for one in raw if _id(one) == letter_id), None)


def _id(raw: RawDeadLetter) -> str:
    return hash_id("letter", raw.member, "\0" if raw.is_head else raw.key)[:12]


def _told(raw: RawDeadLetter) -> DeadLetter:
    return DeadLetter(
        id=_id(raw),
        scope=ScopeKind(raw.member[0]).name.lower(),
        org=raw.org,
        app=raw.app,
        user=raw.user,
        session=raw.session,
        namespace=raw.namespace,
        key=raw.key,
        revision=raw.revision,
        attempts=raw.attempts,
        refused_at=revision_time(raw.refused_at),
        reason=raw.reason,
        bytes=raw.size,
        head=raw.is_head,
        retrying=raw.retrying,
    )


def _place(tiers: Tiers, raw: RawDeadLetter) -> Place:
    names = (raw.org, raw.app, raw.user, raw.session, raw.namespace, raw.holder)
    ref = ScopeRef(ScopeKind(raw.member[0]), *names, id=raw.member[1:], bucket=raw.bucket)
    place = tiers.backlog.place(raw.bucket, raw.member)
    return replace(place, ref=ref, parents=parents(ref))
