"""How the state machine drives the real code, and what has to hold after each step and at rest."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterable
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine, invariant

from sessioncache import Session
from sessioncache.errors import DurableTierUnavailableError, HotTierUnavailableError
from sessioncache.operations.dead_letters import DeadLetterQueue
from sessioncache.primitives.deadline import within
from sessioncache.primitives.scopes import ScopeRef
from sessioncache.primitives.values import encode_value
from tests.keys import offences
from tests.model.actors import Agent, Worker
from tests.model.calls import Call, Done, Effect, Held, Judge
from tests.model.lab import Backup, Lab, Snapshot
from tests.model.observing import APP_SCOPE, BUCKETS, LAYOUT, NAMESPACES, SCOPES, Sql, View, session_scope
from tests.model.resting import Cell, differences, fallen_cells, read_all
from tests.model.state import SESSIONS, SPACES, Values, World

TO_THE_END = 400
"""Steps after which every call has to be over."""
_MOST_HANDLES = 5
_ROUNDS = 12
"""Turns of worker and janitor after which nothing may be amiss."""
_DRAIN = 20.0
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
        self.backups: list[Backup] = []
        self.given_up: set[Cell] = set()
        """What no tier had any more at some time, and was not written since: it may be shown as any tier has it."""
        self.fallen = False
        """Whether SQL came back older and the command was not run since: what is clean may be gone from SQL."""
        self.blind: set[Cell] = set()
        """What a fork may lack that is made now."""
        self.forgot = self.restored = False
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
        assert self.fallen or not lacking, f"clean, but not durable: {sorted(lacking.values())}"
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
        for bucket, revision in self.stored.purged.items():
            assert sql.purged.get(bucket, 0) >= revision, "SQL forgot what was purged"
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
        self._drain()
        self.fallen = False
        view = self.lab.view()
        self._adopt(view)
        assert not view.marks(), "something is dirty at rest"
        assert view.sql_world() == self.world.without_temp(), f"SQL has {view.sql_world()}, expected {self.world}"
        self.tiers_say_what_the_model_says()
        self.lab.evict()
        reader = self.lab.agent()
        shown = self.lab.run(read_all(reader, self.world))
        assert shown == self.world, f"cold reads show {shown}, expected {self.world}"
        self.tiers_say_what_the_model_says()
        self.lab.run(reader.cache.aclose())

    def _drain(self) -> None:
        """Worker and janitor run until neither finds anything to do; what the database refused before is flushed."""
        for _ in range(_ROUNDS):
            self.lab.run(self._flush_all())
            self._settle()
            if self.lab.compare():
                return
            assert self.fallen, "the janitor finds a scope amiss"
            self._settle()
        raise AssertionError("worker and janitor do not come to an end")

    async def _flush_all(self) -> None:
        drainer = self.lab.worker()
        letters = DeadLetterQueue(drainer.tiers)
        for letter in await letters.list():
            await letters.retry(letter.id)
        try:
            await asyncio.wait_for(drainer.worker.flush_once(), _DRAIN)
        except TimeoutError:
            raise AssertionError(f"flushing does not end; Redis has {self.lab.view().hot}") from None
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
        self.calls[agent] = Call(judge, away=away or bool(lose), loses=bool(lose), effect=effect)
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
            call = self.calls[agent]
            if call.effect is not None:
                self._take(call.effect(self.world))
            if not task.done() and (agent.gate.lose or not call.loses):
                self._settle()
        assert task.done() or steps < TO_THE_END, "a call does not end"
        if task.done():
            call = self.calls.pop(agent)
            agent.gate.lose, agent.task = "", None
            error = task.exception()
            result, worlds = None if error else task.result(), [*call.worlds, self.world]
            done = Done(result, error, worlds, call.away, self.forgot, self.restored, self.erased)
            self._take(call.judge(done))
            for other in self.calls.values():  # a rule may make several calls
                other.worlds.append(self.world)

    def _take(self, world: World) -> None:
        before, self.world = self.world, world
        if self.given_up:
            self._wrote(before, world)
        self.given_up |= self.blind
        self.blind = set()

    def fork_blindly(self, name: str, child: str) -> None:
        """A fork asks SQL for the namespaces: one that SQL has forgotten, and nobody has noticed, is not found."""
        if self.fallen:
            alone = self.lab.view().only_hot()
            pairs = {NAMESPACES[name, space].id: NAMESPACES[child, space].id for space in SPACES}
            self.blind |= {(pairs[scope], field) for scope, field in alone if scope in pairs}

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

    def fault(self, snapshot: Snapshot, how: str = "") -> None:
        """Redis has what a snapshot has, and nothing else.

        Only what was dirty may be lost, or what SQL had forgotten before, and only what was given up may come back.
        """
        before = self.lab.view()
        own = before.marks() | (before.only_hot() if self.fallen else set())
        self.lab.restore(snapshot, how)
        self.forgot = True
        after = self.lab.view()
        self.given_up |= {cell for cell in own if after.held(cell) != before.held(cell)}
        self.unsettled = {bucket: after.sql.fences.get(bucket) for bucket in range(BUCKETS)}
        self._adopt(after, "Redis forgot")

    def fall(self, backup: Backup, *, told: bool) -> None:
        """SQL has what a backup has; `told`: the operator's command follows at once.

        What is hot is not lost.
        """
        before = self.lab.view()
        self.lab.put_back(backup)
        after = self.lab.view()
        whole = {ref.id for ref in SCOPES if before.is_in_use(ref)}
        self.given_up |= {cell for cell in fallen_cells(before.sql, after.sql) if cell[0] not in whole}
        self.fallen, self.forgot = True, True
        self.stored = after.sql
        self._adopt(after, "SQL forgot")
        if told:
            self.say_restored()

    def say_restored(self) -> None:
        """The operator says that SQL was restored: from then on nothing that is hot may be lost."""
        self.lab.say_restored()
        self.fallen, self.restored = False, True
        self.unsettled = {}
        self.stored = self.lab.view().sql

    def evict(self, scopes: Iterable[ScopeRef] = SCOPES) -> None:
        """Redis takes clean hashes: nothing is lost with them, unless SQL came back older and nobody has noticed."""
        chosen = list(scopes)
        if self.fallen:
            ids = {ref.id for ref in chosen}
            self.given_up |= {cell for cell in self.lab.view().only_hot() if cell[0] in ids}
        self.lab.evict(chosen)

    def _wrote(self, before: World, after: World) -> None:
        """What was written is owed again, and all that is of another life."""
        written = differences(before, after)
        reborn = {session_scope(name).id for name in SESSIONS if _birth(before, name) != _birth(after, name)}
        reborn |= {ref.id for ref in NAMESPACES.values() if ref.holder in reborn}
        self.given_up = {cell for cell in self.given_up if cell not in written and cell[0] not in reborn}

    def _settle(self) -> None:
        if self.unsettled or self.given_up:
            self._adopt(self.lab.view())

    def _adopt(self, view: View, why: str = "") -> None:
        """What was given up may be shown as any tier has it.

        Until SQL knows the new incarnation, a worker may still commit what Redis has forgotten.
        """
        seen = view.world()
        for bucket, fence in list(self.unsettled.items()):
            if view.sql.fences.get(bucket) != fence:
                del self.unsettled[bucket]
            elif bucket == APP_SCOPE.bucket:
                self.world = World(self.world.lives, self.world.user, seen.app)
            else:
                self.world = World(seen.lives, seen.user, self.world.app)
        changed = differences(self.world, seen)
        lost = {cell for cell in changed if not self._may_change(cell)}
        assert not (why and lost), f"{why} {lost}, which a tier still had, or brought back what was deleted"
        if why or (changed and not lost):
            self.world = seen

    def _may_change(self, cell: Cell) -> bool:
        """Whether it was given up, or the head of its session was."""
        session = next((ref.holder for ref in NAMESPACES.values() if ref.id == cell[0]), cell[0])
        return cell in self.given_up or (session, b"!") in self.given_up

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


def _birth(world: World, name: str) -> bytes | None:
    life = world.lives[name]
    return life.birth if life else None


async def _hurried(run: Coroutine[Any, Any, Any]) -> Any:
    with within(_SHORT):
        return await run
