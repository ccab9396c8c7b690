"""The kinds of fault: to processes, to wires, to Redis.  Each is over when its function returns."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import redis

from tests.chaos.fleet import LEASE, Member
from tests.chaos.runs import LEASE as RUN_LEASE
from tests.chaos.stage import Stage, in_thread

_EVICT = """
local dropped = 0
for _, key in ipairs(redis.call('KEYS', 'sessioncache:*:h:*')) do
  if redis.call('PTTL', key) >= 0 then dropped = dropped + redis.call('DEL', key) end
end
return dropped
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind."""

    name: str
    strike: Callable[[Stage], Awaitable[None]]
    needs: str = ""
    """``postgresql``, ``sqlite``, ``sentinel``, ``clock``, or ``alone``: a Redis that is not one of a set."""
    refuses: bool = False
    """Whether the database refuses something as data: else nothing may become a dead letter."""


# ---- processes


def _any_worker(stage: Stage) -> Member:
    return stage.chance.choice(list(stage.fleet.workers.values()))


async def kill_worker(stage: Stage) -> None:
    """A worker dies, and is started again later."""
    _any_worker(stage).send(signal.SIGKILL)
    stage.worker_kills += 1
    await stage.pause(0.2, 1)


async def stop_worker(stage: Stage) -> None:
    """A worker stands still for longer than its lease, then goes on with what it had in hand."""
    worker = _any_worker(stage)
    worker.send(signal.SIGSTOP)
    await stage.pause(1.2 * LEASE, 2 * LEASE)
    worker.send(signal.SIGCONT)


async def kill_agent(stage: Stage) -> None:
    """An agent dies in the middle of its calls."""
    stage.chance.choice(list(stage.fleet.agents.values())).send(signal.SIGKILL)
    await stage.pause(0.1, 0.5)


async def stop_agent(stage: Stage) -> None:
    """An agent stands still for longer than its run leases, then goes on with what it was about to write."""
    agent = stage.chance.choice(list(stage.fleet.agents.values()))
    agent.send(signal.SIGSTOP)
    await stage.pause(1.2 * RUN_LEASE, 3 * RUN_LEASE)
    agent.send(signal.SIGCONT)


# ---- wires


async def cut_redis(stage: Stage) -> None:
    """Connections to Redis break."""
    stage.chance.choice(stage.redis_wires).cut()


async def stall_redis(stage: Stage) -> None:
    """Redis is out of reach, without a word."""
    wire = stage.chance.choice(stage.redis_wires)
    wire.stall()
    await stage.pause(0.5, 4)
    wire.resume()


async def hold_answers(stage: Stage) -> None:
    """Redis is asked and its answers do not arrive."""
    wire = stage.chance.choice(stage.redis_wires)
    wire.hold_answers()
    await stage.pause(0.5, 4)
    wire.cut()
    wire.resume()


async def slow_redis(stage: Stage) -> None:
    """Each way to Redis takes long."""
    wire = stage.chance.choice(stage.redis_wires)
    wire.delay = stage.chance.uniform(0.02, 0.3)
    await stage.pause(1, 4)
    wire.delay = 0.0


async def half_open_redis(stage: Stage) -> None:
    """Connections to Redis lose their other end without a word."""
    stage.chance.choice(stage.redis_wires).half_open()
    await stage.pause(1, 3)


# ---- Redis


async def restart_redis(stage: Stage) -> None:
    """Redis crashes and comes back with all that it had acknowledged."""
    await in_thread(stage.redis.kill)
    await stage.pause(0, 1)
    await in_thread(stage.redis.start)


async def flush_redis(stage: Stage) -> None:
    """Somebody empties Redis."""
    async with stage.frozen() as client:
        client.flushall()


async def empty_redis(stage: Stage) -> None:
    """Redis comes back without its files."""
    async with stage.frozen():
        await in_thread(stage.redis.kill)
        shutil.rmtree(files_of(stage))
        await in_thread(stage.redis.start)


async def age_redis(stage: Stage) -> None:
    """Redis comes back with files of some seconds ago, as after a loss of power."""
    copy = stage.folder / "older"
    await in_thread(lambda: shutil.copytree(files_of(stage), copy))
    await stage.pause(0.5, 4)
    async with stage.frozen():
        await in_thread(stage.redis.kill)
        shutil.rmtree(files_of(stage))
        shutil.move(copy, files_of(stage))
        await in_thread(stage.redis.start)


def files_of(stage: Stage) -> Path:
    return stage.redis.folder / "appendonlydir"


async def evict(stage: Stage) -> None:
    """Every clean scope is dropped, several times."""
    for _ in range(3):
        with stage.redis.client() as client:
            client.eval(_EVICT, 0)
        await stage.pause(0.05, 0.5)


async def fill_memory(stage: Stage) -> None:
    """Redis has no memory left for a while, under either policy."""
    with stage.redis.client() as client:
        client.config_set("maxmemory-policy", stage.chance.choice(["noeviction", "volatile-lru"]))
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 0.9))
        try:
            await stage.pause(1, 4)
        finally:
            client.config_set("maxmemory", 0)


async def promote_replica(stage: Stage) -> None:
    """The primary is parted from its replica and the sentinels, and one that lags is promoted in its place."""
    assert stage.sentinels is not None
    old = stage.redis
    stage.sentinels.part()
    await stage.sentinels.wait_until_promoted()
    await stage.pause(0, 1)  # two primaries, and clients at the one that loses
    agents, workers = stage.redis_wires
    agents.stall()
    with old.client() as client:
        await stage.note_dirt(client)
    stage.redis = stage.sentinels.primary
    for wire in (agents, workers):
        wire.switch(stage.redis.socket)
    agents.cut()
    agents.resume()
    await stage.pause(0, 1)  # agents at the new one, workers at the old one
    workers.cut()
    stage.sentinels.heal()
    await stage.sentinels.wait_until_whole()


FAULTS = [
    Fault("worker killed", kill_worker),
    Fault("worker stopped beyond its lease", stop_worker),
    Fault("agent killed", kill_agent),
    Fault("agent stopped beyond its run lease", stop_agent),
    Fault("Redis: connections cut", cut_redis),
    Fault("Redis: stalled", stall_redis),
    Fault("Redis: answers withheld", hold_answers),
    Fault("Redis: slow", slow_redis),
    Fault("Redis: half-open", half_open_redis),
    Fault("Redis: killed, restarted", restart_redis, "alone"),
    Fault("Redis: emptied", flush_redis),
    Fault("Redis: restarted empty", empty_redis, "alone"),
    Fault("Redis: restarted from an older copy", age_redis, "alone"),
    Fault("Redis: clean scopes evicted", evict),
    Fault("Redis: memory full", fill_memory),
    Fault("Redis: lagging replica promoted", promote_replica, "sentinel"),
]


async def mend(stage: Stage) -> None:
    """Everything as it should be, whatever a fault has left."""
    for wire in [*stage.redis_wires, *stage.sql_wires]:
        wire.delay = 0.0
        wire.resume()
    for member in [*stage.fleet.workers.values(), *stage.fleet.agents.values()]:
        if member.process.poll() is None:
            member.process.send_signal(signal.SIGCONT)
    for server in [stage.redis, *([stage.postgresql] if stage.postgresql else [])]:
        if not server.alive:
            await in_thread(server.start)
    with suppress(redis.RedisError), stage.redis.client() as client:
        client.config_set("maxmemory", 0)
