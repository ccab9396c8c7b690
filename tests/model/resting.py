"""Comparing worlds: what a process reads that knows nothing yet, and what two worlds differ in."""

from __future__ import annotations

from sessioncache import SessionInfo
from sessioncache.primitives.revisions import revision_time
from tests.model.actors import Agent
from tests.model.observing import APP_SCOPE, NAMESPACES, USER_SCOPE, Sql, session_scope
from tests.model.state import SESSIONS, SPACES, USER, Told, World

Cell = tuple[str, bytes]
"""Scope id and field."""


async def read_all(reader: Agent, world: World) -> World:
    """What a process reads that knows nothing yet."""
    shown = World(dict.fromkeys(SESSIONS))
    for name, life in world.lives.items():
        if life is None:
            shown.lives[name] = None
            assert await reader.cache.delete(USER, name) is False, f"{name} is there"
            continue
        session = await reader.cache.get(USER, name)
        assert dict(session.state) == world.merged(name, session._birth), f"{name} shows {dict(session.state)}"
        assert told_by(session.info) == life.told, f"{name} tells {session.info}, expected {life.told}"
        times = {record.key: record.updated_at for record in await session.records()}
        assert {**times, **{key: revision_time(at) for key, at in life.dates.items()}} == times, f"{name} has {times}"
        for space, values in life.spaces.items():
            items = dict(await session.namespace(space).items())
            assert items == values, f"{space} of {name} shows {items}, expected {values}"
        shown.lives[name] = life
    for which, values in (("user", shown.user), ("app", shown.app)):
        scope = reader.cache.user_scope(USER) if which == "user" else reader.cache.app_scope()
        await scope.refresh()
        values.update(scope.state)
    return shown


def told_by(info: SessionInfo) -> Told:
    """What the model knows of what lists show."""
    return Told(info.title, info.message_count, info.token_total, info.forked_from or "")


def fallen_cells(before: Sql, after: Sql) -> set[Cell]:
    """What SQL has of another revision than before."""
    scopes = before.heads.keys() | after.heads.keys()
    found = {(scope, b"!") for scope in scopes if before.heads.get(scope) != after.heads.get(scope)}
    for scope in before.rows.keys() | after.rows.keys():
        one, other = before.rows.get(scope, {}), after.rows.get(scope, {})
        found |= {(scope, b"=" + key.encode()) for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
    return found


def differences(before: World, after: World) -> set[Cell]:
    """Scope id and field of what is not the same; of another life the head alone."""
    found: set[Cell] = set()
    pairs = [(USER_SCOPE.id, before.user, after.user), (APP_SCOPE.id, before.app, after.app)]
    for name in SESSIONS:
        one, other, scope = before.lives[name], after.lives[name], session_scope(name).id
        if one is not None and other is not None and one.birth == other.birth:
            pairs.append((scope, one.keys, other.keys))
            pairs += [(NAMESPACES[name, space].id, one.spaces[space], other.spaces[space]) for space in SPACES]
            found |= {(scope, b"!")} if one.told != other.told else set()
        elif one is not other:
            found.add((scope, b"!"))
    absent = object()
    for scope, one_side, other_side in pairs:
        keys = {*one_side, *other_side}
        found |= {
            (scope, b"=" + key.encode()) for key in keys if one_side.get(key, absent) != other_side.get(key, absent)
        }
    return found
