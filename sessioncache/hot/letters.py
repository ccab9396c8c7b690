"""The hash of dead letters, by typed wrappers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sessioncache.dates import json_size
from sessioncache.hot.layout import Layout, Place
from sessioncache.hot.link import HotLink, pairs_of
from sessioncache.hot.scripts import load_script
from sessioncache.revisions import DIGITS, decode_revision

_MEMBER = 33
"""Characters of a scope's kind and id."""
_IDENTITY = (b"o", b"a", b"w", b"s", b"g", b"d")
_OF_HEAD = b"!"


@dataclass(frozen=True, slots=True)
class RawLetter:
    """One letter as Redis has it, with what the scope's hash says of itself."""

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
    """Of a namespace: the id of its session's scope."""
    birth: bytes
    size: int
    field: bytes
    """Of the scope's hash; `!` for its head, which has no key."""

    @property
    def is_head(self) -> bool:
        """Whether the head is refused, hence all of the scope."""
        return self.field == _OF_HEAD


class Letters:
    """Reads letters, and takes them back."""

    def __init__(self, link: HotLink, layout: Layout) -> None:
        self._link = link
        self._layout = layout

    async def read(self, buckets: Sequence[int]) -> list[RawLetter]:
        """The dead letters of some buckets whose entry has not been written again since."""
        replies = await self._link.exchange([(b"HGETALL", self._layout.control(b)[:-3] + b"dead") for b in buckets], {})
        found = [(b, *pair) for b, reply in zip(buckets, replies, strict=True) for pair in pairs_of(reply).items()]
        dead = [one for one in found if one[2].split(b"|", 2)[1] == b"1"]
        if not dead:
            return []
        commands = [
            (b"HMGET", self._layout.hash(b, name[:_MEMBER].decode()), *_IDENTITY, b"b", _version_field(name))
            for b, name, _ in dead
        ]
        hashes = await self._link.exchange(commands, {})
        letters = [_letter(*one, of_hash) for one, of_hash in zip(dead, hashes, strict=True)]
        return [letter for letter in letters if letter is not None]

    async def pardon(self, place: Place, field: bytes) -> bool:
        """Take a letter back, so that its entry, or head, is flushed again; whether there was one."""
        return bool((await self._link.call(load_script("pardon"), [place.control, place.hash], [field]))[1])


def _version_field(name: bytes) -> bytes:
    """The field of a scope's hash that tells whether a letter still holds."""
    field = name[_MEMBER:]
    if field != _OF_HEAD:
        return field
    return b"h" if name[:1] == b"s" else b"r"


def _letter(bucket: int, name: bytes, value: bytes, of_hash: list[bytes | None]) -> RawLetter | None:
    digits, _, attempts, refused_at, reason = value.split(b"|", 4)
    *names, birth, entry = (part or b"" for part in of_hash)
    org, app, user, session, namespace, holder = (name.decode() for name in names)
    if entry[:DIGITS] != digits:
        return None
    return RawLetter(
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
    )
