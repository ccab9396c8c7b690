"""Typed wrappers for the scripts of revalidation: what Redis still has of a scope is merged with what SQL has.

Redis is asked for revisions and sizes, not for values: what stays as it is need not be sent.  A large scope takes many
scripts, since none may hold Redis up for long.  Until the last of them the hash counts as not revalidated, so that
nobody reads or writes one that is half done; a merge that was interrupted is started anew by the next process.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from sessioncache.errors import HotTierUnavailableError
from sessioncache.hot.client import Argument, HotClient, Reply
from sessioncache.hot.grouping import Call, call_groups
from sessioncache.hot.layout import Layout, Place, parents
from sessioncache.hot.messages import GARBLED, Damaged
from sessioncache.hot.reconciling import Looked, Merged, Step
from sessioncache.hot.scripts import load_script
from sessioncache.hot.signals import Need, Unready
from sessioncache.hot.tokens import TOKEN_LIFETIME_MS, Kept
from sessioncache.primitives.revisions import ZERO, encode_revision
from sessioncache.primitives.scopes import ScopeKind
from sessioncache.settings import TOMBSTONE_RETENTION

_AT_ONCE = 16
"""Scopes of one call."""
_ENTRY = 256
"""Bytes that an entry takes, roughly, beside its value."""


@dataclass(frozen=True, slots=True)
class TakenScope:
    """A scope whose token for a revalidation is ours."""

    place: Place
    token: bytes
    incarnation: str
    size: int = 0
    """Bytes that it takes, roughly, by what its head says."""


class Merging:
    """Merges what Redis still has of a scope with what SQL has."""

    def __init__(self, link: HotClient, layout: Layout, *, idle_ttl: float) -> None:
        self._link = link
        self._layout = layout
        self.idle_ms = max(1, int(idle_ttl * 1000))

    async def take_tokens(self, places: Sequence[Place]) -> list[TakenScope | float | Unready | Damaged | None]:
        """For each scope the token; or the seconds that another process has left; or None: there is nothing to do (any
        more).

        Unready where something else has to be made ready first; Damaged where nothing can be done.
        """
        # Of each scope one token, whoever holds it: no loader and no other process settles the scope meanwhile.
        tokens = [secrets.token_hex(8).encode() for _ in places]
        replies = await self._by_bucket("token", places, (TOKEN_LIFETIME_MS, b"1", b"", self.idle_ms), tokens)
        return [self._taken(*one) for one in zip(places, tokens, replies, strict=True)]

    def _taken(self, place: Place, token: bytes, reply: Reply) -> TakenScope | float | Unready | Damaged | None:
        if isinstance(reply, Damaged):
            return reply
        if reply[0] == b"register":
            return Unready(Need.REGISTER, [place])
        if reply[0] == b"host":
            return Unready(Need(reply[1].decode()), [self._layout.host(place, reply[2].decode())])
        if reply[0] == b"wait":
            return int(reply[1]) / 1000
        if reply[0] in (b"hot", b"gone"):
            return None
        # A worker knows only bucket and member: the names, by which SQL is asked, are those in the hash.
        try:
            org, app, user, session, holder, namespace = (text.decode() for text in reply[2:8])
            size = _ENTRY * int(reply[9]) + int(reply[10])
        except ValueError:
            return GARBLED
        ref = replace(place.ref, org=org, app=app, user=user, session=session, holder=holder, namespace=namespace)
        return TakenScope(replace(place, ref=ref, parents=parents(ref)), token, reply[1].decode(), size)

    def kept(self, taken: Sequence[TakenScope]) -> Kept:
        """A block in which tokens are kept."""
        return Kept(self._link, [(one.place, one.token) for one in taken])

    async def look(self, taken: Sequence[TakenScope]) -> list[Looked | Damaged | None]:
        """What hashes hold, except for the values; None where the token is lost, or the hash was changed meanwhile."""
        first = await self._look(taken, 0)
        return [await self._whole(one, reply) for one, reply in zip(taken, first, strict=True)]

    async def _look(self, taken: Sequence[TakenScope], told: int) -> list[Reply]:
        return await self._by_bucket("look", [one.place for one in taken], (told,), [one.token for one in taken])

    async def _by_bucket(
        self, script: str, places: Sequence[Place], common: Sequence[Argument], tokens: Sequence[bytes]
    ) -> list[Reply]:
        """What a script answers for each scope."""

        def call_of(at: Sequence[int]) -> Call:
            return [places[at[0]].control, *(places[n].hash for n in at)], (*common, *(tokens[n] for n in at))

        groups = _groups(places)
        found: list[Reply] = [None] * len(places)
        for at, replies in zip(
            groups, await call_groups(self._link, load_script(script), groups, call_of), strict=True
        ):
            for n, reply in zip(at, replies, strict=True):
                found[n] = reply
        return found

    async def _whole(self, taken: TakenScope, reply: Reply) -> Looked | Damaged | None:
        try:
            return await self._read_on(taken, reply)
        except ValueError:
            return GARBLED

    async def _read_on(self, taken: TakenScope, reply: Reply) -> Looked | Damaged | None:
        """What a hash holds, of which the first part was read.  ValueError."""
        # One call reads only so much: the scopes after that are read by calls of their own.
        if not isinstance(reply, Damaged) and reply[0] == b"later":
            (reply,) = await self._look([taken], 0)
        if not _is_done(reply):
            return reply if isinstance(reply, Damaged) else None
        _, told, total, now, head, marks, entries = reply
        looked = Looked.of(taken.incarnation, int(now), head, marks)
        looked.add(entries)
        while told < total:
            (reply,) = await self._look([taken], told)
            # Another number of entries: somebody changed the hash between two parts.
            if not _is_done(reply) or reply[2] != total:
                return reply if isinstance(reply, Damaged) else None
            told = reply[1]
            looked.add(reply[6])
        return looked if len(looked.entries) == total else None

    async def carry_out(self, jobs: Sequence[tuple[TakenScope, Looked, Merged]]) -> list[int | Damaged | None]:
        """Do to each hash what is to be done; the marks that are left, None where the token is lost."""
        left: list[int | Damaged | None] = [0] * len(jobs)
        dropped = [at for at, (_, _, made) in enumerate(jobs) if made.drop]
        for at, reply in zip(dropped, await self._drop([jobs[at][:2] for at in dropped]), strict=True):
            left[at] = reply if isinstance(reply, Damaged) else 0
        steps = [[] if made.drop else self._steps(*job) for job in jobs for made in (job[2],)]
        # First steps together, in one round trip; only a large scope has more, and these one by one.
        firsts = [at for at, own in enumerate(steps) if own]
        for at, reply in zip(firsts, await self._step([(jobs[at][0], steps[at][0]) for at in firsts]), strict=True):
            left[at] = _marks_left(reply)
            for args in steps[at][1:]:
                if not isinstance(left[at], int):
                    break
                (reply,) = await self._step([(jobs[at][0], args)])
                left[at] = _marks_left(reply)
        return left

    async def _drop(self, dropped: Sequence[tuple[TakenScope, Looked]]) -> list[Reply]:
        calls = [
            # Only as it was found: the script leaves a hash that was written since.
            ([one.place.control, one.place.hash], (looked.head["r"] or ZERO, one.place.parents, self.idle_ms))
            for one, looked in dropped
        ]
        return await self._link.call_each(load_script("scrub"), calls)

    async def _step(self, steps: Sequence[tuple[TakenScope, Sequence[Argument]]]) -> list[Reply]:
        calls = [([one.place.control, one.place.hash], args) for one, args in steps]
        return await self._link.call_each(load_script("merge"), calls)

    def _steps(self, taken: TakenScope, looked: Looked, made: Merged) -> list[Sequence[Argument]]:
        """The arguments of each step."""
        place, parts = taken.place, list(made.steps())
        before, revision = looked.head["r"] or ZERO, encode_revision(made.revision)
        holder = place.parents if place.ref.kind is ScopeKind.NAMESPACE else b""
        steps: list[Sequence[Argument]] = []
        for step in parts:
            last = step is parts[-1]
            about = (taken.token, TOKEN_LIFETIME_MS, before, revision, encode_revision(made.stamp), holder, int(last))
            steps.append((*about, *_parts(step), *(self._ending(place, made) if last else ())))
            # Each step finds the revision that the one before left: a write in between ends the merge, which starts
            # anew.
            before = revision
        return steps

    def _ending(self, place: Place, made: Merged) -> Sequence[Argument]:
        flushed = b"" if made.flushed is None else encode_revision(made.flushed)
        flags = (int(made.head_is_dirty), int(made.replaced), int(made.new_life), flushed, encode_revision(made.purged))
        head = (part for pair in made.head.items() for part in pair)
        return (self.idle_ms, TOMBSTONE_RETENTION * 1000, place.parents, *flags, *head)

    async def release(self, taken: Sequence[TakenScope]) -> None:
        """Give back tokens that were not used, so that nobody waits for a process that failed or was cancelled."""
        calls = [([one.place.control, one.place.hash], [one.token]) for one in taken]
        # They expire by themselves where Redis cannot be reached.
        with suppress(HotTierUnavailableError):
            await self._link.call_many(load_script("absent"), calls)

    async def mark_stale(self, place: Place, revision: bytes = b"") -> bool:
        """Mark a scope for revalidation, by whoever uses it next or by a worker; whether it was marked.

        `revision`: only a clean scope that is still at this revision.
        """
        return bool((await self._link.call(load_script("mark_stale"), [place.control, place.hash], [revision]))[1])


def _groups(places: Sequence[Place]) -> list[list[int]]:
    """Which of these are of one bucket, as many as one call serves."""
    of_bucket: dict[bytes, list[int]] = defaultdict(list)
    for n, place in enumerate(places):
        of_bucket[place.control].append(n)
    return [all_of[n : n + _AT_ONCE] for all_of in of_bucket.values() for n in range(0, len(all_of), _AT_ONCE)]


def _is_done(reply: Reply) -> bool:
    """Whether a script did its part: the token was still held, in the same incarnation."""
    return not isinstance(reply, Damaged) and bool(reply[0] == b"ok")


def _marks_left(reply: Reply) -> int | Damaged | None:
    """The marks that are left, from the reply of the script that carries out a step."""
    if isinstance(reply, Damaged):
        return reply
    return int(reply[1]) if _is_done(reply) else None


def _parts(step: Step) -> Sequence[Argument]:
    """The arguments of a step: how many of each kind, then these."""
    parts = (step.sets, step.stamps, step.gone, step.marks, step.unmarks)
    counts = (len(step.sets) // 2, *map(len, parts[1:]))
    return (*counts, *(name for part in parts for name in part))
