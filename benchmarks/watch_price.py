"""What watching costs those who write: the same write script with and without its announcement, in alternating rounds.

``python benchmarks/watch_price.py [--json] [--rounds N]``; microseconds of server time a call, as the server counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import redis
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import Spread
from sessioncache.hot.scripts import assemble
from tests.servers import RedisKind, RedisServer

CALLS = 300
WATCHERS = (0, 1, 10)
_TELLS = "  announce(p.base .. 'w:' .. p.member, 'w', revision, p.v or ZERO, p.inc, p.marks)\n"
_WITH = assemble("write")
_WITHOUT = _WITH.replace(_TELLS, "")
_BASE = "bench:{0}:"
_CONTROL, _SESSION = _BASE + "ctl", _BASE + "h:s" + "0" * 32


def _prepare(client: redis.Redis) -> None:
    replid = client.info("replication")["master_replid"]
    client.hset(_CONTROL, mapping={"incarnation": "x" * 12, "replid": replid, "registered": "1", "delay": "1000000"})
    head = [
        *("i", "x" * 12, "n", "0", "z", "0", "f", "-" * 9),
        *(part for name in "rbhuv" for part in (name, "-" * 8 + "1")),
    ]
    client.hset(_SESSION, items=head)


def _arguments() -> list[Any]:
    """One set of one key of a session: see write.lua."""
    limits: list[Any] = [20_000, 1 << 26, 1 << 20, 3_600, "", "", 120_000_000, ""]
    return [2, _CONTROL, _SESSION, *limits, "s", "", "", "0" * 160, 1, "S", "key", '"value"', "*"]


def _microseconds(client: redis.Redis, sha: str) -> float:
    client.config_resetstat()
    pipe = client.pipeline(transaction=False)
    arguments = _arguments()
    for _ in range(CALLS):
        pipe.evalsha(sha, *arguments)
    assert {reply[0] for reply in pipe.execute()} == {b"ok"}
    return float(client.info("commandstats")["cmdstat_evalsha"]["usec_per_call"])


def measure(server: RedisServer, watchers: int, rounds: int) -> tuple[Spread, Spread, float]:
    """Microseconds of one write, and what the announcement takes of them: round by round, and of the best rounds.

    On a busy machine the best rounds say more: they are those that nothing else interrupted.
    """
    with server.client() as client:
        client.flushall()
        _prepare(client)
        listening: list[Any] = [server.client().pubsub() for _ in range(watchers)]  # type: ignore[no-untyped-call]
        for one in listening:
            one.ssubscribe(_BASE + "w:s" + "0" * 32)
        without, with_it = (client.script_load(text) for text in (_WITHOUT, _WITH))
        pairs = [(_microseconds(client, without), _microseconds(client, with_it)) for _ in range(rounds)]
        for one in listening:
            one.close()
    best = min(more for _, more in pairs) - min(less for less, _ in pairs)
    return Spread.of([more for _, more in pairs]), Spread.of([more - less for less, more in pairs]), best


def main() -> None:
    """Measure both engines, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=61, help="alternating rounds (61)")
    options = parser.parse_args()
    assert _WITH != _WITHOUT
    found: dict[str, dict[str, float]] = {}
    table = Table(
        "server",
        "watchers",
        "a write, µs",
        "of it the announcement, µs",
        "in the best rounds",
        title="Price of watching",
    )
    kinds: tuple[RedisKind, ...] = ("valkey", "redis")
    for kind in kinds:
        server = RedisServer(kind)
        try:
            server.start()
            for watchers in WATCHERS:
                write, price, best = measure(server, watchers, options.rounds)
                told = {"write_us": write.middle, "price_us": price.middle, "best_price_us": best}
                found[f"{kind}_{watchers}"] = {name: round(value, 2) for name, value in told.items()}
                table.add_row(kind, str(watchers), write.shown(), price.shown(), f"{best:.2f}")
        finally:
            server.destroy()
    Console(stderr=options.json).print(table)
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
