"""Inspecting: what an operator is shown of one session.  `temp:` keys are left out (R16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sessioncache.coordination.places import SessionPlaces
from sessioncache.coordination.tiers import Tiers
from sessioncache.hot.fields import Field, head_of
from sessioncache.hot.inspection import Sight, look
from sessioncache.hot.messages import Content
from sessioncache.operations.export import Private, read_private
from sessioncache.primitives.revisions import DIGITS
from sessioncache.primitives.session_info import SessionInfo, info_of
from sessioncache.primitives.timestamps import json_of
from sessioncache.primitives.values import readable


class Size(NamedTuple):
    """How much a scope holds."""

    keys: int
    bytes: int
    """Bytes of the values as JSON text."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """One session, as an operator sees it."""

    info: SessionInfo
    revision: int
    """The revision of the session's own keys."""
    hot: bool
    """Whether it was in Redis before it was inspected."""
    dirty: bool
    """Whether SQL lacks something of it."""
    refused: int
    """Entries of its own that the database refuses: they are listed by `sessioncache dead list`."""
    lease: float | None
    """Seconds that its run lease lasts yet; None: nobody holds it."""
    size: Size
    """The size of the session's own keys."""
    state: Mapping[str, Any]
    """The session's own keys with their values, sorted by key."""
    namespaces: Mapping[str, Size]
    complete: bool
    """Whether all namespaces are included: while SQL is away, those that only SQL knows are not."""
    damaged: Sequence[str]
    """Keys whose stored value is no JSON text, and that are left out: its own, and shared ones with their prefix."""
    shared: Mapping[str, Mapping[str, Any]] | None
    """``user`` and ``app``: the shared keys with their values; None where they were not asked for."""


async def inspect_session(tiers: Tiers, places: SessionPlaces, *, shared: bool = False) -> Inspection:
    """A session of any life with its own keys and the sizes of its namespaces; `shared`: with the shared keys, too.

    It is loaded into Redis where it is not there, as by every reading.  Gone.
    """
    sight = await tiers.perform(lambda: look(tiers.link, places.session))
    beside = (places.user, places.app) if shared else ()
    return _inspection(sight, await read_private(tiers, places.session, beside=beside, partly=True))


def _inspection(sight: Sight, private: Private) -> Inspection:
    head = head_of(private.own.head)
    state, damaged = readable(private.own.entries, head.session)
    shared: dict[str, Mapping[str, Any]] = {}
    for name, content in zip(("user", "app"), private.beside, strict=False):
        shared[name], lacking = readable(content.entries, head.session)
        damaged += [f"{name}:{key}" for key in lacking]
    is_held = sight.lease is not None and sight.lease[0] == private.own.head[Field.BIRTH]
    return Inspection(
        info=info_of(head),
        revision=head.values_revision,
        hot=sight.hot,
        dirty=sight.dirty,
        refused=sight.refused,
        lease=sight.lease[1] if sight.lease and is_held else None,
        size=_size(private.own),
        state=state,
        damaged=damaged,
        namespaces={name: _size(content) for name, content in private.namespaces.items()},
        complete=private.complete,
        shared=shared if private.beside else None,
    )


def _size(content: Content) -> Size:
    return Size(len(content.entries), sum(len(json_of(value, DIGITS)) for value in content.entries.values()))
