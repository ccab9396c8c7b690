"""The state machine: agents, and what workers, time and faults may do meanwhile, in any order."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model.agent_rules import actors, losses, names, picks
from tests.model.base import TO_THE_END
from tests.model.lab import NOTHING
from tests.model.life_rules import LifeRules, spaces
from tests.model.observing import NAMESPACES, SCOPES, session_scope
from tests.model.state import SESSIONS, SPACES

actions = st.sampled_from(
    ["set", "set", "drop", "create", "delete", "shared", "space", "space", "fork", "touch", "erase"]
)
kinds = st.sampled_from(["append", "append", "update", "clear", "fork"])
forks = st.integers(0, 6)
overtakers = st.sampled_from([*SPACES, "takes"])
temperatures = st.sampled_from(["hot", "space", "all", "all"])
faults = st.sampled_from(["everything", "nothing", "files", "files", "fed"])


class SessionCacheMachine(LifeRules):
    """All rules."""

    # ---- workers

    @rule(worker=actors, steps=st.integers(1, 12), which=picks, lose=losses)
    def work(self, worker: int, steps: int, which: int, lose: str) -> None:
        """A worker does some steps of a round: claim, read, commit, acknowledge."""
        self.work_steps(self.workers[worker], steps, which, lose)

    @rule(worker=actors)
    def finish_round(self, worker: int) -> None:
        """A worker finishes its round, or does a whole one."""
        self.work_steps(self.workers[worker], TO_THE_END)

    # ---- races: what random order meets too seldom

    @rule(worker=actors, steps=st.integers(1, 9), which=picks, agent=actors, name=names, action=actions)
    def act_during_flush(self, worker: int, steps: int, which: int, agent: int, name: str, action: str) -> None:
        """An agent writes while a worker is somewhere between its claim and its acknowledgement."""
        self.work_steps(self.workers[worker], steps, which)
        self.act(agent, name, action)
        self.work_steps(self.workers[worker], TO_THE_END)

    @rule(worker=actors, steps=st.integers(1, 9), which=picks, agent=actors, name=names, action=actions)
    def overtake_worker(self, worker: int, steps: int, which: int, agent: int, name: str, action: str) -> None:
        """A worker is so slow that another one takes over, and flushes what was written since."""
        self.work_steps(self.workers[worker], steps, which)
        self.lab.end_leases([one.worker.name for one in self.workers])
        self.act(agent, name, action)
        self.work_steps(self.workers[1 - worker], TO_THE_END)
        self.work_steps(self.workers[worker], TO_THE_END)

    @rule(agent=actors, name=names, hold=st.integers(1, 5), loads=st.booleans(), action=actions, worker=actors)
    def overtake_loader(self, agent: int, name: str, hold: int, loads: bool, action: str, worker: int) -> None:
        """A loader is so slow that another one writes, a worker flushes it, and it is evicted."""
        self.work_steps(self.workers[worker], TO_THE_END)
        self.evict()
        if loads:
            self._get(agent, name, hold)
        else:
            self._create(agent, name, {"a": "number"}, hold, "")
        self.act(1 - agent, name, action)
        self.work_steps(self.workers[worker], TO_THE_END)
        self.evict()
        self.finish_calls()

    @rule(worker=actors, steps=st.integers(1, 9), which=picks, fault=faults, agent=actors, name=names, action=actions)
    def forget_during_flush(
        self, worker: int, steps: int, which: int, fault: str, agent: int, name: str, action: str
    ) -> None:
        """Redis forgets while a worker is at work; an agent goes on."""
        self.work_steps(self.workers[worker], steps, which)
        self._forget(fault, 0)
        self.act(agent, name, action)
        self.work_steps(self.workers[worker], TO_THE_END)

    @rule(
        worker=actors,
        agent=actors,
        name=names,
        space=spaces,
        dirty=st.booleans(),
        evicts=st.booleans(),
        kind=kinds,
        reads=st.booleans(),
    )
    def live_again(
        self, worker: int, agent: int, name: str, space: str, dirty: bool, evicts: bool, kind: str, reads: bool
    ) -> None:
        """A session with a namespace is deleted and created or forked again, and the namespace is used at once."""
        self._use_space(agent, name, space, "update", reads=False)
        if not dirty:
            self.work_steps(self.workers[worker], TO_THE_END)
        self._delete(agent, name)
        if evicts:
            self.work_steps(self.workers[worker], TO_THE_END)
            self.evict([session_scope(name)])
        if kind == "fork":
            self.act(agent, SESSIONS[1 - SESSIONS.index(name)], "fork")
        else:
            self._create(agent, name, {"a": "number"}, None, "")
        self._use_space(agent, name, space, kind if kind != "fork" else "append", reads=reads)

    @rule(agent=actors, name=names, hold=forks, space=spaces, others=overtakers, cold=temperatures, worker=actors)
    def overtake_fork(self, agent: int, name: str, hold: int, space: str, others: str, cold: str, worker: int) -> None:
        """A session is forked, cold or hot, while another agent writes to a namespace of it, or takes the new id."""
        child = SESSIONS[1 - SESSIONS.index(name)]
        self._delete(agent, child)
        self._use_space(agent, name, space, "update", reads=False)
        if cold != "hot":
            self.work_steps(self.workers[worker], TO_THE_END)
            self.evict(SCOPES if cold == "all" else [NAMESPACES[name, space]])
        self._get(agent, name)
        held = self.handle(-1)
        if held is None or held.agent in self.calls or held.name != name:
            return
        self._fork(held, child, hold)
        if others == "takes":
            self._create(1 - agent, child, {"b": "number"}, None, "")
        else:
            self._use_space(1 - agent, name, others, "update", reads=False)
        if cold == "all":
            self.work_steps(self.workers[worker], TO_THE_END)
            self.evict()
        self.finish_calls()

    def _use_space(self, agent: int, name: str, space: str, kind: str, *, reads: bool) -> None:
        """Change a namespace through a handle that was just read; `reads`: read the namespace before."""
        self._get(agent, name)
        held = self.handle(-1)
        if held is None or held.agent in self.calls or held.name != name:
            return
        if reads:
            self._read_space(held, space)
        if held.agent not in self.calls:
            self._change_space(held, space, kind, "a", self.value("a", "number"))

    # ---- time and faults

    @rule(scopes=st.sets(st.sampled_from(range(len(SCOPES))), min_size=1))
    def take_hashes(self, scopes: set[int]) -> None:
        """Redis takes clean hashes."""
        self.evict([SCOPES[index] for index in sorted(scopes)])

    @rule(fault=faults, pick=picks)
    def forget(self, fault: str, pick: int) -> None:
        """Redis forgets."""
        self._forget(fault, pick)

    @rule(
        event=st.sampled_from(
            ["leases", "kill", "kill", "clock", "temp", "grace", "grace", "purge", "purge", "janitor", "replica"]
        ),
        which=picks,
    )
    def happen(self, event: str, which: int) -> None:
        """Time passes, or a process ends."""
        if event == "leases":
            self.lab.end_leases([one.worker.name for one in self.workers])
        elif event == "kill":
            self._kill_worker(which % 2)
        elif event == "clock":  # what is written was revised by a clock an hour ahead, which is right from now on
            self.lab.hurry_clock(SCOPES[which % len(SCOPES)])
        elif event == "temp":
            self._expire_temp(SESSIONS[which % 2])
        elif event == "grace":
            self.lab.end_grace()
        elif event == "purge":
            self._purge()
        elif event == "janitor":
            self._compare()
        else:
            self._attach_replica()

    @rule(tier=st.sampled_from(["Redis", "SQL"]))
    def save(self, tier: str) -> None:
        """A tier is as its files, or a backup, will bring it back."""
        if tier == "Redis":
            self.snapshots.append(self.lab.snapshot())
            del self.snapshots[:-3]
        else:
            self.backups.append(self.lab.backup())
            del self.backups[:-3]

    @rule(pick=picks, told=st.booleans())
    def put_back(self, pick: int, told: bool) -> None:
        """SQL comes back older, and the operator says so at once, or later, or never."""
        if self.backups and not self.lab.switch.away:
            self.fall(self.backups[pick % len(self.backups)], told=told)

    @rule()
    def say_so(self) -> None:
        """The operator says what happened some time ago; or is not sure, and says it anyway."""
        if not self.lab.switch.away:
            self.say_restored()

    def _purge(self) -> None:
        """SQL forgets what was deleted long ago."""
        self.lab.purge()
        self.stored = self.lab.sql()

    def _compare(self) -> None:
        """The janitor compares both tiers."""
        if not self.lab.switch.away:
            assert self.lab.compare() or self.fallen, "the janitor finds a scope amiss"

    def _attach_replica(self) -> None:
        """A first replica attaches: Redis has another replication id, and has forgotten nothing (R17)."""
        before = self.lab.view()
        self.lab.change_replid()
        if not self.lab.switch.away:
            self.lab.look_at_incarnations()
            after = self.lab.view()
            for bucket, fence in before.sql.fences.items():
                kept = before.incarnation(bucket) in (None, after.incarnation(bucket))
                assert kept or before.incarnation(bucket) != fence.encode(), "a first replica ended an incarnation"

    @rule(tells=st.sampled_from(["back", "back", "away", "refuses", "takes"]))
    def database(self, tells: str) -> None:
        """The database goes away or comes back, refuses poison or takes it."""
        if tells in ("back", "away"):
            self.lab.switch.away = tells == "away"
            for call in self.calls.values():
                call.away = call.away or self.lab.switch.away
        else:
            self.refused = self.refused or tells == "refuses"
            self.lab.refuse(tells == "refuses")

    def _forget(self, fault: str, pick: int) -> None:
        if fault == "everything":
            self.fault(NOTHING)
        elif fault == "nothing":  # a restart with all of its files, or a replica that lacks nothing
            self.fault(self.lab.snapshot(), "restarted")
        elif self.snapshots:
            self.fault(self.snapshots[pick % len(self.snapshots)], "restarted" if fault == "files" else "fed")

    def _kill_worker(self, worker: int) -> None:
        """A worker is killed wherever it is; its claims end in time."""
        old = self.workers[worker]
        self.lab.run(old.crash())
        self.lab.end_leases([old.worker.name])
        self.lab.run(old.worker.aclose())
        self.workers[worker] = self.lab.worker()

    def _expire_temp(self, name: str) -> None:
        self.lab.expire_temp(session_scope(name))
        self.world = self.world.copy()
        life = self.world.lives[name]
        if life is not None:
            life.temp = {}
