"""The commands for sessions."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
from collections.abc import Sequence
from typing import Any

from sessioncache.cache import SessionCache
from sessioncache.cli.files import write_file
from sessioncache.cli.inspection import print_inspection, told_of_inspection
from sessioncache.cli.printing import age, exact, is_terminal, note, plain, print_json, print_table
from sessioncache.connecting import open_tiers, open_urls
from sessioncache.errors import (
    AmbiguousSessionError,
    ConfigurationError,
    DeadLetterError,
    FlushTimeoutError,
    SessionNotFoundError,
    WriteLostError,
)
from sessioncache.exporting import told_of
from sessioncache.hot.calls import Gone
from sessioncache.info import SessionInfo
from sessioncache.inspecting import inspect_session
from sessioncache.listing import find
from sessioncache.session import SessionPlaces
from sessioncache.settings import CacheSettings
from sessioncache.tiers import Tiers

_PAGE, _LONG_PAGE = 50, 500
_COLUMNS = ("id", "app", "user", "title", "updated", "messages", "tokens")


async def sessions(options: argparse.Namespace) -> int:
    """List, show, delete, fork or export."""
    act = {"list": _list, "show": _show, "delete": _delete, "fork": _fork, "export": _export}[options.action]
    async with (
        open_urls(options.redis, options.database, options.data_dir, start_worker=True) as urls,
        open_tiers(*urls, CacheSettings()) as tiers,
    ):
        await act(tiers, options)
    return 0


# ---- list


async def _list(tiers: Tiers, options: argparse.Namespace) -> None:
    if options.all_apps and options.app is not None:
        raise ConfigurationError("--all-apps and --app exclude each other")
    cache = SessionCache._over(tiers, options.app or "", options.org)
    found: list[SessionInfo] = []
    cursor, shown = options.cursor, 0
    while True:
        page = await cache.list(
            options.user,
            all_apps=options.app is None,
            limit=options.limit or (_LONG_PAGE if options.all else _PAGE),
            cursor=cursor,
            order=options.order,
        )
        if options.json:
            found += page.items
        else:
            _print_page(page.items, header=shown == 0)
        shown, cursor = shown + len(page.items), page.cursor
        if cursor is None or not options.all:
            break
        if is_terminal():
            note(f"{shown:,} sessions so far")
    if options.json:
        print_json({"sessions": [told_of(info) for info in found], "cursor": cursor})
    else:
        _print_end(shown, cursor, options)


def _print_page(items: Sequence[SessionInfo], *, header: bool) -> None:
    if items or not is_terminal():
        print_table(_COLUMNS, map(_row, items), header=header)


def _row(info: SessionInfo) -> Sequence[object]:
    updated = exact(info.updated_at)
    shown = f"{age(info.updated_at)}, {updated}" if is_terminal() else updated
    return info.id, info.app, info.user, info.title, shown, info.message_count, info.token_total


def _print_end(shown: int, cursor: str | None, options: argparse.Namespace) -> None:
    if cursor is not None:
        note(f"there are more: --cursor {cursor}, or --all")
    elif not shown:
        whose = f"org {options.org!r}" if options.app is None else f"app {options.app!r} of org {options.org!r}"
        note(f"there are no sessions of {whose}" + (f" and user {options.user!r}" if options.user is not None else ""))


# ---- one session


async def _show(tiers: Tiers, options: argparse.Namespace) -> None:
    app, user = await _owner(tiers, options)
    try:
        places = SessionPlaces.of(tiers, options.org, app, user, options.session)
        inspection = await inspect_session(tiers, places, shared=options.shared)
    except Gone:
        raise _none(options) from None
    if options.json:
        print_json({"session": told_of_inspection(inspection)})
    else:
        print_inspection(inspection)


async def _delete(tiers: Tiers, options: argparse.Namespace) -> None:
    app, user = await _owner(tiers, options)
    cache = SessionCache._over(tiers, app, options.org)
    if not await cache.delete(user, options.session):
        raise _none(options)
    durable = await _wait(cache, options)
    if options.json:
        print_json({"deleted": _identity(options, app, user), "durable": durable})
    else:
        print(f"deleted the session {_named(options.session, app, user)}{_durably(durable)}")


async def _fork(tiers: Tiers, options: argparse.Namespace) -> None:
    app, user = await _owner(tiers, options)
    cache = SessionCache._over(tiers, app, options.org)
    child = await cache.fork(user, options.session, new_id=options.new_id)
    durable = await _wait(cache, options)
    if options.json:
        print_json({"forked": told_of(child.info), "durable": durable})
    else:
        print(f"forked {plain(options.session)} into the session {_named(child.id, app, user)}{_durably(durable)}")


async def _wait(cache: SessionCache, options: argparse.Namespace) -> bool | None:
    """Whether SQL has it; None where nobody wants to know."""
    if options.wait is None:
        return None
    try:
        await cache.flush(options.wait)
    except (DeadLetterError, FlushTimeoutError, WriteLostError) as error:
        raise type(error)(f"done in Redis, and not known to be durable: {error}") from error
    return True


async def _export(tiers: Tiers, options: argparse.Namespace) -> None:
    app, user = await _owner(tiers, options)
    told = await SessionCache._over(tiers, app, options.org).export_session(user, options.session)
    if options.output == "-":
        print(json.dumps(told, indent=None if options.json else 2))
        return
    text = json.dumps(told, indent=2) + "\n"
    await asyncio.to_thread(write_file, options.output, text.encode())
    if options.json:
        print_json({"exported": _identity(options, app, user), "file": options.output})
    else:
        print(f"exported the session {_named(options.session, app, user)} to {plain(options.output)}")


async def _owner(tiers: Tiers, options: argparse.Namespace) -> tuple[str, str]:
    """App and user of the only session that is meant; SessionNotFoundError, AmbiguousSessionError."""
    if options.app is not None and options.user is not None:
        return options.app, options.user
    found = await find(tiers, options.org, options.app, options.session)
    meant = [(one.app, one.user) for one in found if options.user in (None, one.user)]
    if not meant:
        raise _none(options)
    if len(meant) > 1:
        choices = "\n".join(f"  --app {_word(app)} --user {_word(user)}" for app, user in meant)
        raise AmbiguousSessionError(
            f"there are {len(meant)} sessions {options.session!r}, say which:\n{choices}", session_id=options.session
        )
    return meant[0]


def _none(options: argparse.Namespace) -> SessionNotFoundError:
    whose = f"of the org {options.org!r}"
    if options.app is not None:
        whose = f"of the app {options.app!r} {whose}"
    if options.user is not None:
        whose = f"of the user {options.user!r} {whose}"
    return SessionNotFoundError(f"there is no session {options.session!r} {whose}", session_id=options.session)


def _identity(options: argparse.Namespace, app: str, user: str) -> dict[str, Any]:
    return {"org": options.org, "app": app, "user": user, "id": options.session}


def _word(name: str) -> str:
    return plain(shlex.quote(name))


def _named(session_id: str, app: str, user: str) -> str:
    return f"{plain(session_id)} of the user {user!r} in the app {app!r}"


def _durably(durable: bool | None) -> str:
    return ", and SQL has it" if durable else "; a worker brings it to SQL"
