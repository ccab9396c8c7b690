"""Exit codes: what an error means to whoever runs a command, and what to do about it."""

from __future__ import annotations

import argparse

from sessioncache.cli.printing import note, plain, print_json
from sessioncache.durable.errors import LOGIN, NAME, RIGHTS
from sessioncache.errors import (
    ConfigurationError,
    DurableTierUnavailableError,
    HotTierUnavailableError,
    InvalidNameError,
    OutcomeUnknownError,
    SchemaVersionError,
    SessionCacheError,
)
from sessioncache.hot.errors import is_forbidden
from sessioncache.primitives.urls import shown_url

_AWAY = (HotTierUnavailableError, DurableTierUnavailableError, OutcomeUnknownError)
_WRONG_USE = (ConfigurationError, InvalidNameError, SchemaVersionError)
_REDIS_AWAY = """\
  what still works: workers and agents go on as soon as it is back;
    the database can be looked at with `db current` and `db check`
  what to do: see that the server runs and can be reached from here, and that --redis or SESSIONCACHE_REDIS_URL
    names it, with its password; `sessioncache doctor` examines both tiers"""
_FORBIDDEN = """\
  what to do: it runs, and its access list denies the user of --redis something: give it (ACL SETUSER)
    ~sessioncache:* &sessioncache:* +@all -@admin -@dangerous +info, with your --prefix if you have one"""
_RIGHTS = """\
  what to do: grant the role of --database what it lacks.  Agents and workers need SELECT, INSERT, UPDATE and DELETE on
    the tables of sessioncache, and USAGE on their schema; `db upgrade` needs CREATE on the schema, and to own the
    tables.  `sessioncache doctor` names what is missing"""
_LOGIN = """\
  what to do: see that user and password of --database or SESSIONCACHE_DATABASE_URL are right, and that the server lets
    the role in (pg_hba.conf)"""
_NAME = """\
  what to do: create the database or role, or see that --database or SESSIONCACHE_DATABASE_URL names the right ones"""
_BY_CAUSE = {RIGHTS: _RIGHTS, LOGIN: _LOGIN, NAME: _NAME}
_DATABASE_AWAY = """\
  what still works: sessions that are in Redis, read and written; what is written waits there and is flushed later.
    `sessions show` finds those with --app and --user; so does `sessions export` those that never had a namespace
  what to do: see that the server runs and can be reached from here, and that --database or SESSIONCACHE_DATABASE_URL
    names it, with its password; `sessioncache doctor` examines both tiers"""


def explain(error: SessionCacheError, options: argparse.Namespace) -> int:
    """Report to people what is wrong, and with --json to programs too; the exit code."""
    code = exit_code(error)
    told = "\n".join(map(plain, str(error).split("\n")))
    note(f"sessioncache: {told}")
    if code == 3:
        note(_help(error, options))
    if getattr(options, "json", False):
        print_json({"error": str(error), "kind": _kind(error)})
    return code


def exit_code(error: SessionCacheError) -> int:
    """1 for a negative result, 2 for wrong use, 3 for a tier out of reach."""
    if isinstance(error, _AWAY):
        return 3
    return 2 if isinstance(error, _WRONG_USE) else 1


def _kind(error: SessionCacheError) -> str:
    """The error's public name."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == SessionCacheError.__module__)


def _help(error: SessionCacheError, options: argparse.Namespace) -> str:
    """Which tier it is, where it was looked for, what works without it, and what to do."""
    if isinstance(error, DurableTierUnavailableError):
        advice = _BY_CAUSE.get(error._cause, _DATABASE_AWAY)
        return f"  the SQL database: {_address(options.database, options)}\n{advice}"
    advice = _FORBIDDEN if is_forbidden(error) else _REDIS_AWAY
    return f"  Redis or Valkey: {_address(options.redis, options)}\n{advice}"


def _address(url: str | None, options: argparse.Namespace) -> str:
    return plain(shown_url(url) if url else f"embedded, in the folder {options.data_dir}")
