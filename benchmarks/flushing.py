"""The suite's part of the flush: the worker beside the fastest bare upsert, on PostgreSQL (see `flush`)."""

from __future__ import annotations

from benchmarks import flush
from benchmarks.measuring import Spread, ratios, table
from benchmarks.part import Outcome, Part, Say
from benchmarks.results import figure
from benchmarks.servers import redis_server


async def run(rounds: int, say: Say) -> Outcome:
    """Measure, and name the floor."""
    say("flush: PostgreSQL")
    with redis_server() as server:
        found = await flush.run_one("postgresql", server.url, rounds, with_profile=False)
        say("flush: two workers")
        both = await flush.two_workers(server.url, flush.WORKER_ROUNDS)
    floor = flush.fastest(found)
    ratio = ratios(found["sessioncache"], found[floor])
    rows = [
        (name, Spread.of(rates).shown(0), ratios(found["sessioncache"], rates).shown()) for name, rates in found.items()
    ]
    two = [(name, Spread.of(rates).shown(0), "") for name, rates in both.items()]
    title = f"Rows a second of a flush to PostgreSQL: {flush.SCOPES} sessions of {flush.KEYS} keys, heads counted"
    return Outcome(
        {
            **figure("flush_ratio", ratio),
            **figure("flush_rows_per_s", Spread.of(found["sessioncache"])),
            **figure("flush_two_workers_ratio", ratios(both["two workers"], both["one worker"])),
            "flush_floor": floor,
        },
        [table(title, ("", "median of the rounds (quartiles)", "ours ÷ this"), [*rows, *two])],
    )


PART = Part("flush", ("flush_ratio", "flush_rows_per_s", "flush_two_workers_ratio"), run, flush.ROUNDS)
