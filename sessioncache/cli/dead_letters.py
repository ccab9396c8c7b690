"""The commands for dead letters."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sessioncache.cli.options import installation_of
from sessioncache.cli.printing import exact, is_terminal, note, plain, print_json, print_table
from sessioncache.coordination.connecting import open_tiers, open_urls
from sessioncache.errors import ConfigurationError
from sessioncache.operations.dead_letters import DeadLetter, DeadLetterQueue
from sessioncache.primitives.units import counted
from sessioncache.settings import CacheSettings

_COLUMNS = ("id", "scope", "org", "app", "user", "session", "namespace", "key", "reason", "state", "attempts", "since")
_DELETIONS = """\
SQL never had the keys of {}: that they are deleted is written there, too.  A rule of the database that refuses any row
of them refuses this as well, and the letter comes back: change the rule, or delete the session"""
_NONE = "there is no such dead letter"


async def dead(options: argparse.Namespace) -> int:
    """List, show, retry or drop dead letters."""
    _check_choice(options)
    async with (
        open_urls(options.redis, options.database, options.data_dir, start_worker=True) as urls,
        open_tiers(*urls, CacheSettings(**installation_of(options))) as tiers,
    ):
        box = DeadLetterQueue(tiers)
        letters = await box.list()
        if options.action == "list":
            _print_list(letters, as_json=options.json)
            return 0
        chosen = _choose(letters, options)
        if options.action == "show":
            return _print_one(chosen, as_json=options.json)
        act = box.retry if options.action == "retry" else box.drop
        done = [letter.id for letter in chosen if await act(letter.id)]
    said = {"retry": "retried", "drop": "dropped"}[options.action]
    if options.json:
        print_json({said: done})
    else:
        print(f"{counted(len(done), 'letter')} {said}")
    if box.deletions:
        note(_DELETIONS.format(counted(len(box.deletions), "letter")))
    if not chosen and not options.all:
        note(_NONE)
    return 0 if done or options.all else 1


def _check_choice(options: argparse.Namespace) -> None:
    """Find exactly one dead letter: whoever names one must never lose others."""
    if options.action in ("retry", "drop") and bool(options.letter) == options.all:
        raise ConfigurationError("name the id of a dead letter, or --all, and not both")


def _choose(letters: Sequence[DeadLetter], options: argparse.Namespace) -> list[DeadLetter]:
    if getattr(options, "all", False):
        return list(letters)
    return [letter for letter in letters if letter.id == options.letter]


def _print_list(letters: Sequence[DeadLetter], *, as_json: bool) -> None:
    if as_json:
        print_json({"letters": [_told(letter) for letter in letters]})
        return
    if letters or not is_terminal():
        print_table(_COLUMNS, map(_row, letters))
    if not letters:
        note("there are no dead letters")


def _row(one: DeadLetter) -> Sequence[object]:
    told = (
        one.id,
        one.scope,
        one.org,
        one.app,
        one.user,
        one.session,
        one.namespace,
        "(head)" if one.head else one.key,
    )
    state = "retrying" if one.retrying else "refused"
    return *told, one.reason, state, one.attempts, exact(one.refused_at)


def _print_one(chosen: Sequence[DeadLetter], *, as_json: bool) -> int:
    told = _told(chosen[0]) if chosen else None
    if as_json:
        print_json({"letter": told})
    elif told:
        print("\n".join(f"{name}: {plain(value)}" for name, value in told.items()))
    else:
        note(_NONE)
    return 0 if chosen else 1


def _told(letter: DeadLetter) -> dict[str, Any]:
    return {**asdict(letter), "refused_at": letter.refused_at.isoformat()}
