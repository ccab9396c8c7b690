"""One replay from beginning to end."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sessioncache.coordination.connecting import open_tiers, open_urls
from sessioncache.primitives.deadline import within
from sessioncache.replay.fleet import Figures, Fleet
from sessioncache.replay.model import Model
from sessioncache.replay.recording import read_recordings
from sessioncache.replay.report import print_table, summarize
from sessioncache.replay.verification import drain, verify
from sessioncache.settings import CacheSettings

_LONG = 600.0


async def replay(
    file: Path,
    redis_url: str | None,
    database_url: str | None,
    data_dir: str,
    settings: CacheSettings,
    *,
    processes: int = 4,
    worker_kills: int = 0,
    repeat: int = 1,
    console: Console,
) -> dict[str, Any]:
    """Replay a file of recorded sessions, and verify; the summary.

    Each run has an app of its own, so that its counters are exact on tiers that hold other data.
    """
    recordings = read_recordings(file)
    app, marker = f"replay-{secrets.token_hex(4)}", f"temp{secrets.token_hex(12)}"
    async with open_urls(redis_url, database_url, data_dir) as urls, open_tiers(*urls, settings) as tiers:
        buckets = range(tiers.settings.buckets)
        before = await tiers.backlog.counters(buckets)
        options = {
            "redis": urls[0],
            "database": urls[1],
            "app": app,
            "marker": marker,
            **_shared_options(file, settings),
        }
        with _progress(console) as progress:
            bar = progress.add_task("sessions", total=len(recordings) * repeat, kills=0)

            def advanced(figures: Figures) -> None:
                progress.update(bar, completed=figures.sessions, kills=figures.worker_kills)

            fleet = Fleet(recordings, options, tiers.backlog, buckets, advanced)
            try:
                figures = await fleet.run(processes, worker_kills, repeat)
                progress.update(bar, description="verifying", total=figures.sessions)
                model = Model.of(recordings, figures.repeats)
                with within(_LONG):
                    await drain(tiers, app, model)
            finally:
                await fleet.stop_workers()
            after = await tiers.backlog.counters(buckets)
            with within(_LONG):
                verdict = await verify(tiers, *urls, app, model, marker)
    summary = summarize(figures, before, after, verdict)
    print_table(console, summary, verdict)
    return summary


def _shared_options(file: Path, settings: CacheSettings) -> dict[str, Any]:
    """What agents and workers have to know of the recordings and the installation."""
    return {"file": str(file), "prefix": settings.prefix, "buckets": settings.buckets}


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}, {task.fields[kills]} workers killed"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
