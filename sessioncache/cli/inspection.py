"""How one session is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessioncache.cli.printing import age, cut, exact, is_terminal, json_text, note, plain, print_table, width
from sessioncache.operations.export import told_of
from sessioncache.operations.inspect import Inspection


def told_of_inspection(seen: Inspection) -> dict[str, Any]:
    """As JSON."""
    shared = {} if seen.shared is None else {"shared": seen.shared}
    return {
        **told_of(seen.info),
        "revision": seen.revision,
        "hot": seen.hot,
        "dirty": seen.dirty,
        "refused": seen.refused,
        "lease": {"held": seen.lease is not None, "seconds_left": seen.lease},
        "keys": seen.size.keys,
        "bytes": seen.size.bytes,
        "state": seen.state,
        "namespaces": {name: size._asdict() for name, size in seen.namespaces.items()},
        "complete": seen.complete,
        "damaged": list(seen.damaged),
        **shared,
    }


def print_inspection(seen: Inspection) -> None:
    """For people."""
    for name, value in _facts(seen).items():
        print(f"{name:<12} {plain(value)}" if is_terminal() else f"{name}\t{plain(value)}")
    _print_state("keys", seen.state)
    if seen.namespaces:
        print()
        rows = ((name, size.keys, size.bytes) for name, size in seen.namespaces.items())
        print_table(("namespace", "keys", "bytes"), rows)
    if seen.damaged:
        note(f"damaged, and not shown: {', '.join(map(plain, seen.damaged))} (set them again, or delete them)")
    if not seen.complete:
        note("the database is away: namespaces that only it knows are not shown")
    for scope, state in (seen.shared or {}).items():
        _print_state(f"shared keys of the {scope}", state)


def _facts(seen: Inspection) -> dict[str, object]:
    info = seen.info
    return {
        "session": info.id,
        "org": info.org,
        "app": info.app,
        "user": info.user,
        "title": info.title,
        "created": f"{exact(info.created_at)} ({age(info.created_at)})",
        "updated": f"{exact(info.updated_at)} ({age(info.updated_at)})",
        "messages": info.message_count,
        "tokens": info.token_total,
        "revision": seen.revision,
        "forked from": info.forked_from or "-",
        "lease": "not held" if seen.lease is None else f"held, {seen.lease:.0f} s left",
        "in Redis": "yes" if seen.hot else "no: it was loaded to be shown",
        "in SQL": _durability(seen),
        "size": f"{seen.size.keys} keys, {seen.size.bytes} bytes",
    }


def _durability(seen: Inspection) -> str:
    if seen.refused:
        return f"not all of it: the database refuses {seen.refused} of its entries (see `sessioncache dead list`)"
    return "not all of it: it waits to be flushed" if seen.dirty else "all of it"


def _print_state(title: str, state: Mapping[str, Any]) -> None:
    if not state:
        return
    print(f"\n{title}")
    if not is_terminal():
        for key, value in state.items():
            print(f"{plain(key)}\t{json_text(value)}")
        return
    longest = min(max(map(len, state)), width() // 2)
    for key, value in state.items():
        name = f"  {plain(key):<{longest}}  "
        print(name + cut(json_text(value), max(width() - len(name), 20)))
