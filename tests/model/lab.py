"""The servers of the model test, and what befalls them: a Valkey, an SQLite file, and one event loop."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from redis.asyncio import Redis

from sessioncache.durable import schema
from sessioncache.durable.engine import create_engine
from sessioncache.durable.migrate import upgrade_schema
from sessioncache.operations.audit import compare
from sessioncache.operations.reflush import remark_everything as restamp_everything
from sessioncache.primitives.revisions import decode_revision, encode_revision
from sessioncache.primitives.scopes import ScopeRef
from tests.model.actors import Agent, SqlSwitch, Worker
from tests.model.observing import BUCKETS, LAYOUT, POISON, SCOPES, Origin, Sql, View, read_hot, read_sql
from tests.servers import RedisServer

T = TypeVar("T")

_REFUSE = (
    "CREATE TRIGGER IF NOT EXISTS refuse BEFORE INSERT ON sessioncache_state"
    f" WHEN NEW.value LIKE '%{POISON}%' BEGIN SELECT RAISE(ABORT, 'refused'); END"
)
_FAST = 3_600_000_000
"""Microseconds that a fast clock is ahead."""


@dataclass(frozen=True)
class Snapshot:
    """All keys of the server, as its files of that moment would bring them back."""

    keys: tuple[tuple[bytes, int, Any], ...]
    """Name, milliseconds to live (0: for ever), what DUMP gave."""


NOTHING = Snapshot(())

Backup = dict[str, list[tuple[Any, ...]]]
"""All rows of each table."""

_AGED = "UPDATE sessioncache_{0} SET {1} = '2000-01-01 00:00:00.000000' WHERE deleted"


class Lab:
    """Both servers; emptied for each example."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        self._folder = Path(tempfile.mkdtemp(prefix="sc-model-", dir=memory if memory.is_dir() else None))
        self._server = RedisServer("valkey", enable_debug_command="yes").start()
        self.client = self._server.client()
        self._loop = asyncio.new_event_loop()
        self.switch = SqlSwitch()
        file = self._folder / "state.db"
        self._engine = create_engine(f"sqlite:///{file}")
        self.run(upgrade_schema(self._engine))
        self._sql = sqlite3.connect(file, isolation_level=None, timeout=10)
        self._redis = Redis(unix_socket_path=str(self._server.socket))

    def close(self) -> None:
        """End everything."""
        self.run(self._engine.dispose())
        self._sql.close()
        self.client.close()
        self._loop.close()
        self._server.destroy()
        shutil.rmtree(self._folder)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine."""
        return self._loop.run_until_complete(work)

    def reset(self) -> None:
        """Empty both servers."""
        self.switch.away = False
        self.refuse(False)
        for table in schema.metadata.tables:
            self._sql.execute(f"DELETE FROM {table}")
        self.client.flushall()

    def agent(self) -> Agent:
        """A process that uses the cache, and has looked at both tiers."""
        agent = Agent(self._redis, self._engine, self.switch)
        self.run(agent.tiers.installation.check())
        return agent

    def worker(self) -> Worker:
        """A process that flushes."""
        return Worker(self._redis, self._engine, self.switch)

    def view(self) -> View:
        """What both tiers hold now."""
        told = self.client.execute_command("INFO", "server", "replication", "stats")  # type: ignore[no-untyped-call]
        names = ("master_replid", "run_id", "total_net_repl_input_bytes")
        return View(read_hot(self.client), self.sql(), Origin(*(str(told[name]).encode() for name in names)))

    def sql(self) -> Sql:
        """What the durable tier holds now."""
        return read_sql(self._sql)

    # ---- what an operator does

    def backup(self) -> Backup:
        """What the durable tier holds now."""
        tables = schema.metadata.tables
        return {table: self._sql.execute(f"SELECT * FROM {table}").fetchall() for table in tables}

    def put_back(self, backup: Backup) -> None:
        """The durable tier has what a backup has, and nothing else."""
        self._sql.execute("BEGIN IMMEDIATE")
        for table, rows in backup.items():
            self._sql.execute(f"DELETE FROM {table}")
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                self._sql.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        self._sql.execute("COMMIT")

    def say_restored(self) -> None:
        """The command for a restored backup, by a process of its own."""
        operator = self.agent()
        self.run(restamp_everything(operator.tiers))
        self.run(operator.cache.aclose())

    def change_replid(self) -> None:
        """A first replica has attached, or the backlog was freed: nothing is forgotten."""
        self.client.execute_command("DEBUG", "CHANGE-REPL-ID")  # type: ignore[no-untyped-call]

    # ---- what time brings

    def look_at_incarnations(self) -> None:
        """Somebody registers all buckets, as every process does that finds another replication id."""
        agent = self.agent()
        self.run(agent.tiers.fencing.register(range(BUCKETS)))
        self.run(agent.cache.aclose())

    def purge(self) -> None:
        """Weeks pass for the tombstones that there are, and the janitor purges them."""
        for table, column in (("state", "updated_at"), ("session", "flushed_at")):
            self._sql.execute(_AGED.format(table, column))
        janitor = self.worker()
        self.run(janitor.worker._janitor.purge())
        self.run(janitor.worker.aclose())

    def compare(self) -> bool:
        """The janitor compares all scopes; whether it finds nothing amiss."""
        janitor = self.worker()
        fine = [self.run(compare(janitor.tiers, ref.bucket, ref.member)) for ref in SCOPES]
        self.run(janitor.worker.aclose())
        return all(fine)

    def end_leases(self, owners: Iterable[str]) -> None:
        """Claims are over, as if their time had passed."""
        for bucket in range(BUCKETS):
            control = LAYOUT.control(bucket)
            for name, value in self._control(bucket).items():
                worker, began, _ = value.split(b"|") if name.startswith(b"c:") else (b"", b"", b"")
                if worker.decode() in owners:
                    self.client.hset(control, name, b"|".join((worker, began, b"1")))
                    self.client.zadd(control[:-3] + b"dirty", {name[2:]: 1}, xx=True)

    def end_loaders(self) -> None:
        """Whoever holds a token has been silent for so long that another may take over."""
        for bucket in range(BUCKETS):
            for name, value in self._control(bucket).items():
                if name.startswith(b"t:"):
                    self.client.hset(LAYOUT.control(bucket), name, value.rsplit(b"|", 1)[0] + b"|1")

    def end_grace(self) -> None:
        """A minute has passed since the user was erased."""
        for bucket in range(BUCKETS):
            self.client.delete(LAYOUT.control(bucket)[:-3] + b"erased")

    def evict(self, scopes: Iterable[ScopeRef] = SCOPES) -> None:
        """Take hashes that may be taken: those with a time to live."""
        for ref in scopes:
            name = LAYOUT.hash(ref.bucket, ref.member)
            if self.client.pttl(name) >= 0:
                self.client.delete(name)

    def expire_temp(self, ref: ScopeRef) -> None:
        """The `temp:` keys of a session have not been used for an hour."""
        self.client.delete(LAYOUT.place(ref).temp)

    def hurry_clock(self, ref: ScopeRef) -> None:
        """The scope was written by a server whose clock was fast; that server's clock is right from now on."""
        name = LAYOUT.hash(ref.bucket, ref.member)
        held: Any = self.client.hget(name, "r")
        if held is not None:
            self.client.hset(name, "r", encode_revision(decode_revision(held) + _FAST))

    # ---- faults

    def snapshot(self) -> Snapshot:
        """What the server's files hold now."""
        names: Any = self.client.keys("*")
        return Snapshot(tuple((name, max(0, self.client.pttl(name)), self.client.dump(name)) for name in names))

    def restore(self, snapshot: Snapshot, how: str = "") -> None:
        """The server has what a snapshot has.

        `how`: ``restarted``, or a replica that was promoted, and so another process than the one that wrote it; ``fed``
        by a primary that lagged, and the same process.
        """
        self.client.flushall()
        for name, ttl, dump in snapshot.keys:
            self.client.restore(name, ttl, dump)
        if how:
            self.change_replid()
            for bucket in range(BUCKETS):
                if self._control(bucket):
                    self.client.hset(LAYOUT.control(bucket), "run" if how == "restarted" else "fed", "1")

    def refuse(self, on: bool) -> None:
        """Whether the database refuses poison as data."""
        self._sql.execute(_REFUSE if on else "DROP TRIGGER IF EXISTS refuse")

    def _control(self, bucket: int) -> dict[bytes, bytes]:
        fields: Any = self.client.hgetall(LAYOUT.control(bucket))
        return dict(fields)
