"""The same turn through the peers and through ours, at 1, 16 and 64 in flight.

Run ``python -m benchmarks.peers [--json] [--rounds N] [--only NAME]`` in an environment with
benchmarks/peers/requirements.txt (``make bench-peers`` makes one); it starts servers of its own.  A peer that cannot be
used is left out, and the results say why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any

from benchmarks.measuring import Spread, alternate, console, options, print_json, ratios, table
from benchmarks.peers import large
from benchmarks.peers.adk import AdkService
from benchmarks.peers.django_sessions import DjangoSessions
from benchmarks.peers.langgraph_store import LanggraphStore
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.peers.stage import Stage, servers
from benchmarks.results import figure, missing, record

IN_FLIGHT = (1, 16, 64)
SECONDS = 2.0
"""That count of one round."""
ROUNDS = 5
OURS = "sessioncache"
PEERS: dict[str, Callable[[Stage], AbstractAsyncContextManager[Peer]]] = {
    "langgraph": LanggraphStore.open,
    "adk_sql": AdkService.sql,
    "adk_redis": AdkService.redis,
    "django": DjangoSessions.open,
}
"""In the words of the results' keys."""

Found = dict[int, dict[str, list[float]]]
"""In flight -> contender -> turns a second, one number a round."""


async def open_peers(
    stage: Stage, names: Sequence[str], stack: AsyncExitStack
) -> tuple[dict[str, Peer], dict[str, str]]:
    """The peers that can be used, each after a short trial; why the others cannot."""
    opened, refused = dict[str, Peer](), dict[str, str]()
    for name in names:
        try:
            peer = await stack.enter_async_context(PEERS[name](stage))
            await peer.rate(1, 0.1)
            opened[name] = peer
        except Exception as error:
            refused[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return opened, refused


async def measure(contenders: Mapping[str, Peer], rounds: int) -> Found:
    """Turns a second, in alternating rounds."""
    found: Found = {}
    for number in IN_FLIGHT:
        found[number] = await alternate({n: partial(p.rate, number, SECONDS) for n, p in contenders.items()}, rounds)
    return found


def results(found: Found, durable_after: Sequence[float], refused: Mapping[str, str]) -> dict[str, Any]:
    """What is recorded."""
    values: dict[str, Any] = {}
    for number, by_name in found.items():
        for name, rounds in by_name.items():
            values |= figure(f"peers_{name}_{number}_per_s", Spread.of(rounds))
    many = found[IN_FLIGHT[-1]]
    for name in many:
        if name != OURS:
            values |= figure(f"{name}_ratio", ratios(many[OURS], many[name]))
    for name, reason in refused.items():
        keys = [f"{name}_ratio", *(f"peers_{name}_{number}_per_s" for number in IN_FLIGHT)]
        values |= missing(keys, reason)
    values["peers_durable_after_s"] = max(durable_after)
    return values


def show(found: Found, values: Mapping[str, Any]) -> None:
    """Print tables."""
    rows = []
    for name in found[IN_FLIGHT[-1]]:
        shown = [Spread.of(found[number][name]).shown(0) for number in IN_FLIGHT]
        quotient = "" if name == OURS else ratios(found[IN_FLIGHT[-1]][OURS], found[IN_FLIGHT[-1]][name]).shown()
        rows.append((name.replace("_", " "), *shown, quotient))
    columns = ("turns a second", *(f"{number} in flight" for number in IN_FLIGHT), f"ours ÷ this, {IN_FLIGHT[-1]}")
    out = console()
    out.print(table("The turn (median of the rounds, quartiles)", columns, rows))
    for key in ("peers_durable_after_s", large.NAME, "peers_get_changed_ms", "get_changed_ratio_adk_redis"):
        out.print(f"{key}: {values[key] if values[key] is None else round(values[key], 3)}")
    for key, value in values.items():
        if key.endswith("_ratio_reason"):
            out.print(f"{key}: {value}", markup=False)


async def run(names: Sequence[str], rounds: int, *, as_json: bool) -> None:
    """Measure, record and print."""
    with servers() as stage:
        async with AsyncExitStack() as stack:
            ours = await stack.enter_async_context(Ours.open(stage))
            peers, refused = await open_peers(stage, names, stack)
            found = await measure({OURS: ours, **peers}, rounds)
            values = results(found, ours.durable_after, refused)
            adk = peers.get("adk_redis")
            if isinstance(adk, AdkService):
                values |= await large.measure(ours, adk, rounds)
            else:
                reason = refused.get("adk_redis", "left out")
                values |= missing((large.NAME, "peers_get_changed_ms", "get_changed_ratio_adk_redis"), reason)
    record(values)
    show(found, values)
    if as_json:
        print_json(values)


def main() -> None:
    """Run as a command."""
    parser = options("The same turn through the peers and through ours.")
    parser.add_argument("--only", choices=tuple(PEERS), action="append", help="this peer (may be repeated)")
    chosen = parser.parse_args()
    asyncio.run(run(chosen.only or list(PEERS), chosen.rounds or ROUNDS, as_json=chosen.json))


if __name__ == "__main__":
    main()
