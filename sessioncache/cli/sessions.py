"""The commands for sessions."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sessioncache.cache import SessionCache
from sessioncache.cli.files import write_file
from sessioncache.cli.inspection import print_inspection, told_of_inspection
from sessioncache.cli.options import installation_of
from sessioncache.cli.printing import age, exact, is_terminal, note, plain, print_json, print_table, shell_word, width
from sessioncache.coordination.connecting import open_tiers, open_urls
from sessioncache.coordination.places import SessionPlaces
from sessioncache.coordination.tiers import Tiers
from sessioncache.errors import (
    AmbiguousSessionError,
    ConfigurationError,
    DeadLetterError,
    FlushTimeoutError,
    SessionNotFoundError,
    WriteLostError,
)
from sessioncache.hot.signals import Gone
from sessioncache.operations.export import told_of
from sessioncache.operations.inspect import inspect_session
from sessioncache.operations.list import find
from sessioncache.primitives.session_info import SessionInfo
from sessioncache.settings import CacheSettings

_PAGE, _LONG_PAGE = 50, 500
_WIDE = 110
"""Columns of a terminal that has room for two times in a row."""
_COLUMNS = ("id", "app", "user", "title", "updated", "messages", "tokens")


async def sessions(options: argparse.Namespace) -> int:
    """List, show, delete, fork or export."""
    act = {"list": _list, "show": _show, "delete": _delete, "fork": _fork, "export": _export}[options.action]
    async with (
        open_urls(options.redis, options.database, options.data_dir, start_worker=True) as urls,
        open_tiers(*urls, CacheSettings(**installation_of(options))) as tiers,
    ):
        return await act(tiers, options)


# ---- list


async def _list(tiers: Tiers, options: argparse.Namespace) -> int:
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
    return 0


def _print_page(items: Sequence[SessionInfo], *, header: bool) -> None:
    if items or not is_terminal():
        print_table(_COLUMNS, map(_row, items), header=header)


def _row(info: SessionInfo) -> Sequence[object]:
    times = _updated(info.updated_at)
    return info.id, info.app, info.user, info.title, times, info.message_count, info.token_total


def _updated(moment: datetime) -> str:
    """On a terminal the age, and the exact time where there is room."""
    if not is_terminal():
        return exact(moment)
    return age(moment) if width() < _WIDE else f"{age(moment)}, {exact(moment)}"


def _print_end(shown: int, cursor: str | None, options: argparse.Namespace) -> None:
    if cursor is not None:
        note(f"there are more: --cursor {cursor}, or --all")
    elif not shown:
        whose = f"org {options.org!r}" if options.app is None else f"app {options.app!r} of org {options.org!r}"
        note(f"there are no sessions of {whose}" + (f" and user {options.user!r}" if options.user is not None else ""))


# ---- one session


async def _show(tiers: Tiers, options: argparse.Namespace) -> int:
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
    return 0


async def _delete(tiers: Tiers, options: argparse.Namespace) -> int:
    app, user = await _owner(tiers, options)
    cache = SessionCache._over(tiers, app, options.org)
    if not await cache.delete(user, options.session):
        raise _none(options)
    deleted = {"deleted": _identity(options, app, user)}
    return await _end(cache, options, deleted, f"deleted the session {_named(options.session, app, user)}")


async def _fork(tiers: Tiers, options: argparse.Namespace) -> int:
    app, user = await _owner(tiers, options)
    cache = SessionCache._over(tiers, app, options.org)
    child = await cache.fork(user, options.session, new_id=options.new_id)
    said = f"forked {plain(options.session)} into the session {_named(child.id, app, user)}"
    return await _end(cache, options, {"forked": told_of(child.info)}, said)


async def _end(cache: SessionCache, options: argparse.Namespace, done: dict[str, Any], said: str) -> int:
    """Report what was done, and whether SQL has it where that is asked for: 1 if it has not."""
    durable, problem = None, ""
    if options.wait is not None:
        try:
            await cache.flush(options.wait)
        except (DeadLetterError, FlushTimeoutError, WriteLostError) as error:
            problem = str(error)
        durable = not problem
    if options.json:
        print_json({**done, "durable": durable, **({"problem": problem} if problem else {})})
    else:
        print(said + (", and SQL has it" if durable else "; a worker brings it to SQL" if durable is None else ""))
    if problem:
        note(f"SQL does not have it: {plain(problem)}")
    return 1 if problem else 0


async def _export(tiers: Tiers, options: argparse.Namespace) -> int:
    app, user = await _owner(tiers, options)
    told = await SessionCache._over(tiers, app, options.org).export_session(user, options.session)
    for one in told.get("damaged", ()):
        where = f" of the namespace {plain(one['namespace'])}" if one["namespace"] else ""
        note(f"damaged, and left out: {plain(one['key'])}{where}")
    text = json.dumps(told, indent=None if options.json and options.output == "-" else 2) + "\n"
    if options.output == "-":
        print(text, end="")
        return 0
    await asyncio.to_thread(write_file, options.output, text.encode())
    if options.json:
        print_json({"exported": _identity(options, app, user), "file": options.output})
    else:
        print(f"exported the session {_named(options.session, app, user)} to {plain(options.output)}")
    return 0


async def _owner(tiers: Tiers, options: argparse.Namespace) -> tuple[str, str]:
    """App and user of the only session that is meant; SessionNotFoundError, AmbiguousSessionError."""
    if options.app is not None and options.user is not None:
        return options.app, options.user
    found = await find(tiers, options.org, options.app, options.session)
    meant = [(one.app, one.user) for one in found if options.user in (None, one.user)]
    if not meant:
        raise _none(options)
    if len(meant) > 1:
        choices = "\n".join(f"  --app={shell_word(app)} --user={shell_word(user)}" for app, user in meant)
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


def _named(session_id: str, app: str, user: str) -> str:
    return f"{plain(session_id)} of the user {user!r} in the app {app!r}"
