"""The command ``sessioncache-worker``."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sessioncache.cli.options import installation_of, tier_options

if TYPE_CHECKING:
    from sessioncache.settings import WorkerSettings
    from sessioncache_worker.worker import FlushWorker

_TO_END = 2.0
"""Seconds beyond the grace time after which the process ends in any case, by SIGALRM."""

EPILOG = """\
exit codes:
  0  stopped on SIGTERM or SIGINT with its claims flushed; with --once: nothing is dirty any more
  1  with --once: the database refuses something as data, now or for long, or what Redis holds of a scope is damaged;
     not finished within --grace
  2  wrong usage or configuration (schema not upgraded, tiers that do not belong together, a login refused at the start)
  3  with --once: Redis or the database is out of reach, or another worker holds what it cannot flush

Any number of workers may run at once.  SIGTERM stops claiming, finishes what is claimed and exits; a second signal
ends at once, which loses nothing: another worker takes over within the lease.
"""


def build_parser() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        prog="sessioncache-worker",
        description="Flushes dirty session state from Redis to the SQL database.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tier_options(parser)
    parser.add_argument(
        "--flush-delay", metavar="S", type=float, help="seconds from the first change of a clean scope to its flush (1)"
    )
    parser.add_argument(
        "--lease", metavar="S", type=float, help="seconds until another worker takes over from a silent one (15)"
    )
    parser.add_argument("--batch-rows", metavar="N", type=int, help="most rows of one transaction (1000)")
    parser.add_argument("--grace", metavar="S", type=float, help="most seconds to finish after SIGTERM (25)")
    parser.add_argument(
        "--idle-ttl",
        metavar="S",
        type=float,
        help="seconds that a flushed scope stays in Redis, where no cache said how long (86400)",
    )
    parser.add_argument("--batch-bytes", metavar="B", type=int, help="most bytes of values in a transaction (4194304)")
    parser.add_argument("--max-attempts", metavar="N", type=int, help="refusals that make a dead letter (3)")
    parser.add_argument("--janitor", metavar="S", type=float, help="seconds between two rounds of the janitor (60)")
    parser.add_argument("--sweep", metavar="S", type=float, help="seconds between two looks at all buckets (15)")
    parser.add_argument("--once", action="store_true", help="flush all that is dirty, and exit")
    parser.add_argument("--verbose", action="store_true", help="log more than warnings")
    parser.add_argument("--version", action="store_true", help="print the version, and exit")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    parser = build_parser()
    options = parser.parse_args(argv)
    if options.version:
        from importlib.metadata import version

        print(f"sessioncache-worker {version('sessioncache')}")
        return 0
    logging.basicConfig(
        level=logging.INFO if options.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # We log what it warns of, a cancellation that did not reach an unreachable server for example, once ourselves.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    from sessioncache.durable.errors import LOGIN
    from sessioncache.errors import (
        ConfigurationError,
        DamagedValueError,
        DurableTierUnavailableError,
        HotTierUnavailableError,
        SchemaVersionError,
    )

    try:
        return asyncio.run(_run(options))
    except (ConfigurationError, SchemaVersionError) as error:
        print(f"sessioncache-worker: {error}", file=sys.stderr)
        return 2
    except DamagedValueError as error:
        print(f"sessioncache-worker: {error}", file=sys.stderr)
        return 1
    except (HotTierUnavailableError, DurableTierUnavailableError) as error:
        print(f"sessioncache-worker: {error}", file=sys.stderr)
        return 2 if getattr(error, "_cause", "") == LOGIN else 3


async def _run(options: argparse.Namespace) -> int:
    from sessioncache.coordination.connecting import open_urls
    from sessioncache.durable.migrate import check_schema
    from sessioncache.durable.tier import DurableTier
    from sessioncache.hot.client import HotClient
    from sessioncache_worker.worker import FlushWorker

    settings = _settings(options)
    async with open_urls(options.redis, options.database, options.data_dir) as (redis_url, database_url):
        link = HotClient.from_url(redis_url)
        durable = DurableTier.connect(database_url, lock_timeout=settings.lease / 2)
        worker = FlushWorker.over(link, durable, settings)
        spare_collector()
        try:
            if options.once:
                await check_schema(durable.engine)  # an unreachable database is reported also where nothing is dirty
                await worker.flush_once()
                return 1 if await _has_letters(worker) else 0
            return await _run_until_signal(worker, settings.grace)
        finally:
            await worker.aclose()


async def _has_letters(worker: FlushWorker) -> bool:
    """Whether the database refuses something as data, whether found now or earlier."""
    from sessioncache.primitives.units import counted

    letters = await worker.dead_letters()
    if letters:
        told = f"the database refuses {counted(letters, 'entry')}, not flushed: see `sessioncache dead list`"
        print(f"sessioncache-worker: {told}", file=sys.stderr)
    return letters > 0


def spare_collector() -> None:
    """Let the garbage collector skip what was imported, and run less often: batches make objects, but no garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def _settings(options: argparse.Namespace) -> WorkerSettings:
    from dataclasses import fields

    from sessioncache.settings import WorkerSettings

    given = {f.name: getattr(options, f.name) for f in fields(WorkerSettings)}
    given = {name: value for name, value in given.items() if value is not None}
    return WorkerSettings.of(given | installation_of(options))


async def _run_until_signal(worker: FlushWorker, grace: float) -> int:
    loop = asyncio.get_running_loop()

    def stop(*_: object) -> None:
        # The next signal ends the process at once, whatever it is doing.
        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, signal.SIG_DFL)
        # So does the clock where the grace time did not: the loop is blocked while nobody reads the log's pipe.
        signal.setitimer(signal.ITIMER_REAL, grace + _TO_END)
        loop.call_soon_threadsafe(worker.stop)

    # Not by the loop, which does not run signal handlers while it is blocked.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    await worker.run()
    if not worker.unfinished:
        return 0
    print(f"sessioncache-worker: not finished within {grace:g} s; the rest stays dirty in Redis", file=sys.stderr)
    sys.stderr.flush()
    # The driver may wait for its server for as long as it likes: the process does not wait for it.
    os._exit(1)
