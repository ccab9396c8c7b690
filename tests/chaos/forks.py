"""Forks of an actor's session: made, used beside it, deleted, and made again under the same id."""

from __future__ import annotations

import random
from collections.abc import Iterator

from sessioncache import Session, SessionCache, SessionNotFoundError
from tests.chaos import cells
from tests.chaos.cast import KEYS, SPACE, life_key
from tests.chaos.journal import Journal


class Fork:
    """The one fork that an actor keeps of its session.

    Just before it forks, the actor marks its session with a number: that is what tells one fork from another, since
    it is copied with all else.
    """

    def __init__(
        self,
        cache: SessionCache,
        journal: Journal,
        user: str,
        name: str,
        numbers: Iterator[int],
        chance: random.Random,
    ) -> None:
        self._cache, self._journal, self._numbers, self._chance = cache, journal, numbers, chance
        self._user, self._id = user, name
        self._session: Session | None = None
        self._life = 0
        self._looked = False

    @property
    def wants_parent(self) -> bool:
        """Whether the next thing to do is to fork."""
        return self._looked and self._session is None

    async def make(self, parent: Session, life: int) -> None:
        """Fork a session that lives this life, whole."""
        mark = next(self._numbers)
        own, child = cells.private_cell(self._user, parent.id, life, ""), cells.life_cell(self._user, self._id)
        with self._journal.call(sets={own + "mark": mark}, life=[cells.life_cell(self._user, parent.id), life]):
            await parent.set("mark", {"n": mark})
        self._looked = False
        fork = {"of": own, "into": cells.private_cell(self._user, self._id, mark, "")}
        fact = [cells.life_cell(self._user, parent.id), life]
        with self._journal.call(sets={child: mark}, fork=fork, life=fact):
            made = await parent.fork(new_id=self._id)
            assert not [key for key in made.state if key.startswith("temp:")], "temp: keys were forked"
            assert made.forked_from == parent.id, "the fork does not say what it was forked from"
        self._session, self._life, self._looked = made, mark, True

    async def act(self) -> None:
        """Use the fork by itself; look for it where it is not known whether there is one."""
        if self._session is None:
            await self._find()
            return
        session, self._session = self._session, None
        done = self._chance.choice([self._use, self._use, self._use_space, self._look, self._end])
        self._looked = False
        if await done(session):
            self._session = session
        self._looked = True

    async def _find(self) -> None:
        life_cell = cells.life_cell(self._user, self._id)
        try:
            found = await self._cache.get(self._user, self._id)
        except SessionNotFoundError:
            self._journal.note(seen=life_cell, n=None)
        else:
            self._session, self._life = found, found.state[life_key(self._id)]["n"]
            self._journal.note(seen=life_cell, n=self._life)
        self._looked = True

    async def _use(self, session: Session) -> bool:
        key, number = self._chance.choice(KEYS), next(self._numbers)
        with self._journal.call(sets={self._cell(key): number}, life=self._fact()):
            await session.set(key, cells.value_of(number, self._chance))
        with self._journal.call(adds=self._cell(cells.MESSAGES), by=1, life=self._fact()):
            await session.touch(messages=1, tokens=cells.TOKENS_A_MESSAGE)
        return True

    async def _use_space(self, session: Session) -> bool:
        key, number = self._chance.choice(KEYS), next(self._numbers)
        with self._journal.call(sets={self._cell(cells.space_key(key)): number}, life=self._fact()):
            await session.namespace(SPACE).set(key, cells.value_of(number, self._chance))
        return True

    async def _look(self, session: Session) -> bool:
        """What was forked is there, and what the parent wrote since is not."""
        key = self._chance.choice(KEYS)
        value, within = await session.get(key), await session.namespace(SPACE).get(key)
        self._journal.note(seen=self._cell(key), n=cells.number_of(value))
        self._journal.note(seen=self._cell(cells.space_key(key)), n=cells.number_of(within))
        return True

    async def _end(self, session: Session) -> bool:
        with self._journal.call(sets={cells.life_cell(self._user, self._id): None}):
            await self._cache.delete(self._user, session.id)
        return False

    def _cell(self, key: str) -> str:
        return cells.private_cell(self._user, self._id, self._life, key)

    def _fact(self) -> list[object]:
        """That the fork lives this life, if the call succeeds."""
        return [cells.life_cell(self._user, self._id), self._life]
