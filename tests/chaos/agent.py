"""An agent process of the chaos run: several actors over shared sessions, users and the app, all of it journalled.

``python -m tests.chaos.agent NAME RUN REDIS DATABASE JOURNAL SEED``; SIGTERM: finish the calls under way, and end.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from sessioncache import Record, Session, SessionCache, SessionCacheError, SessionNotFoundError
from sessioncache.hot.messages import Refused, Written
from sessioncache.hot.write import Write
from tests.chaos import cells
from tests.chaos.cast import ACTORS, KEYS, SPACE, TEMP_MARK, fork_of, open_cache, session_of, user_of
from tests.chaos.forks import Fork
from tests.chaos.journal import Failed, Journal
from tests.chaos.runs import Runner
from tests.chaos.witness import Witness

_NUMBERS_OF_A_RUN = 10_000_000
_LONGEST_LIST = 100
_PAUSE = 0.02
"""Mean seconds between two calls of one actor."""
_LATE, _LATEST = 0.05, 2.0
"""Part of the answers of writes that come late, and by how many seconds at most: what they tell of may be flushed."""


class Actor:
    """Owns one session, and keys of its own in the scopes that it shares with others."""

    def __init__(self, cache: SessionCache, journal: Journal, name: str, numbers: Iterator[int], chance: Any) -> None:
        self._cache, self._journal, self._numbers, self._chance = cache, journal, numbers, chance
        self._name, self._user, self._id = name, user_of(name), session_of(name)
        self._session: Session | None = None
        self._life = 0
        self._latest: dict[str, int] = {}
        """Cell -> number of the latest time that was given with a record."""
        self._list, self._length = next(numbers), 0
        self._fork = Fork(cache, journal, self._user, fork_of(name), numbers, chance)
        self._runner = Runner(cache, journal, self._user, numbers, chance)

    async def run(self, stop: asyncio.Event) -> None:
        """Act until told to stop; whatever fails, go on."""
        actions = [self._update] * 5 + [self._share] * 3 + [self._add] * 3 + [self._append] * 2 + [self._read] * 2
        actions += [self._upsert] * 4 + [self._keep] * 3 + [self._touch] * 2 + [self._fork.act] * 2 + [self._runner.act]
        actions += [self._pair] * 3
        actions += [self._read_records, self._read_space, self._rename, self._hide, self._end]
        while not stop.is_set():
            try:
                if self._session is None:
                    await self._find()
                else:
                    await self._do(self._chance.choice(actions))
            except (Failed, SessionCacheError) as error:
                cause = error.__cause__ if isinstance(error, Failed) else error
                if isinstance(cause, SessionNotFoundError) or self._chance.random() < 0.2:
                    self._session = None
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._chance.expovariate(1 / _PAUSE))

    async def _do(self, action: Callable[[], Awaitable[None]]) -> None:
        if action == self._fork.act and self._session is not None and self._fork.wants_parent:
            await self._fork.make(self._session, self._life)
        else:
            await action()

    # ---- lives

    async def _find(self) -> None:
        """The session as it is now, by its id alone or with its user, or a new life of it."""
        life_cell = cells.life_cell(self._user, self._id)
        try:
            if self._chance.random() < 0.5:
                async with self._cache.resume(self._id) as found:
                    pass
            else:
                found = await self._cache.get(self._user, self._id)
        except SessionNotFoundError:
            self._journal.note(seen=life_cell, n=None)
            await self._create(life_cell)
            return
        self._session, self._life = found, found.state["life"]["n"]
        self._journal.note(seen=life_cell, n=self._life)

    async def _create(self, life_cell: str) -> None:
        life = next(self._numbers)
        sets = {life_cell: life, self._private("life", life): life, self._private("k0", life): life}
        with self._journal.call(sets=sets):
            state: dict[str, Any] = {"life": {"n": life}, "k0": {"n": life}, "temp:secret": TEMP_MARK}
            self._session = await self._cache.create(self._user, session_id=self._id, state=state)
            self._life = life

    async def _end(self) -> None:
        if self._chance.random() < 0.3:
            self._session = None
            with self._journal.call(sets={cells.life_cell(self._user, self._id): None}):
                await self._cache.delete(self._user, self._id)

    # ---- keys

    async def _update(self) -> None:
        """Set and delete some keys of all scopes in one step, through the session."""
        sets: dict[str, int | None] = {}
        values, deleted = {}, []
        for key in self._chance.sample(KEYS, self._chance.randint(1, 3)):
            prefix = self._chance.choice(["", "", "user:", "app:"])
            name = key if not prefix else f"{prefix}{self._name}-{key}"
            number = next(self._numbers) if self._chance.random() < 0.8 else None
            sets[self._cell(name)] = number
            if number is None:
                deleted.append(name)
            else:
                values[name] = self._value(number)
        with self._journal.call(sets=sets, life=self._life_fact()):
            await self._handle.update(values, delete=deleted)

    async def _upsert(self) -> None:
        """Set a key by a record: of a later time than any before, or of one that was given before or is older."""
        key, number = self._chance.choice(KEYS), next(self._numbers)
        cell, at = self._cell(key), number
        if cell in self._latest and self._chance.random() < 0.4:
            at = self._latest[cell] - self._chance.randint(0, 3)
        record = Record(key, cells.record_of(number, at, self._chance), cells.time_of(at))
        with self._journal.call(upserts=cell, n=number, at=at, life=self._life_fact()) as told:
            told["taken"] = await self._handle.upsert_record(record)
        self._latest[cell] = max(at, self._latest.get(cell, at))

    async def _read_records(self) -> None:
        records = {record.key: record for record in await self._handle.records()}
        misdated = [key for key, one in records.items() if cells.is_misdated(one.value, one.updated_at)]
        assert not misdated, f"records of another time than theirs: {misdated}"
        for key in KEYS:
            value = records[key].value if key in records else None
            self._journal.note(seen=self._cell(key), n=cells.number_of(value))

    async def _pair(self) -> None:
        """Set two keys by two calls at once: their answers may come in another order than Redis worked on them."""

        async def put(key: str, number: int) -> None:
            with self._journal.call(sets={self._cell(key): number}, life=self._life_fact()):
                await self._handle.set(key, self._value(number))

        calls = [put(key, next(self._numbers)) for key in self._chance.sample(KEYS, 2)]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _share(self) -> None:
        """Set a key through a handle on the shared scope itself."""
        key = f"{self._name}-{self._chance.choice(KEYS)}"
        number = next(self._numbers)
        of_user = self._chance.random() < 0.5
        scope = self._cache.user_scope(self._user) if of_user else self._cache.app_scope()
        with self._journal.call(sets={self._cell(f"{'user' if of_user else 'app'}:{key}"): number}):
            await scope.set(key, self._value(number))

    async def _add(self) -> None:
        """Add to a counter that all agents share."""
        key = self._chance.choice(["user:total", "app:total"])
        with self._journal.call(adds=self._cell(key), by=1, life=self._life_fact()):
            await self._handle.increment(key)

    async def _append(self) -> None:
        if self._length >= _LONGEST_LIST:
            self._list, self._length = next(self._numbers), 0
        self._length += 1
        key, number = f"user:{self._name}-list{self._list}", next(self._numbers)
        with self._journal.call(appends=self._cell(key), item=number, life=self._life_fact()):
            await self._handle.append(key, number)

    async def _read(self) -> None:
        key = self._chance.choice(KEYS)
        name = self._chance.choice([key, f"user:{self._name}-{key}", f"app:{self._name}-{key}"])
        cell = self._cell(name)
        value = await self._handle.get(name)
        self._journal.note(seen=cell, n=None if value is None else value["n"])

    async def _hide(self) -> None:
        await self._handle.set("temp:secret", f"{TEMP_MARK}-{next(self._numbers)}")

    # ---- namespaces, counters, title

    async def _keep(self) -> None:
        """Set and delete keys of the namespace in one step; now and then clear it."""
        space = self._handle.namespace(SPACE)
        if self._chance.random() < 0.1:
            with self._journal.call(sets={self._cell(cells.space_key(k)): None for k in KEYS}, life=self._life_fact()):
                await space.clear()
            return
        numbers = {key: next(self._numbers) for key in self._chance.sample(KEYS, self._chance.randint(1, 2))}
        gone = [self._chance.choice(KEYS)] if self._chance.random() < 0.2 else []
        gone = [key for key in gone if key not in numbers]
        sets: dict[str, int | None] = {**numbers, **dict.fromkeys(gone)}
        noted = {self._cell(cells.space_key(key)): number for key, number in sets.items()}
        with self._journal.call(sets=noted, life=self._life_fact()):
            await space.update({key: self._value(number) for key, number in numbers.items()}, delete=gone)

    async def _read_space(self) -> None:
        key = self._chance.choice(KEYS)
        value = await self._handle.namespace(SPACE).get(key)
        self._journal.note(seen=self._cell(cells.space_key(key)), n=cells.number_of(value))

    async def _touch(self) -> None:
        messages = self._chance.randint(1, 3)
        with self._journal.call(adds=self._cell(cells.MESSAGES), by=messages, life=self._life_fact()):
            await self._handle.touch(messages=messages, tokens=messages * cells.TOKENS_A_MESSAGE)

    async def _rename(self) -> None:
        number = next(self._numbers)
        with self._journal.call(sets={self._cell(cells.TITLE): number}, life=self._life_fact()):
            await self._handle.rename(cells.title_of(number))

    # ---- names

    @property
    def _handle(self) -> Session:
        if self._session is None:
            raise Failed
        return self._session

    def _life_fact(self) -> list[Any]:
        """That the session lives this life, if the call succeeds."""
        return [cells.life_cell(self._user, self._id), self._life]

    def _cell(self, key: str) -> str:
        if key.startswith("user:"):
            return f"u|{self._user}|{key[5:]}"
        return f"a|{key[4:]}" if key.startswith("app:") else self._private(key, self._life)

    def _private(self, key: str, life: int) -> str:
        return cells.private_cell(self._user, self._id, life, key)

    def _value(self, number: int) -> dict[str, Any]:
        return cells.value_of(number, self._chance)


def hold_answers(cache: SessionCache, chance: random.Random) -> None:
    """Let some answers of writes come late, as over a slow connection beside a fast one."""
    send = cache._tiers.hot.write

    async def late(write: Write) -> Written | Refused:
        answer = await send(write)
        if chance.random() < _LATE:
            await asyncio.sleep(chance.uniform(0, _LATEST))
        return answer

    cache._tiers.hot.write = late  # type: ignore[method-assign]


async def flush_often(cache: SessionCache, journal: Journal, witness: Witness, stop: asyncio.Event) -> None:
    """Wait again and again until all is durable; each success is evidence for the verdict, and is checked."""
    while not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 1)
        with suppress(Failed):
            with journal.call(flush=True):
                await cache.flush(4)
            await witness.look()


async def main(name: str, run: int, redis_url: str, database_url: str, journal_path: str, seed: str) -> None:
    """Act until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    journal = Journal(Path(journal_path), run)
    numbers, chance = count(run * _NUMBERS_OF_A_RUN + 1), random.Random(f"{seed}-{name}-{run}")
    cache = await open_cache(redis_url, database_url)
    hold_answers(cache, random.Random(f"{seed}-{name}-{run}-late"))
    try:
        names = [f"{name}-{actor}" for actor in range(ACTORS)]
        actors = [Actor(cache, journal, actor, numbers, chance) for actor in names]
        witness = Witness(database_url, journal, names)
        await asyncio.gather(*(actor.run(stop) for actor in actors), flush_often(cache, journal, witness, stop))
    finally:
        await cache.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
