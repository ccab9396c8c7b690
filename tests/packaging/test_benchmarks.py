"""The benchmarks compare like with like: every contender reads and writes what a turn is."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks import plots
from benchmarks.measuring import Spread
from benchmarks.results import figure
from benchmarks.turn import plan
from benchmarks.turn.agent import Tiers, connect
from tests.conftest import StartRedis
from tests.helpers import Process, upgrade

SESSIONS = range(2)


@pytest.fixture
async def tiers(start_redis: StartRedis, sqlite_url: str, postgresql_url: str) -> Tiers:
    """Servers of which the bare client can reach Redis, too."""
    await upgrade(sqlite_url)
    return Tiers(start_redis(tcp=True).url, sqlite_url, postgresql=postgresql_url, connections=2)


def values(state: Any) -> list[str]:
    """The texts that a turn has read, whatever they are kept in."""
    parts = state.values() if isinstance(state, dict) else state
    flat = [value for part in parts for value in (part.values() if isinstance(part, dict) else [part])]
    return [value for value in flat if isinstance(value, str)]


def new(after: list[str], before: list[str]) -> int:
    """How many values are others."""
    return (Counter(after) - Counter(before)).total()


async def test_a_turn_of_every_contender_reads_all_and_writes_one_key_in_each_scope(tiers: Tiers) -> None:
    for name in ("ours", "naive", "naive_msgspec", "limit", "write_through"):
        one, other = await connect(name, tiers), await connect(name, tiers)
        if name != "naive_msgspec":  # it has the sessions of the other one
            await one.create(SESSIONS)
        await one.open(SESSIONS)
        await other.open(SESSIONS)
        first = values(await one.turn(0))
        await other.change(0)
        second, third = values(await one.turn(0)), values(await one.turn(0))
        await one.aclose()
        await other.aclose()
        scopes = len(plan.SCOPES)
        assert len(first) == len(second) == len(third) == scopes * plan.KEYS, name
        assert {len(json.dumps(value)) for value in first + second + third} == {plan.SIZE}, name
        assert (new(second, first), new(third, second)) == (2 * scopes, scopes), name


async def test_the_proxy_passes_replies_on_whole_and_not_before_their_time() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(4))
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        with Process("benchmarks.turn.delay", str(server.sockets[0].getsockname()[1]), "50") as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.hear()))
            began = time.monotonic()
            writer.write(b"turn")
            assert await reader.read() == b"turn"
            assert time.monotonic() - began >= 0.05
            writer.close()


def test_plots_show_what_was_measured_and_nothing_else(tmp_path: Path) -> None:
    found = {**figure("memory_ratio", Spread(1.5, 1.4, 1.6)), "memory_ratio_50x50": None, "turn_rate_64": None}
    growing = {"growth": [{"sessions": 1_000, "set": 1.0}, {"sessions": 10_000, "set": 1.1}]}
    assert plots.drawable({}) == []
    assert plots.drawable(found) == ["memory"]
    plots.draw(found | growing, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["growth.svg", "memory.svg"]
