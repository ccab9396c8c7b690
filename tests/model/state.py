"""The model: what both tiers together say, as plain Python, and what each operation makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sessioncache import SessionExistsError, SessionNotFoundError, TypeMismatchError

USER = "u"
SESSIONS = ("s1", "s2")
SPACES = ("n1", "n2")
"""Namespaces of each session."""
PREFIXES = ("", "user:", "app:", "temp:")

NOW = 2**52
"""Later than all times that are given as past, and earlier than those given as future: when writes take place."""

Values = dict[str, Any]
Outcome = tuple["World", Any]
"""The world after an operation, and what the operation returns."""


class Told(NamedTuple):
    """What lists tell of a session."""

    title: str = ""
    messages: int = 0
    tokens: int = 0
    forked_from: str = ""


@dataclass
class Life:
    """One life of one session."""

    birth: bytes
    keys: Values = field(default_factory=dict)
    temp: Values = field(default_factory=dict)
    spaces: dict[str, Values] = field(default_factory=lambda: {name: {} for name in SPACES})
    told: Told = field(default_factory=lambda: Told())
    updated: int = field(default=0, compare=False)
    """When it was last in use, as the tiers say: it must never go back."""
    dates: dict[str, int] = field(default_factory=dict)
    """The times that were given with keys, in microseconds."""


@dataclass
class World:
    """Everything that can be read: of each session its present life, and the shared scopes."""

    lives: dict[str, Life | None]
    user: Values = field(default_factory=dict)
    app: Values = field(default_factory=dict)

    def copy(self) -> World:
        """A world that shares nothing with this one."""
        return deepcopy(self)

    def life(self, name: str, birth: bytes) -> Life:
        """The life that a handle belongs to; SessionNotFoundError where it is over."""
        life = self.lives[name]
        if life is None or life.birth != birth:
            raise SessionNotFoundError(name)
        return life

    def values(self, name: str, birth: bytes, prefix: str) -> Values:
        """The keys that a handle sees under a prefix."""
        life = self.life(name, birth)
        return {"": life.keys, "temp:": life.temp, "user:": self.user, "app:": self.app}[prefix]

    def merged(self, name: str, birth: bytes) -> Values:
        """What a session's handle shows as its state."""
        return {prefix + key: value for prefix in PREFIXES for key, value in self.values(name, birth, prefix).items()}

    def without_temp(self) -> World:
        """What may outlive Redis."""
        world = self.copy()
        for life in filter(None, world.lives.values()):
            life.temp = {}
        return world


def split(key: str) -> tuple[str, str]:
    """The prefix of a key and its name."""
    prefix = next((p for p in PREFIXES if p and key.startswith(p)), "")
    return prefix, key[len(prefix) :]


@dataclass(frozen=True)
class Change:
    """What a call does to keys; `kind` is the name of the method."""

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)
    delete: tuple[str, ...] = ()
    space: str = ""
    """The namespace whose keys they are: prefixes mean nothing there."""

    def on(self, scope: Callable[[str], Values]) -> Any:
        """Do it to the dicts that `scope` gives for a prefix, and return what the call returns (None: a revision)."""
        if self.kind == "update":
            return self._update(scope)
        if self.kind == "clear":
            return _clear(scope(""))
        ((full, argument),) = self.values.items()
        prefix, key = self._split(full)
        target = scope(prefix)
        if self.kind == "delete":
            return target.pop(key, _MISSING) is not _MISSING
        return _increment(target, key, argument) if self.kind == "increment" else _append(target, key, argument)

    def _update(self, scope: Callable[[str], Values]) -> None:
        for full, value in self.values.items():
            prefix, key = self._split(full)
            scope(prefix)[key] = deepcopy(value)
        for full in self.delete:
            prefix, key = self._split(full)
            scope(prefix).pop(key, None)

    def _split(self, full: str) -> tuple[str, str]:
        return ("", full) if self.space else split(full)


_MISSING = object()


def _clear(target: Values) -> int:
    count = len(target)
    target.clear()
    return count


def _increment(target: Values, key: str, by: int) -> int:
    value = target.get(key, 0)
    if type(value) is not int:
        raise TypeMismatchError(key)
    target[key] = value + by
    return value + by


def _append(target: Values, key: str, item: Any) -> int:
    value = target.get(key, [])
    if type(value) is not list:
        raise TypeMismatchError(key)
    target[key] = [*value, item]
    return len(value) + 1


def changed(world: World, name: str, birth: bytes, change: Change) -> Outcome:
    """A change through a session's handle."""
    world = world.copy()
    life = world.life(name, birth)
    if not change.space:
        _forget_dates(life, change)
    result = change.on(lambda prefix: life.spaces[change.space] if change.space else world.values(name, birth, prefix))
    return world, result


def _forget_dates(life: Life, change: Change) -> None:
    """What is written without a time is of none."""
    gone = {*life.dates} if change.kind == "clear" else {*change.values, *change.delete}
    for key in gone:
        life.dates.pop(key, None)


def upserted(world: World, name: str, birth: bytes, key: str, value: Any, at: int) -> Outcome:
    """A record of a given time, given through a session's handle."""
    world = world.copy()
    life = world.life(name, birth)
    if key in life.keys and at < life.dates.get(key, NOW):
        return world, False
    life.keys[key], life.dates[key] = value, at
    return world, True


def changed_shared(world: World, which: str, change: Change) -> Outcome:
    """A change through the handle of a shared scope."""
    world = world.copy()
    values = world.user if which == "user" else world.app
    return world, change.on(lambda _: values)


def touched(world: World, name: str, birth: bytes | None, told: Callable[[Told], Told]) -> Outcome:
    """A touch or a rename of a session, in whatever life where `birth` is None; returns what is told then."""
    present = world.lives[name]
    world.life(name, birth if birth is not None else present.birth if present else b"")
    world = world.copy()
    life = world.lives[name]
    assert life is not None
    life.told = told(life.told)
    return world, life.told


def forked(world: World, name: str, birth: bytes | None, child: str, child_birth: bytes) -> Outcome:
    """A fork of a session, in whatever life where `birth` is None: all that is private to it but `temp:` keys."""
    present = world.lives[name]
    parent = world.life(name, birth if birth is not None else present.birth if present else b"")
    if world.lives[child] is not None:
        raise SessionExistsError(child)
    world = world.copy()
    told = Told(parent.told.title, forked_from=name)
    life = Life(child_birth, deepcopy(parent.keys), spaces=deepcopy(parent.spaces), told=told, dates=dict(parent.dates))
    world.lives[child] = life
    return world, None


def created(world: World, name: str, state: Values, birth: bytes) -> Outcome:
    """A create."""
    if world.lives[name] is not None:
        raise SessionExistsError(name)
    world = world.copy()
    world.lives[name] = Life(birth)
    Change("update", state).on(lambda prefix: world.values(name, birth, prefix))
    return world, None


def deleted(world: World, name: str) -> Outcome:
    """A delete of whatever life."""
    world, existed = world.copy(), world.lives[name] is not None
    world.lives[name] = None
    return world, existed
