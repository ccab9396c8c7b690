"""The commands for dead letters."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from sessioncache.connecting import open_tiers, open_urls
from sessioncache.errors import ConfigurationError
from sessioncache.letters import DeadLetter, LetterBox
from sessioncache.settings import CacheSettings


async def dead(options: argparse.Namespace) -> int:
    """List, show, retry or drop dead letters."""
    async with (
        open_urls(options.redis, options.database, options.data_dir, start_worker=True) as urls,
        open_tiers(*urls, CacheSettings()) as tiers,
    ):
        box = LetterBox(tiers)
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
    print(json.dumps({said: done}) if options.json else f"{len(done)} letters {said}")
    return 0 if done or options.all else 1


def _choose(letters: Sequence[DeadLetter], options: argparse.Namespace) -> list[DeadLetter]:
    if getattr(options, "all", False):
        return list(letters)
    if not options.letter:
        raise ConfigurationError("name the id of a letter, or --all")
    return [letter for letter in letters if letter.id == options.letter]


def _print_list(letters: Sequence[DeadLetter], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"letters": [_told(letter) for letter in letters]}))
        return
    if not letters:
        print("there are no dead letters")
        return
    table = Table("id", "scope", "app", "user", "session", "namespace", "key", "reason", "attempts", "since")
    for one in letters:
        since = one.refused_at.isoformat(" ", "seconds")
        table.add_row(
            one.id,
            one.scope,
            one.app,
            one.user,
            one.session,
            one.namespace,
            one.key,
            one.reason,
            str(one.attempts),
            since,
        )
    Console().print(table)


def _print_one(chosen: Sequence[DeadLetter], *, as_json: bool) -> int:
    if not chosen:
        print(json.dumps({"letter": None}) if as_json else "there is no such letter")
        return 1
    told = _told(chosen[0])
    print(json.dumps({"letter": told}) if as_json else "\n".join(f"{name}: {value}" for name, value in told.items()))
    return 0


def _told(letter: DeadLetter) -> dict[str, Any]:
    return {**asdict(letter), "refused_at": letter.refused_at.isoformat()}
