"""Typed wrappers for the hash of dead letters: entries that the database refuses.

A dead letter stands for one revision of an entry, and the entry stays in the scope's hash: the letter itself holds no
value.  So each letter is compared with the hash whenever it is read; one whose entry was written again since is none
any more, since the new value has not been refused (R10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sessioncache.hot.client import HotClient, pairs_of
from sessioncache.hot.fields import HEAD_MARK, Field
from sessioncache.hot.layout import Layout, Place
from sessioncache.hot.scripts import load_script
from sessioncache.primitives.revisions import DIGITS, decode_revision
from sessioncache.primitives.timestamps import json_size

_MEMBER = 33
"""Characters of a scope's kind and id."""
_IDENTITY = (Field.ORG, Field.APP, Field.USER, Field.SESSION, Field.NAMESPACE, Field.HOLDER)
_FIRST_RETRY, _LAST_RETRY = 600_000_000, 86_400_000_000
"""Microseconds after which a dead letter is retried by itself, at the soonest and at the latest."""


@dataclass(frozen=True, slots=True)
class RawDeadLetter:
    """One dead letter as Redis has it, with what the scope's hash contains about it."""

    bucket: int
    member: str
    key: str
    revision: int
    attempts: int
    refused_at: int
    reason: str
    org: str
    app: str
    user: str
    session: str
    namespace: str
    holder: str
    """For a namespace: the id of its session's scope."""
    birth: bytes
    size: int
    field: bytes
    """The field of the scope's hash; `!` for its head, which has no key."""
    retrying: bool = False
    """Whether it is to be flushed again, or being flushed."""
    older: bool = False
    """Whether SQL may have accepted it before Redis forgot that: the scope's hash is of an older incarnation."""

    @property
    def is_head(self) -> bool:
        """Whether the head is refused, and with it the whole scope."""
        return self.field == HEAD_MARK

    def is_due(self, now: int) -> bool:
        """Whether it is to be retried: after ten minutes, then after as long as it has been refused, after a day at
        most.

        One that SQL may have accepted is retried without a pause; one dated ahead was refused before the clock was set
        back.
        """
        pause = min(max(self.refused_at - self.revision, _FIRST_RETRY), _LAST_RETRY)
        return self.older or not 0 <= now - self.refused_at < pause


class DeadLetters:
    """Reads dead letters, and has them retried."""

    def __init__(self, link: HotClient, layout: Layout) -> None:
        self._link = link
        self._layout = layout

    async def read(self, buckets: Sequence[int]) -> list[RawDeadLetter]:
        """The dead letters of some buckets whose entry has not been written again since."""
        replies = await self._link.exchange([(b"HGETALL", self._layout.control(b)[:-3] + b"dead") for b in buckets], {})
        found = [(b, *pair) for b, reply in zip(buckets, replies, strict=True) for pair in pairs_of(reply).items()]
        # Failures that are no dead letters yet stand in the same hash.
        dead = [one for one in found if one[2].split(b"|", 2)[1] != b"0"]
        if not dead:
            return []
        commands = [
            (
                b"HMGET",
                self._layout.hash(b, name[:_MEMBER].decode()),
                *_IDENTITY,
                Field.BIRTH,
                Field.INCARNATION,
                _version_field(name),
            )
            for b, name, _ in dead
        ]
        incarnations = [(b"HGET", self._layout.control(b), b"incarnation") for b, _, _ in dead]
        # In one exchange, so that the hash and the incarnation that it is compared with are of about the same moment.
        hashes = await self._link.exchange([*commands, *incarnations], {})
        found_of = zip(dead, hashes[: len(dead)], hashes[len(dead) :], strict=True)
        letters = [_letter(*one, of_hash, incarnation) for one, of_hash, incarnation in found_of]
        return [letter for letter in letters if letter is not None]

    async def retry_due(self, buckets: Sequence[int], most: int) -> int:
        """Have the dead letters flushed again that are due to be retried, the longest refused first; their number."""
        now = await self._link.time()
        due = [one for one in await self.read(buckets) if not one.retrying and one.is_due(now)]
        # Only so many at once: refused again, each costs SQL some transactions.
        due = sorted(due, key=lambda one: one.refused_at)[:most]
        calls = [
            ([self._layout.control(one.bucket), self._layout.hash(one.bucket, one.member)], [one.field]) for one in due
        ]
        return sum(reply[1] for reply in await self._link.call_many(load_script("retry"), calls))

    async def retry(self, place: Place, field: bytes) -> bool:
        """Have the entry, or head, of a dead letter flushed again; whether there was one."""
        return bool((await self._link.call(load_script("retry"), [place.control, place.hash], [field]))[1])


def _version_field(name: bytes) -> bytes:
    """The field of a scope's hash that shows whether a dead letter still stands for what is there."""
    field = name[_MEMBER:]
    if field != HEAD_MARK:
        return field
    # Only a session's head has a revision of its own: writes to its keys alone do not change what was refused.
    return Field.HEAD_REVISION if name[:1] == b"s" else Field.REVISION


def _letter(
    bucket: int, name: bytes, value: bytes, of_hash: list[bytes | None], incarnation: bytes | None
) -> RawDeadLetter | None:
    digits, state, attempts, refused_at, reason = value.split(b"|", 4)
    *names, birth, hash_incarnation, entry = (part or b"" for part in of_hash)
    org, app, user, session, namespace, holder = (name.decode() for name in names)
    # Written again since: the new value has not been refused yet.
    if entry[:DIGITS] != digits:
        return None
    return RawDeadLetter(
        bucket=bucket,
        member=name[:_MEMBER].decode(),
        key=name[_MEMBER + 1 :].decode(),
        revision=decode_revision(digits),
        attempts=int(attempts),
        refused_at=int(refused_at),
        reason=reason.decode(),
        org=org,
        app=app,
        user=user,
        session=session,
        namespace=namespace,
        holder=holder,
        birth=birth,
        size=json_size(entry[DIGITS:]),
        field=name[_MEMBER:],
        retrying=state == b"2",
        older=hash_incarnation != (incarnation or b""),
    )
