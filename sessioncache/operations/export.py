"""Exports: all that there is of a session, or of a user, as plain JSON; `temp:` keys are left out (R16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple

from sessioncache.coordination.tiers import Tiers
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.hot.fields import head_of
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Content, Wanted
from sessioncache.primitives.scopes import namespace_ref
from sessioncache.primitives.session_info import SessionInfo, info_of
from sessioncache.primitives.values import readable

FORMAT = 1
"""The version of the format of exports."""


class Private(NamedTuple):
    """What is private to a session, as read in one atomic step."""

    own: Content
    namespaces: dict[str, Content]
    """By name; those without keys are left out."""
    beside: list[Content]
    """Other scopes that were asked for."""
    complete: bool
    """Whether all namespaces are included: where SQL was away, those that only SQL knew are not."""


async def read_private(
    tiers: Tiers, place: Place, birth: bytes = b"", beside: Sequence[Place] = (), *, partly: bool = False
) -> Private:
    """A session of any life, or of `birth`, with its namespaces, and other scopes in the same step.  Gone.

    `partly`: where SQL is away, do without the namespaces that only SQL may know.
    """
    spaces = await tiers.perform(lambda: tiers.forking.spaces(place, birth))
    stored: list[str] | None = []
    if not spaces.none_yet:
        stored = await _stored_namespaces(tiers, place, partly=partly)
    names = sorted({*(stored or ()), *spaces.dirty})
    places = [*(tiers.layout.place(namespace_ref(place.ref, name)) for name in names), *beside]
    wanted = [Wanted(place, birth=spaces.birth), *(Wanted(one) for one in places)]
    own, *others = await tiers.perform(lambda: tiers.hot.read(wanted))
    found = zip(names, others[: len(names)], strict=True)
    namespaces = {name: content for name, content in found if content.entries}
    return Private(own, namespaces, others[len(names) :], complete=stored is not None)


async def _stored_namespaces(tiers: Tiers, place: Place, *, partly: bool) -> list[str] | None:
    """The namespaces that SQL knows; None: SQL is away, and `partly` accepts that."""
    try:
        return list(await tiers.perform(lambda: tiers.durable.namespaces(place.ref)))
    except DurableTierUnavailableError:
        if partly:
            return None
        raise


async def export_session(tiers: Tiers, place: Place, birth: bytes = b"") -> dict[str, Any]:
    """A session of any life, or of `birth`: what lists show of it, its private keys and its namespaces.  Gone."""
    private = await read_private(tiers, place, birth)
    info = told_of(info_of(head_of(private.own.head)))
    state, lacking = readable(private.own.entries, place.ref.session)
    damaged, namespaces = [_left_out("", key) for key in lacking], {}
    for name, content in private.namespaces.items():
        namespaces[name], lacking = readable(content.entries, place.ref.session)
        damaged += [_left_out(name, key) for key in lacking]
    document = {"format": FORMAT, **info, "state": state, "namespaces": namespaces}
    return {**document, "damaged": damaged} if damaged else document


def _left_out(namespace: str, key: str) -> dict[str, str]:
    return {"namespace": namespace, "key": key}


def told_of(info: SessionInfo) -> dict[str, Any]:
    """What lists show of a session, as plain JSON; times in ISO 8601."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(info).items()}


async def export_scope(tiers: Tiers, place: Place) -> dict[str, Any]:
    """The keys of a shared scope with their values as `state`, and those that were left out, if any, as `damaged`."""
    (content,) = await tiers.perform(lambda: tiers.hot.read([Wanted(place)]))
    state, damaged = readable(content.entries, "")
    return {"state": state, **({"damaged": damaged} if damaged else {})}
