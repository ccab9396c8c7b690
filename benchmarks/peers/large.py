"""A get of a changed session of 1,000 keys and 1 MB: google-adk's Redis service beside ours.

Before each reading another holder of the session writes one key, which does not count; then all keys are decoded.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from statistics import median

from benchmarks.measuring import alternate, ratios
from benchmarks.peers.adk import AdkService
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import MissingStateError
from benchmarks.results import figure

KEYS = 1_000
_VALUE = 1_000
"""Characters of a value."""
CALLS = 15
"""Of one round, of which the median counts."""
NAME = "adk_redis_get_changed_ms"


def large_state() -> dict[str, str]:
    """1,000 keys, 1 MB."""
    return {f"key{number}": f"{number:0{_VALUE}}" for number in range(KEYS)}


async def measure(ours: Ours, theirs: AdkService, rounds: int) -> dict[str, object]:
    """The keys of the results, in milliseconds; the ratio is ours ÷ theirs."""
    calls = {"ours": await _ours(ours), "theirs": await _theirs(theirs)}
    await alternate(calls, 1)
    found = await alternate(calls, rounds)
    results: dict[str, object] = {NAME: median(found["theirs"]), "peers_get_changed_ms": median(found["ours"])}
    return results | figure("get_changed_ratio_adk_redis", ratios(found["ours"], found["theirs"]))


async def _ours(ours: Ours) -> Callable[[], Awaitable[float]]:
    reader, writer = await ours.create(large_state())

    async def change(turn: int) -> None:
        await writer.set("key0", f"{turn:0{_VALUE}}")

    async def read() -> object:
        await reader.refresh()
        return dict(reader.state)

    return lambda: _round(change, read)


async def _theirs(theirs: AdkService) -> Callable[[], Awaitable[float]]:
    await theirs.create(-1, large_state())
    writer = await theirs.get(-1)

    async def change(turn: int) -> None:
        await theirs.change(writer, {"key0": f"{turn:0{_VALUE}}"})

    async def read() -> object:
        return (await theirs.get(-1)).state

    return lambda: _round(change, read)


async def _round(change: Callable[[int], Awaitable[None]], read: Callable[[], Awaitable[object]]) -> float:
    taken = []
    for turn in range(CALLS):
        await change(turn)
        began = time.perf_counter()
        state = await read()
        taken.append((time.perf_counter() - began) * 1e3)
        # The app's shared keys, where there are any, come with the session's own.
        if not isinstance(state, dict) or len(state) < KEYS or state["key0"] != f"{turn:0{_VALUE}}":
            raise MissingStateError(f"not {KEYS} keys as last written")
    return median(taken)
