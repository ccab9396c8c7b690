"""Exports: all that there is of a session, or of a user, as plain JSON; `temp:` keys are left out (R16)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sessioncache.hot.calls import Content, Wanted
from sessioncache.hot.layout import Place, head_of
from sessioncache.info import info_of
from sessioncache.revisions import DIGITS
from sessioncache.scopes import namespace_ref
from sessioncache.tiers import Tiers
from sessioncache.values import decode_value

FORMAT = 1
"""The version of the form that exports have."""


async def export_session(tiers: Tiers, place: Place, birth: bytes = b"") -> dict[str, Any]:
    """A session of any life, or of `birth`: what lists show of it, its private keys and its namespaces.  Gone."""
    spaces = await tiers.perform(lambda: tiers.forking.spaces(place, birth))
    stored = [] if spaces.none_yet else await tiers.perform(lambda: tiers.durable.namespaces(place.ref))
    names = sorted({*stored, *spaces.dirty})
    places = [tiers.layout.place(namespace_ref(place.ref, name)) for name in names]
    wanted = [Wanted(place, birth=spaces.birth), *(Wanted(one) for one in places)]
    own, *others = await tiers.perform(lambda: tiers.hot.read(wanted))
    info = asdict(info_of(head_of(own.head)))
    told = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in info.items()}
    values = {name: _values(content) for name, content in zip(names, others, strict=True)}
    return {"format": FORMAT, **told, "state": _values(own), "namespaces": {n: v for n, v in values.items() if v}}


async def export_scope(tiers: Tiers, place: Place) -> dict[str, Any]:
    """The keys of a shared scope with their values."""
    (content,) = await tiers.perform(lambda: tiers.hot.read([Wanted(place)]))
    return _values(content)


def _values(content: Content) -> dict[str, Any]:
    entries: Mapping[str, bytes] = content.entries
    return {key: decode_value(entries[key][DIGITS:]) for key in sorted(entries)}
