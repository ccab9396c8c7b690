"""The contenders on the hot path: the cache, its own scripts called raw, and bare hash commands through redis-py."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Protocol

from redis.asyncio import Redis

from sessioncache.hot.link import Argument, HotLink, Reply
from sessioncache.hot.scripts import Script
from sessioncache.session import Session

Field = bytes | bytearray | memoryview | str | int | float
"""What redis-py takes for a field or a value."""
OPERATIONS = ("set", "update", "merged_get", "turn")
"""What every contender does: set one key; set three keys, one a scope; read three scopes; read, then set three keys."""
PREFIXES = ("", "user:", "app:")
KEYS_OF_SCOPE = {"": 10, "user:": 5, "app:": 5}
TEXT = "what an agent remembers of a conversation"
"""41 characters, hence short enough for the compact encoding of hashes, as most state is."""
CHANGES = {prefix + "note": TEXT for prefix in PREFIXES}


def initial_state() -> dict[str, str]:
    """Twenty keys over three scopes."""
    return {f"{prefix}key{n}": TEXT for prefix, count in KEYS_OF_SCOPE.items() for n in range(count)}


class Contender(Protocol):
    """One way to do the operations, for the session of a number."""

    async def set(self, number: int) -> object:
        """Set one key of the session."""

    async def update(self, number: int) -> object:
        """Set three keys, one a scope."""

    async def merged_get(self, number: int) -> object:
        """Read all three scopes."""

    async def turn(self, number: int) -> object:
        """Read all, then set three keys."""


class Ours:
    """The public API."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self._sessions = sessions

    async def set(self, number: int) -> object:
        return await self._sessions[number].set("note", TEXT)

    async def update(self, number: int) -> object:
        return await self._sessions[number].update(CHANGES)

    async def merged_get(self, number: int) -> object:
        await self._sessions[number].refresh()
        return self._sessions[number].state

    async def turn(self, number: int) -> object:
        await self.merged_get(number)
        return await self.update(number)


@contextmanager
def recording() -> Iterator[list[Sequence[Argument]]]:
    """The commands that the cache sends in the block."""
    sent: list[Sequence[Argument]] = []
    exchange = HotLink.exchange

    async def recorded(
        link: HotLink, commands: Sequence[Sequence[Argument]], scripts: dict[bytes, Script]
    ) -> list[Reply]:
        sent.extend(commands)
        return await exchange(link, commands, scripts)

    HotLink.exchange = recorded  # type: ignore[assignment, method-assign]
    try:
        yield sent
    finally:
        HotLink.exchange = exchange  # type: ignore[method-assign]


_OPERATION_AT = 4
"""Place of the operation id among the arguments of a write."""


class Raw:
    """The very commands that the cache sends, through redis-py, with nothing done to the replies."""

    def __init__(self, client: Redis, recorded: Sequence[dict[str, Sequence[Argument]]]) -> None:
        self._client = client
        self._recorded = recorded

    @classmethod
    async def record(cls, client: Redis, sessions: Sequence[Session]) -> Raw:
        """Let the cache do each operation once, and remember what it sends."""
        ours = Ours(sessions)
        recorded: list[dict[str, Sequence[Argument]]] = []
        for number in range(len(sessions)):
            sent: dict[str, Sequence[Argument]] = {}
            for name in ("set", "update", "merged_get"):
                with recording() as commands:
                    await getattr(ours, name)(number)
                (sent[name],) = commands
            recorded.append(sent)
        return cls(client, recorded)

    async def set(self, number: int) -> object:
        return await self._run("set", number)

    async def update(self, number: int) -> object:
        return await self._run("update", number)

    async def merged_get(self, number: int) -> object:
        return await self._run("merged_get", number)

    async def turn(self, number: int) -> object:
        await self._run("merged_get", number)
        return await self._run("update", number)

    async def _run(self, operation: str, number: int) -> object:
        command = list(self._recorded[number][operation])
        if operation != "merged_get":
            # A recorded operation id would be answered from memory (R4), without writing anything.
            command[3 + int(command[2]) + _OPERATION_AT] = os.urandom(15)
        reply: object = await self._client.execute_command(*command)  # type: ignore[no-untyped-call]
        return reply


SMALL_SCRIPT = """
for i = 1, #KEYS - 1 do
  redis.call('HINCRBY', KEYS[i], 'revision', 1)
  redis.call('HSET', KEYS[i], ARGV[2 * i], ARGV[2 * i + 1])
  redis.call('ZADD', KEYS[#KEYS], 'NX', ARGV[1], KEYS[i])
  redis.call('PERSIST', KEYS[i])
end
return 1
"""


class Naive:
    """Hashes with a revision and a dirty index, by hand: no lives, no incarnations, no marks of fields, no limits."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._sha = ""

    async def prepare(self, sessions: int) -> None:
        """Load the script and fill the hashes."""
        self._sha = await self._client.script_load(SMALL_SCRIPT)
        for number in range(sessions):
            for prefix, key in zip(PREFIXES, _hashes(number), strict=True):
                fields: dict[Field, Field] = {f"key{n}": f'"{TEXT}"' for n in range(KEYS_OF_SCOPE[prefix])}
                await self._client.hset(key, mapping=fields)

    async def set(self, number: int) -> object:
        return await self._write(_hashes(number)[:1])

    async def update(self, number: int) -> object:
        return await self._write(_hashes(number))

    async def merged_get(self, number: int) -> object:
        async with self._client.pipeline(transaction=False) as pipeline:
            for key in _hashes(number):
                pipeline.hgetall(key)
            return await pipeline.execute()

    async def turn(self, number: int) -> object:
        await self.merged_get(number)
        return await self.update(number)

    async def _write(self, keys: Sequence[str]) -> object:
        fields = [part for _ in keys for part in ("note", f'"{TEXT}"')]
        return await self._client.evalsha(self._sha, len(keys) + 1, *keys, "naive:dirty", "1", *fields)


def _hashes(number: int) -> tuple[str, str, str]:
    # As long as the names of the cache's keys are.
    name = blake2b(b"%d" % number, digest_size=16).hexdigest()
    return f"naive:session:{name}", f"naive:user:{name}", "naive:app:" + 32 * "0"
