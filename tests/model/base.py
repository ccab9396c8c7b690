"""How the state machine drives the real code, and what has to hold after each step and at rest."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine, invariant

from sessioncache import Session
from sessioncache.comparing import compare
from sessioncache.deadline import within
from sessioncache.errors import DurableTierUnavailableError, HotTierUnavailableError
from sessioncache.letters import LetterBox
from sessioncache.scopes import ScopeRef
from sessioncache.values import encode_value
from tests.keys import offences
from tests.model.actors import Agent, Worker
from tests.model.calls import Call, Done, Effect, Held, Judge
from tests.model.lab import Lab, Snapshot
from tests.model.observing import APP_SCOPE, BUCKETS, LAYOUT, SCOPES, USER_SCOPE, Sql, View
from tests.model.resting import differences, read_all
from tests.model.state import SESSIONS, Values, World

TO_THE_END = 400
"""Steps after which every call has to be over."""
_MOST_HANDLES = 5
_DRAIN = 5.0
"""Seconds that the last flush may take."""
_SHORT = 0.1
"""Seconds that a call takes at most while the database is away."""


class ModelMachine(RuleBasedStateMachine):
    """One example: both tiers are empty at the start, at rest and equal at the end."""

    lab: ClassVar[Lab]

    def __init__(self) -> None:
        super().__init__()
        lab = self.lab
        lab.reset()
        self.world = World(dict.fromkeys(SESSIONS))
        self.agents = [lab.agent() for _ in range(2)]
        self.workers = [lab.worker() for _ in range(2)]
        self.handles: list[Held] = []
        self.calls: dict[Agent, Call] = {}
        self.snapshots: list[Snapshot] = []
        self.unsettled: dict[int, str | None] = {}
        """Bucket that Redis forgot -> the fence then: until it moves, what a worker still commits counts."""
        self.forgot = False
        self.refused = False
        self.erased = False
        self.stored: Sql = lab.view().sql
        self.temps: set[str] = set()
        self.written = 0

    # ---- what holds after each step

    @invariant()
    def tiers_say_what_the_model_says(self) -> None:
        """What can be read is what the model says; keys are whole; SQL never goes back and has no `temp:` values."""
        view = self.lab.view()
        self._adopt(view)
        seen = view.world()
        assert seen == self.world, f"the tiers show\n  {seen}\nexpected\n  {self.world}"
        self._check_updated(seen)
        wrong = sorted(set(offences(view.hot, LAYOUT)))
        assert not wrong, wrong
        lacking = view.lacking()
        assert not lacking, f"clean, but not durable: {lacking}"
        torn = view.torn()
        assert not torn, f"SQL knows the session, and lacks what it was created with: {torn}"
        self._check_sql(view.sql)
        for call in self.calls.values():
            call.worlds.append(self.world)

    def _check_updated(self, seen: World) -> None:
        """The time of the last use of a life never goes back."""
        for name, life in seen.lives.items():
            known = self.world.lives[name]
            assert not life or not known or life.updated >= known.updated, f"{name} was updated earlier than before"
        self.world = seen

    def check_in_use(self, held: Held) -> None:
        """A call that has just been made moved the time of the last use."""
        known, life = self.world.lives[held.name], self.observe().lives[held.name]
        if known and life and known.birth == life.birth == held.birth:
            assert life.updated > known.updated, f"{held.name} does not show that it was in use"

    def _check_sql(self, sql: Sql) -> None:
        for scope, head in self.stored.heads.items():
            assert scope in sql.heads, "a head left SQL"
            assert sql.heads[scope].revision >= head.revision, "a head of SQL went back"
        for ref in SCOPES:
            self._check_rows(sql, ref)
        texts = {row[1] for rows in sql.rows.values() for row in rows.values()}
        assert not texts & self.temps, "a temp: value is in SQL"
        self.stored = sql

    def _check_rows(self, sql: Sql, ref: ScopeRef) -> None:
        """A row leaves SQL only when it is dead, and never comes in dead."""
        before, rows = self.stored.rows.get(ref.id, {}), sql.rows.get(ref.id, {})
        for key, row in before.items():
            assert rows.get(key, (0, "", False))[0] >= row[0] or sql.cleared(ref) >= row[0], (
                f"the row of {key} went back"
            )
        for key in rows.keys() - before.keys():
            assert rows[key][0] > self.stored.cleared(ref), f"a dead row of {key} came into SQL"

    def teardown(self) -> None:
        """At rest: hot == cold == SQL == model."""
        try:
            if sys.exc_info()[0] is None:
                self._come_to_rest()
        finally:
            self.lab.run(self._end())

    def _come_to_rest(self) -> None:
        self.lab.switch.away = False
        self.lab.refuse(False)
        for agent in list(self.calls):
            self.advance(agent, TO_THE_END)
        for worker in self.workers:
            if worker.task is not None:
                self.work_steps(worker, TO_THE_END)
        self.tiers_say_what_the_model_says()
        self.lab.end_leases([worker.worker.name for worker in self.workers])
        self.lab.run(self._drain())
        view = self.lab.view()
        assert not view.marks(), "something is dirty at rest"
        assert view.sql_world() == self.world.without_temp(), f"SQL has {view.sql_world()}, expected {self.world}"
        self.tiers_say_what_the_model_says()
        self.lab.evict()
        reader = self.lab.agent()
        shown = self.lab.run(read_all(reader, self.world))
        assert shown == self.world, f"cold reads show {shown}, expected {self.world}"
        self.tiers_say_what_the_model_says()
        self.lab.run(reader.cache.aclose())

    async def _drain(self) -> None:
        """Everything is flushed, what the database refused before too."""
        drainer = self.lab.worker()
        letters = LetterBox(drainer.tiers)
        for letter in await letters.list():
            await letters.retry(letter.id)
        try:
            await asyncio.wait_for(drainer.worker.flush_once(), _DRAIN)
        except TimeoutError:
            raise AssertionError(f"flushing does not end; Redis has {self.lab.view().hot}") from None
        for ref in SCOPES:
            assert await compare(drainer.tiers, ref.bucket, ref.member), f"the janitor finds {ref} amiss"
        await drainer.worker.aclose()

    async def _end(self) -> None:
        for actor in (*self.agents, *self.workers):
            await actor.crash()
            await actor.tiers.aclose()

    # ---- agents

    def free(self, agent: int) -> Agent | None:
        """An agent that is not at work, if need be after it has finished what it does."""
        wanted, other = self.agents[agent], self.agents[1 - agent]
        for one in (wanted, other):
            if one not in self.calls:
                return one
        return wanted if self._finish(wanted) else None

    def handle(self, pick: int) -> Held | None:
        """One of the handles that are kept, its agent being free; None: there is none."""
        if not self.handles:
            return None
        held = self.handles[pick % len(self.handles)]
        return held if held.agent not in self.calls or self._finish(held.agent) else None

    def keep(self, agent: Agent, session: Session, name: str) -> None:
        """Keep a handle."""
        self.handles.append(Held(agent, session, name, session._birth))
        del self.handles[:-_MOST_HANDLES]

    def finish_calls(self) -> None:
        """Let all calls that are held go on to their end, unless the database is away."""
        for agent in list(self.calls):
            self._finish(agent)

    def _finish(self, agent: Agent) -> bool:
        if self.lab.switch.away:
            return False
        self.advance(agent, TO_THE_END)
        return True

    def call(
        self,
        agent: Agent,
        run: Coroutine[Any, Any, Any],
        judge: Judge,
        hold: int | None = None,
        lose: str = "",
        effect: Effect | None = None,
    ) -> None:
        """Begin a call; it is held after `hold` steps (None: never).  `lose`: the tier whose first answer is lost.

        A call whose answer is lost is not held: what it did is there, and only its repetition tells that it is.
        `effect`: what is asked after each step, of a call that goes on after it has changed something.
        """
        self.lab.end_loaders()
        away, lose = self.lab.switch.away, "" if hold is not None else lose
        agent.gate.lose = lose
        self.calls[agent] = Call(judge, away=away or bool(lose), effect=effect)
        self.lab.run(agent.begin(_hurried(run) if away else run))
        self.advance(agent, TO_THE_END if hold is None else hold)

    def advance(self, agent: Agent, steps: int, which: int = 0) -> None:
        """Let a call go on for some steps, and judge it when it is over."""
        task = agent.task
        assert task is not None
        if steps == TO_THE_END:
            self.lab.end_loaders()  # of a call that is held meanwhile
        for _ in range(steps):
            if task.done():
                break
            self.lab.run(agent.step(which))
            effect = self.calls[agent].effect
            if effect is not None:
                self.world = effect(self.world)
            if not task.done():
                self._settle()
        assert task.done() or steps < TO_THE_END, "a call does not end"
        if task.done():
            call = self.calls.pop(agent)
            agent.gate.lose, agent.task = "", None
            error = task.exception()
            result, worlds = None if error else task.result(), [*call.worlds, self.world]
            done = Done(result, error, worlds, call.away, self.forgot, self.erased)
            self.world = call.judge(done)
            for other in self.calls.values():  # a rule may make several calls
                other.worlds.append(self.world)

    # ---- workers

    def work_steps(self, worker: Worker, steps: int, which: int = 0, lose: str = "") -> None:
        """Let a worker do some steps of a round, a new one if it is idle."""
        if worker.task is None:
            self.lab.end_loaders()
            worker.troubled = False
            self.lab.run(worker.begin(worker.round()))
        task = worker.task
        assert task is not None
        worker.gate.lose = lose or worker.gate.lose
        worker.troubled = worker.troubled or bool(lose) or self.lab.switch.away
        for _ in range(steps):
            if task.done():
                break
            self.lab.run(worker.step(which))
            self._settle()
            self._check_sql(self.lab.sql())
        assert task.done() or steps < TO_THE_END, "a round does not end"
        if task.done():
            worker.task, worker.gate.lose = None, ""
            error = task.exception()
            away = isinstance(error, (DurableTierUnavailableError, HotTierUnavailableError))
            assert error is None or (away and (worker.troubled or self.refused)), repr(error)

    # ---- faults

    def fault(self, snapshot: Snapshot, *, restart: bool) -> None:
        """Redis has what a snapshot has, and nothing else.

        Only what was dirty may be lost; what comes back from an older file was dirty there.
        """
        before, marks = self.world, self.lab.view().marks()
        self.lab.restore(snapshot, restart=restart)
        view = self.lab.view()
        self.forgot = True
        self.unsettled = {bucket: view.sql.fences.get(bucket) for bucket in range(BUCKETS)}
        self.world = view.world()
        lost = differences(before, self.world) - marks - view.marks()
        if (USER_SCOPE.id, b"!") in marks:  # what was erased hot comes back where SQL has not been told
            lost = {one for one in lost if one[0] != USER_SCOPE.id or before.user}
        assert not lost, f"Redis forgot {lost}, which it said was durable"

    def _settle(self) -> None:
        if self.unsettled:
            self._adopt(self.lab.view())

    def _adopt(self, view: View) -> None:
        """Until SQL knows the new incarnation, a worker may still commit what Redis has forgotten."""
        seen = view.world()
        for bucket, fence in list(self.unsettled.items()):
            if view.sql.fences.get(bucket) != fence:
                del self.unsettled[bucket]
            elif bucket == APP_SCOPE.bucket:
                self.world = World(self.world.lives, self.world.user, seen.app)
            else:
                self.world = World(seen.lives, seen.user, self.world.app)

    # ---- values

    def value(self, key: str, kind: str) -> Any:
        """A value that no other write bears."""
        self.written += 1
        if kind == "number":
            return 100 * self.written
        made: Any = [self.written] if kind == "list" else None if kind == "null" else f"{kind}-{self.written}"
        if key.startswith("temp:") and made is not None:
            self.temps.add(encode_value(key, made).decode())
        return made

    def values(self, kinds: dict[str, str]) -> Values:
        """A value for each key."""
        return {key: self.value(key, kind) for key, kind in kinds.items()}

    def observe(self) -> World:
        """What the tiers show now."""
        return self.lab.view().world()


async def _hurried(run: Coroutine[Any, Any, Any]) -> Any:
    with within(_SHORT):
        return await run
