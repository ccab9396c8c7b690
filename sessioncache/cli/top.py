"""The command ``top``: the metrics of the hot tier, again and again."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from sessioncache.cli.views import Show, open_view
from sessioncache.coordination.connecting import open_urls
from sessioncache.errors import HotTierUnavailableError
from sessioncache.hot.client import HotClient
from sessioncache.hot.incarnations import Incarnations
from sessioncache.hot.layout import Layout
from sessioncache.hot.metrics import Metrics, Sample
from sessioncache.primitives.deadline import within
from sessioncache.settings import CacheSettings

_TIMEOUT = 5.0
"""Seconds that one sample may take."""
_HISTORY = 60
"""Samples that are kept: what is drawn, and the lag, are computed over them."""


async def top(options: argparse.Namespace) -> int:
    """Show the metrics every few seconds.  Only Redis is needed; the database may be away."""
    async with _open_vitals(options) as vitals:
        # Before the screen is opened: that Redis cannot be reached at all is reported in the usual way.
        first, quitting = await _read(vitals), asyncio.Event()
        with open_view(json=options.json, quitting=quitting) as show:
            await _until(quitting, _follow(vitals, first, show, options))
    return 0


async def _follow(vitals: Metrics, first: Sample, show: Show, options: argparse.Namespace) -> None:
    pulses, away, shown = [first], "", 0
    clock = asyncio.get_running_loop().time
    due = clock()
    while True:
        show(pulses, away)
        shown += 1
        if shown == options.count:
            return
        due = max(due + options.interval, clock())
        await asyncio.sleep(due - clock())
        try:
            pulses, away = [*pulses[1 - _HISTORY :], await _read(vitals)], ""
        except HotTierUnavailableError as error:  # a fail-over passes
            away = str(error)


async def _read(vitals: Metrics) -> Sample:
    with within(_TIMEOUT):
        return await vitals.read()


async def _until(quitting: asyncio.Event, work: Coroutine[None, None, None]) -> None:
    tasks = [asyncio.create_task(work), asyncio.create_task(quitting.wait())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _open_vitals(options: argparse.Namespace) -> AsyncIterator[Metrics]:
    async with _redis_url(options) as url:
        link = HotClient.from_url(url, connect_timeout=_TIMEOUT)
        try:
            yield Metrics(link, await _layout(link, options.prefix))
        finally:
            await link.aclose()


@asynccontextmanager
async def _redis_url(options: argparse.Namespace) -> AsyncIterator[str]:
    if options.redis:
        yield options.redis
        return
    async with open_urls(None, options.database, options.data_dir, start_worker=True) as (url, _):
        yield url


async def _layout(link: HotClient, prefix: str) -> Layout:
    """As the installation was set up, whatever its number of buckets."""
    settings = CacheSettings(prefix=prefix)
    layout = Layout(settings.prefix, settings.buckets)
    with within(_TIMEOUT):
        record = await Incarnations(link, layout).read_record()
    return Layout(settings.prefix, int(record.get("buckets", settings.buckets)))
