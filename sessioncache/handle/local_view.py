"""The local view: what a handle knows of its keys, from what it has read and written.  Pure: no I/O.

A *version* is an incarnation and a scope revision: two versions can be compared only within one incarnation.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping
from typing import Any

from sessioncache.errors import DamagedValueError
from sessioncache.hot.messages import Content, WrittenPart
from sessioncache.primitives.names import KeyScope
from sessioncache.primitives.revisions import DIGITS, ZERO
from sessioncache.primitives.values import decode_entry

_LARGE = 16_384
"""Bytes of values from which on a scope is read only if its version changed, whatever was seen before."""


_MANY_WRITTEN = 64
"""Written keys that are always remembered while any call is under way."""


class State(Mapping[str, Any]):
    """A read-only view of what a handle last read and wrote; every access decodes a value of its own.

    It may show what the handle writes from then on.  What is read anew is seen in a view that is asked for after that.

    Raises:
        DamagedValueError: What is stored of the key is no JSON text.
    """

    __slots__ = ("_session_id", "_values")

    def __init__(self, values: dict[str, bytes], session_id: str = "") -> None:
        self._values = values
        self._session_id = session_id

    def __getitem__(self, key: str) -> Any:
        try:
            return decode_entry(self._values[key])
        except DamagedValueError:  # raised again, with names
            return decode_entry(self._values[key], key, self._session_id)

    def keys(self) -> KeysView[str]:
        """The keys as they are now."""
        # A copy, as in `__iter__`: a call of the handle may change the view while the caller goes through it.
        return dict.fromkeys(self._values).keys()

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def frozen(self) -> State:
        """A copy that later reads and writes of the handle do not change."""
        return State(self._values.copy(), self._session_id)

    def __repr__(self) -> str:
        return f"<State of {len(self._values)} keys>"


class _Layer:
    """The keys of one scope: a reading, decoded when it is first used, and what was recorded since."""

    __slots__ = ("_content", "_late", "_prefix", "_values", "dead", "held", "is_large", "is_steady", "revision", "told")

    def __init__(self, prefix: str, content: Content | None = None, version: bytes = b"") -> None:
        self._prefix, self._content = prefix, content
        self._values: dict[str, bytes] = {}
        self._late: dict[str, bytes | None] = {}
        self.held = version
        """The version of the scope that all of this is as new as; empty where that is not known."""
        self.told = 0
        """When that version was recorded, as a count of changes."""
        self.dead = b""
        """Entries of the reading below this revision were cleared since."""
        self.is_steady = False
        """Whether the last reading found the scope unchanged."""
        self.is_large = False
        """Whether reading it again costs more than asking whether it changed."""
        self.revision = ZERO
        """The revision of the scope's values that all of this stands for."""
        if content is not None:
            self.revision, self.is_large = content.revision, content.size > _LARGE

    @property
    def values(self) -> dict[str, bytes]:
        """Key -> nine digits of revision and the text."""
        if self._content is not None:
            found, self._content = self._content.named(self._prefix), None
            # An entry begins with its revision, so that it compares with one directly.
            self._values = {key: value for key, value in found.items() if value >= self.dead} if self.dead else found
            for key, value in self._late.items():
                self.put(key, value)
            self._late = {}
        return self._values

    def put(self, key: str, value: bytes | None) -> None:
        """A key has another value, or none."""
        if self._content is not None:
            self._late[key] = value
        elif value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value

    def copy(self) -> _Layer:
        other = _Layer(self._prefix, version=self.held)
        other._values, other.told, other.revision = self.values.copy(), self.told, self.revision
        other.is_steady, other.is_large = self.is_steady, self.is_large
        return other


class LocalView:
    """Keys with nine digits of revision and the text, as the handle's calls reported them, scope by scope.

    Several calls of one handle may be under way at once, and answer in another order than Redis worked on them: the
    result of a call that began before another one wrote the key counts only if it is newer.
    """

    __slots__ = (
        "_cleared",
        "_count",
        "_ended",
        "_last_write",
        "_layers",
        "_merged",
        "_under_way",
        "_written",
        "changes",
    )

    def __init__(self) -> None:
        self._layers: dict[KeyScope, _Layer] = {}
        self._merged: dict[str, bytes] | None = {}
        self._written: dict[str, tuple[int, bytes, KeyScope]] = {}
        """Per key, what calls recorded since the oldest call under way began: a write its revision, a reading its
        version."""
        self._ended = 0
        """Calls that have ended since `_written` was last cleaned up."""
        self._cleared: dict[KeyScope, tuple[bytes, int]] = {}
        """The version to which the handle cleared a scope, and when that was recorded."""
        self._under_way: list[int] = []
        """When the calls began that have not ended."""
        self._count = self._last_write = 0
        self.changes = 0
        """Grows with every change of the keys, before the change can be seen."""

    @property
    def values(self) -> dict[str, bytes]:
        """All keys, whatever their scope."""
        if self._merged is None:
            self._merged = {}
            for layer in self._layers.values():
                self._merged.update(layer.values)
        return self._merged

    def keys_of(self, scope: KeyScope) -> list[str]:
        """The keys of one scope."""
        return list(self._layer(scope).values)

    def begin(self) -> int:
        """A call begins: the token to pass with its results, and to `end`."""
        self._under_way.append(self._count)
        return self._count

    def end(self, began: int) -> None:
        """A call has ended, with whatever outcome: writes that no call under way has to be compared with are
        forgotten."""
        self._under_way.remove(began)
        if not self._under_way:
            self._written.clear()
            return
        self._ended += 1
        if _MANY_WRITTEN < len(self._written) < 2 * self._ended:  # else it costs more than the calls did
            oldest = min(self._under_way)
            self._written = {key: one for key, one in self._written.items() if one[0] > oldest}
            self._ended = 0

    def versions(self) -> dict[KeyScope, bytes]:
        """The scopes with the versions that are held, where it pays to ask whether they are still the same."""
        # Sending versions costs a little: where no scope is likely to be found unchanged, none is sent.
        for layer in self._layers.values():
            if (layer.is_steady or layer.is_large) and layer.held:
                return {scope: layer.held for scope, layer in self._layers.items()}
        return {}

    def write(self, began: int, scope: KeyScope, key: str, revision: bytes, text: bytes | None) -> None:
        """A write set a key, or deleted it (None)."""
        layer = self._layer(scope)
        is_known = layer.told > began and revision <= layer.held[-DIGITS:]  # a later reading has it already
        if is_known or self._is_overtaken(began, key, revision):
            return
        if self._cleared and revision < self._cleared_since(scope, began):
            return
        self._count = self._last_write = self._count + 1
        self._written[key] = (self._count, revision, scope)
        self._put(layer, key, None if text is None else revision + text)

    def clear(self, began: int, scope: KeyScope, done: WrittenPart, revision: bytes) -> None:
        """A write cleared a scope: what calls under way report of it from before is dead, whatever the key."""
        layer, version = self._layer(scope), done.incarnation + revision
        # Key by key, as deletes are: what is newer than the clear stays.
        for key in list(layer.values):
            self.write(began, scope, key, revision, None)
        if not _is_older(version, self._cleared.get(scope, (b"", 0))[0]):
            self._count += 1
            self._cleared[scope] = version, self._count

    def revision(self, scope: KeyScope) -> bytes:
        """The revision of a scope's values that its keys stand for."""
        layer = self._layers.get(scope)  # makes none: other threads ask, too
        return ZERO if layer is None else layer.revision

    def born(self, scope: KeyScope, revision: bytes) -> None:
        """A scope was created by a write that is recorded next."""
        self._layer(scope).revision = revision

    def advance(self, scope: KeyScope, done: WrittenPart, revision: bytes) -> None:
        """A write through this handle, recorded key by key before, took a scope to another version.

        Where others had written in between, what is known stands for no more than before.
        """
        layer = self._layer(scope)
        is_next = layer.held and layer.held == done.incarnation + done.before
        # The keys that others wrote in between are not known here: no version stands for what is held.
        layer.held = done.incarnation + revision if is_next else b""
        # R5: as `if_revision` it must not vouch for values that the caller has never seen.
        if layer.revision == done.values_before:
            layer.revision = revision
        self._count = layer.told = self._count + 1

    def read(self, began: int, scope: KeyScope, key: str, value: bytes | None, version: bytes) -> None:
        """A reading of a version of a scope found a key, or did not (None)."""
        layer = self._layer(scope)
        if _is_outdated(layer, began, version):
            return
        if value is not None and value < self._cleared_since(scope, began, version[:-DIGITS]):
            value = None
        revision = version[-DIGITS:]
        if not self._is_overtaken(began, key, revision):
            self._put(layer, key, value)
            # A call that began earlier may still bring what was there before: it is compared with this.
            if len(self._under_way) > 1:
                self._count = self._last_write = self._count + 1
                self._written[key] = (self._count, version, scope)

    def replace(self, began: int, scope: KeyScope, prefix: str, content: Content) -> bool:
        """A reading found these keys of a scope and no others; False if something newer was known already."""
        before, version = self._layers.get(scope), content.version
        if before is not None and _is_outdated(before, began, version):
            return False
        layer = _Layer(prefix, content, version)
        if before is not None:
            layer.is_steady = before.held == version != b""
            if self._cleared:
                layer.dead = self._cleared_since(scope, began, content.incarnation)
            if self._last_write > began:
                self._keep_newer(began, scope, before, layer)
        self._count = layer.told = self._count + 1
        self.changes += 1
        self._layers[scope], self._merged = layer, None
        return True

    def confirm(self, scope: KeyScope) -> None:
        """A reading found the scope at the version that is held."""
        self._layer(scope).is_steady = True

    def _keep_newer(self, began: int, scope: KeyScope, before: _Layer, layer: _Layer) -> None:
        held = layer.held
        for key, (count, newest, where) in self._written.items():
            # A write is recorded by its revision alone; a reading counts only within one incarnation.
            is_newer = held[-DIGITS:] < newest[-DIGITS:] and newest[:-DIGITS] in (b"", held[:-DIGITS])
            if where is scope and count > began and is_newer:
                layer.put(key, before.values.get(key))

    def _put(self, layer: _Layer, key: str, value: bytes | None) -> None:
        self.changes += 1
        layer.put(key, value)
        if self._merged is None:
            return
        if value is None:
            self._merged.pop(key, None)
        else:
            self._merged[key] = value

    def _layer(self, scope: KeyScope) -> _Layer:
        layer = self._layers.get(scope)
        if layer is None:
            layer = self._layers[scope] = _Layer("")
        return layer

    def _is_overtaken(self, began: int, key: str, revision: bytes) -> bool:
        """Whether a newer write of the key, or a newer reading, was recorded after a call had begun."""
        count, newest, _ = self._written.get(key, (0, b"", None))
        return count > began and newest[-DIGITS:] > revision

    def _cleared_since(self, scope: KeyScope, began: int, incarnation: bytes | None = None) -> bytes:
        """The revision of a clear recorded after a call had begun; empty if there was none, or in another
        incarnation."""
        cleared, told = self._cleared.get(scope, (b"", 0))
        if told <= began or incarnation not in (None, cleared[:-DIGITS]):
            return b""
        return cleared[-DIGITS:]

    def copy(self) -> LocalView:
        """A copy that is independent from now on; none of the calls under way belongs to it."""
        other = LocalView()
        other._layers = {scope: layer.copy() for scope, layer in self._layers.items()}
        # `_merged` is made anew: the two would change one dict.
        other._merged, other._cleared = None, self._cleared.copy()
        other._count, other._last_write = self._count, self._last_write
        return other


def _is_outdated(layer: _Layer, began: int, version: bytes) -> bool:
    """Whether a newer version than the one that a call found was recorded after the call had begun."""
    return layer.told > began and _is_older(version, layer.held)


def _is_older(version: bytes, held: bytes) -> bool:
    """Whether both are of one incarnation, and the first is the older one."""
    return bool(version) and version[:-DIGITS] == held[:-DIGITS] and version < held
