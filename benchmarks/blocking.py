"""How long one call holds Redis up at the limits: ``python -m benchmarks.blocking [redis | valkey]``.

A session of 20,000 keys, and one of 63 values of 1 MiB, go through what is done to scopes.  Of each step the CPU time
of Redis' main thread, which has nothing else to do meanwhile, and the longest single script and plain command of it, as
Redis' slow log tells them: by the clock, so that other work of the machine counts as well.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Iterator
from typing import Any

import redis

from sessioncache import Session, SessionCache
from sessioncache.primitives.deadline import within
from sessioncache.settings import MAX_CALL_BYTES, MAX_CALL_KEYS, MAX_SCOPE_KEYS, MAX_VALUE_BYTES
from tests.helpers import Urls, connect, drain, evict, upgrade
from tests.servers import RedisServer

_MANY = {f"k{n}": n for n in range(MAX_SCOPE_KEYS)}
_TEXT = "x" * (MAX_VALUE_BYTES - 2)
_LARGE = {f"k{n}": _TEXT for n in range(63)}
_SLOW_US = 500
"""Microseconds from which the slow log has a command."""


class Busy:
    """Tells how long Redis was busy with each step."""

    def __init__(self, urls: Urls, client: redis.Redis) -> None:
        self.urls = urls
        self._client = client
        client.config_set("slowlog-log-slower-than", _SLOW_US)
        client.config_set("slowlog-max-len", 10_000)

    def _cpu(self) -> float:
        told: Any = self._client.info("cpu")
        return float(told["used_cpu_user_main_thread"]) + float(told["used_cpu_sys_main_thread"])

    def _longest(self) -> Iterator[float]:
        """Milliseconds of the longest script, and of the longest command beside them."""
        log: Any = self._client.slowlog_get(10_000)
        for of_script in (True, False):
            yield max(
                (one["duration"] / 1000 for one in log if one["command"].startswith(b"EVAL") is of_script), default=0
            )

    async def step(self, name: str, call: Awaitable[Any]) -> Any:
        """Wait for a call; its result."""
        self._client.slowlog_reset()
        before = self._cpu()
        with within(60):
            result = await call
        script, command = self._longest()
        print(f"{name:45} {(self._cpu() - before) * 1000:8.1f} {script:8.1f} {command:8.1f} ms", flush=True)
        return result


async def update(made: Session, state: dict[str, Any]) -> None:
    """Write all keys, in as few calls as may write them."""
    at_once = min(MAX_CALL_KEYS, MAX_CALL_BYTES // max(len(str(value)) + 2 for value in state.values()))
    keys = list(state)
    for start in range(0, len(keys), at_once):
        await made.update({key: state[key] for key in keys[start : start + at_once]})


async def use(busy: Busy, cache: SessionCache, name: str, state: dict[str, Any]) -> None:
    """What is done to a session at a limit, from its creation to its end."""
    made = await busy.step(f"{name}: create", cache.create("ada", session_id=name, state=state))
    await busy.step(f"{name}: read what changed", made.refresh())
    await busy.step(f"{name}: update of all keys, in several calls", update(made, state))
    await busy.step(f"{name}: one key", made.set("k0", 1))
    await busy.step(f"{name}: fork", made.fork(new_id=name + "-child"))
    await busy.step(f"{name}: flush of both", drain(busy.urls))
    evict(busy.urls.redis)
    await busy.step(f"{name}: load", cache.get("ada", name))
    await busy.step(f"{name}: clear", made.clear())
    await busy.step(f"{name}: flush of the clear", drain(busy.urls))
    await cache.get("ada", name + "-child")
    await busy.step(f"{name}: delete", cache.delete("ada", name + "-child"))


async def measure(kind: Any) -> None:
    """Print what each call costs."""
    server = RedisServer(kind).start()
    try:
        with tempfile.TemporaryDirectory() as folder, server.client() as client:
            urls = Urls(server.url, f"sqlite:///{folder}/state.db")
            await upgrade(urls.database)
            print(f"{'':45} {'CPU':>8} {'script':>8} {'command':>8}")
            async with connect(urls, timeout=60) as cache:
                await use(Busy(urls, client), cache, "20,000 keys", _MANY)
                await use(Busy(urls, client), cache, "63 MiB", _LARGE)
    finally:
        server.destroy()


if __name__ == "__main__":
    asyncio.run(measure(sys.argv[1] if len(sys.argv) > 1 else "redis"))
