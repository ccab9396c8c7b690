"""What the check of the incarnation costs each call (R17): the same script with and without it, in alternating rounds.

``python benchmarks/incarnation_check.py [--json] [--rounds N]``
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import redis
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import Spread
from sessioncache.hot.scripts import assemble
from tests.servers import RedisServer

CALLS = 5_000
_PRELUDE = assemble("turn").split("local taken =")[0]
_WITHOUT = _PRELUDE + "return 1"
_WITH = _PRELUDE + "if not enter(KEYS[1]) then return 0 end return 1"
_CONTROL = "bench:{0}:ctl"


def measure(server: RedisServer, rounds: int) -> Spread:
    """Microseconds a call that the check takes on one server."""
    with server.client() as client:
        replid = client.info("replication")["master_replid"]
        client.hset(_CONTROL, mapping={"incarnation": "x" * 12, "replid": replid, "registered": "1"})
        scripts = [client.script_load(text) for text in (_WITHOUT, _WITH)]
        assert [client.evalsha(sha, 1, _CONTROL) for sha in scripts] == [1, 1]
        differences: list[float] = []
        for _ in range(rounds):
            without, with_check = (_seconds(client, sha) for sha in scripts)
            differences.append((with_check - without) / CALLS * 1e6)
    return Spread.of(differences)


def _seconds(client: redis.Redis, sha: str) -> float:
    """Seconds that the server itself counts for many calls."""
    client.config_resetstat()
    pipe = client.pipeline(transaction=False)
    for _ in range(CALLS):
        pipe.evalsha(sha, 1, _CONTROL)
    pipe.execute()
    return float(client.info("commandstats")["cmdstat_evalsha"]["usec"]) / 1e6


def main() -> None:
    """Measure both engines, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=15, help="alternating rounds (15)")
    options = parser.parse_args()
    found: dict[str, Spread] = {}
    for kind in ("valkey", "redis"):
        server = RedisServer(kind)
        server.start()
        try:
            found[kind] = measure(server, options.rounds)
        finally:
            server.destroy()
    table = Table("engine", "µs a call (quartiles)", title="The check of the incarnation")
    for kind, spread in found.items():
        table.add_row(kind, spread.shown())
    Console(stderr=options.json).print(table)
    if options.json:
        print(json.dumps({f"incarnation_check_{kind}_us": round(s.middle, 2) for kind, s in found.items()}), flush=True)


if __name__ == "__main__":
    main()
