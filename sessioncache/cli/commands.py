"""What the commands do."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from importlib.resources import as_file
from pathlib import Path
from typing import Any

from rich.console import Console
from sqlalchemy.ext.asyncio import AsyncEngine

from sessioncache.cli.options import installation_of
from sessioncache.cli.printing import note, plain, print_json
from sessioncache.coordination.connecting import check_both, open_tiers, open_urls
from sessioncache.coordination.tiers import Tiers
from sessioncache.durable import migrate
from sessioncache.durable.engine import create_engine
from sessioncache.embedded.folder import database_url, prepare_folder
from sessioncache.errors import ConfigurationError, SchemaVersionError
from sessioncache.operations.dead_letters import DeadLetterQueue
from sessioncache.operations.reflush import remark_everything
from sessioncache.primitives.deadline import within
from sessioncache.primitives.units import counted
from sessioncache.replay.processes import ReplayFailedError
from sessioncache.replay.recording import SAMPLE
from sessioncache.replay.run import replay as run_replay
from sessioncache.settings import CacheSettings

_SILENCE = 5.0
"""Seconds without output after which somebody at a terminal would think that nothing happens."""


async def demo(options: argparse.Namespace) -> int:
    """Replay the built-in sample."""
    with as_file(SAMPLE) as path:
        return await _replay(path, options)


async def replay(options: argparse.Namespace) -> int:
    """Replay a file."""
    return await _replay(Path(options.file), options)


async def _replay(path: Path, options: argparse.Namespace) -> int:
    # With --json standard output is for programs; progress and the table are for people, and go beside it.
    console = Console(stderr=options.json)
    try:
        summary = await run_replay(
            path,
            options.redis,
            options.database,
            options.data_dir,
            CacheSettings.of(installation_of(options)),
            processes=options.processes,
            worker_kills=options.worker_kills,
            repeat=options.repeat,
            console=console,
        )
    except ReplayFailedError as error:
        console.print(f"not verified: {plain(error)}", markup=False)
        if options.json:
            print_json({"verified": False, "problem": str(error)})
        return 1
    if options.json:
        print_json(summary)
    else:
        console.print(_told(summary), style="bold green" if summary["verified"] else "bold red")
    return 0 if summary["verified"] else 1


def _told(summary: dict[str, Any]) -> str:
    if summary["verified"]:
        return (
            f"verified: {summary['sessions']} sessions, {summary['writes']} acknowledged writes, "
            f"{summary['worker_kills']} workers killed, nothing lost"
        )
    return f"not verified: {summary['mismatches']} mismatches, {summary['temp_leaks']} temp: leaks"


async def db(options: argparse.Namespace) -> int:
    """Upgrade or show the schema, or flush everything again."""
    if options.action in ("restored", "adopt"):
        return await _restored(options)
    engine = create_engine(_database_of(options))
    try:
        if options.action == "upgrade":
            answer: dict[str, Any] = {"revision": await _upgrade(engine)}
            answer["missing_grants"] = await migrate.missing_grants(engine)
        else:
            answer = {"revision": await migrate.current_revision(engine)}
        answer["needed"] = migrate.head_revision()
        answer["up_to_date"] = answer["revision"] == answer["needed"]
        if options.action == "check":
            await _explain(engine, answer)
    finally:
        await engine.dispose()
    if options.json:
        print_json(answer)
    else:
        print(_schema_told(answer))
        for grant in answer.get("missing_grants", ()):
            print(plain(f"a role that writes state lacks rights on other tables: {grant}"))
    return 0 if answer["up_to_date"] or options.action == "current" else 1


async def _upgrade(engine: AsyncEngine) -> str:
    told = "still at work: others hold locks in the database, or there is much to change"
    notice = asyncio.get_running_loop().call_later(_SILENCE, note, told)
    try:
        return await migrate.upgrade_schema(engine)
    finally:
        notice.cancel()


async def _restored(options: argparse.Namespace) -> int:
    async with (
        open_urls(options.redis, options.database, options.data_dir, start_worker=True) as urls,
        open_tiers(*urls, CacheSettings(**installation_of(options)), adopt=options.action == "adopt") as tiers,
    ):
        marked = await remark_everything(tiers)
    if options.json:
        print_json({"scopes": marked.scopes, "entries": marked.entries})
    else:
        print(f"{counted(marked.entries, 'entry')} of {counted(marked.scopes, 'scope')} marked as dirty, to be flushed")
    return 0


async def _explain(engine: AsyncEngine, answer: dict[str, Any]) -> None:
    try:
        await migrate.check_schema(engine)
    except SchemaVersionError as error:
        answer["up_to_date"] = False
        answer["problem"] = str(error)


def _schema_told(answer: dict[str, Any]) -> str:
    if "problem" in answer:
        return str(answer["problem"])
    state = "up to date" if answer["up_to_date"] else f"{answer['needed']} is needed"
    return f"schema {answer['revision'] or 'absent'} ({state})"


def _database_of(options: argparse.Namespace) -> str:
    if options.database:
        return str(options.database)
    check_both(options.redis, options.database)
    try:
        return database_url(prepare_folder(options.data_dir))
    except OSError as error:
        raise ConfigurationError(f"the data folder cannot be used: {error}") from error


async def flush(options: argparse.Namespace) -> int:
    """Wait until nothing is dirty; what the database refuses is reported, and not waited for."""
    async with (
        open_urls(options.redis, options.database, options.data_dir, start_worker=True) as urls,
        open_tiers(*urls, CacheSettings(**installation_of(options))) as tiers,
    ):
        dirty = await _wait_until_clean(tiers, options.timeout)
        with within(tiers.settings.timeout):
            if not dirty:  # else nothing would show that the database is away
                await migrate.check_schema(tiers.durable.engine)
            letters = len(await DeadLetterQueue(tiers).list())
            has_worker = bool(await tiers.backlog.heartbeats())
    if options.json:
        done = not dirty and not letters
        print_json({"dirty": dirty, "dead_letters": letters, "flushed": done, "worker": has_worker})
    else:
        print("\n".join(_flush_told(dirty, letters, has_worker=has_worker)))
    return 1 if dirty or letters else 0


def _flush_told(dirty: int, letters: int, *, has_worker: bool) -> Iterator[str]:
    yield f"{counted(dirty, 'scope')} still dirty" if dirty else "nothing is dirty"
    if dirty and not has_worker:
        yield "no worker is alive: start `sessioncache-worker`"
    if letters:
        yield f"the database refuses {counted(letters, 'entry')}: see `sessioncache dead list`"


async def _wait_until_clean(tiers: Tiers, seconds: float) -> int:
    """Dirty scopes that are left."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        with within(tiers.settings.timeout):
            dirty = sum((await tiers.backlog.count_dirty(range(tiers.settings.buckets))).values())
        if not dirty or asyncio.get_running_loop().time() > end:
            return dirty
        await asyncio.sleep(0.1)
