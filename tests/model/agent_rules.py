"""The rules of agents: what they may call, to the end or held between two steps."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from sessioncache import Record, Session
from sessioncache.handle.unflushed_writes import Noted, fingerprint
from sessioncache.primitives.revisions import LARGEST, ZERO, decode_revision, revision_time
from tests.model.base import ModelMachine
from tests.model.calls import Done, Held, judge_flush, judge_read, judge_write
from tests.model.observing import Row, StoredHead
from tests.model.resting import told_by
from tests.model.state import (
    PREFIXES,
    SESSIONS,
    USER,
    Change,
    Outcome,
    Told,
    Values,
    World,
    changed,
    changed_shared,
    created,
    deleted,
    split,
    upserted,
)

actors = st.integers(0, 1)
# Few names: things have to meet for a race.
names = st.sampled_from([SESSIONS[0], SESSIONS[0], *SESSIONS])
picks = st.integers(0, 9)
own_keys = st.sampled_from("aab")
all_keys = st.builds("".join, st.tuples(st.sampled_from(["", *PREFIXES]), own_keys))
kinds = st.sampled_from(["number", "number", "list", "text", "null", "poison"])
states = st.dictionaries(all_keys, kinds, max_size=3)
times = st.sampled_from([1, 2, 3, LARGEST - 1, LARGEST])
"""Times that are given: long before any write, or long after."""
holds = st.sampled_from([None, None, None, 0, 1, 2, 3, 4])
"""Steps after which a call is held; None: it runs to its end."""
losses = st.sampled_from(["", "", "", "", "hot", "sql"])
"""The tier whose first answer does not arrive."""


class AgentRules(ModelMachine):
    """Calls of agents.

    What is drawn must not depend on what the servers did: a rule that has nothing to work on does nothing.
    """

    @initialize(state=states)
    def begin(self, state: dict[str, str]) -> None:
        """There is a session."""
        self._create(0, SESSIONS[0], state, None, "")

    # ---- agents: sessions

    @rule(agent=actors, name=names, state=states, hold=holds, lose=losses)
    def create_session(self, agent: int, name: str, state: dict[str, str], hold: int | None, lose: str) -> None:
        """Create a session, or meet one that is there."""
        self._create(agent, name, state, hold, lose)

    def _create(self, agent: int, name: str, state: dict[str, str], hold: int | None, lose: str) -> None:
        who, values = self.free(agent), self.values(state)
        if who is None:
            return

        def judge(done: Done) -> World:
            life = self.observe().lives[name]
            birth = done.value._birth if done.value else life.birth if life else b""
            session, done.value = done.value, None
            after = judge_write(lambda world: created(world, name, values, birth), self.observe)(done)
            if session:
                self.keep(who, session, name)
            return after

        self.call(who, who.cache.create(USER, session_id=name, state=values), judge, hold, lose)

    @rule(agent=actors, name=names, hold=holds, lose=losses)
    def get_session(self, agent: int, name: str, hold: int | None, lose: str) -> None:
        """Read a session, whole."""
        self._get(agent, name, hold, lose)

    def _get(self, agent: int, name: str, hold: int | None = None, lose: str = "") -> None:
        who = self.free(agent)
        if who is None:
            return

        def judge(done: Done) -> World:
            session: Session | None = done.value
            birth = session._birth if session else b""
            done.value = dict(session.state) if session else None
            after = judge_read(lambda world: world.merged(name, birth))(done)
            if session:
                self.keep(who, session, name)
            return after

        self.call(who, who.cache.get(USER, name), judge, hold, lose)

    @rule(agent=actors, name=names, hold=holds, lose=losses)
    def delete_session(self, agent: int, name: str, hold: int | None, lose: str) -> None:
        """Delete a session of whatever life."""
        self._delete(agent, name, hold, lose)

    def _delete(self, agent: int, name: str, hold: int | None = None, lose: str = "") -> None:
        who = self.free(agent)
        if who is not None:
            judge = judge_write(lambda world: deleted(world, name), self.observe)
            self.call(who, who.cache.delete(USER, name), judge, hold, lose)

    @rule(agent=actors, everybody=st.booleans())
    def list_sessions(self, agent: int, everybody: bool) -> None:
        """List the sessions of the user, or of all users."""
        who = self.free(agent)
        if who is None:
            return

        async def run() -> dict[str, Told]:
            page = await who.cache.list(None if everybody else USER)
            return {item.id: told_by(item) for item in page.items}

        self.call(who, run(), judge_read(lambda world: {name: one.told for name, one in world.lives.items() if one}))

    # ---- agents: keys

    @rule(pick=picks, state=states, delete=st.sets(all_keys, max_size=2), hold=holds, lose=losses)
    def update(self, pick: int, state: dict[str, str], delete: set[str], hold: int | None, lose: str) -> None:
        """Set and delete keys, in several scopes at once."""
        held, values = self.handle(pick), self.values(state)
        gone = tuple(sorted(delete - values.keys()))
        if held is not None:
            self._change(held, Change("update", values, gone), held.handle.update(values, delete=gone), hold, lose)

    @rule(pick=picks, key=all_keys, hold=holds, lose=losses)
    def delete_key(self, pick: int, key: str, hold: int | None, lose: str) -> None:
        """Delete one key."""
        held = self.handle(pick)
        if held is not None:
            self._change(held, Change("delete", {key: None}), held.handle.delete(key), hold, lose)

    @rule(pick=picks, key=all_keys, by=st.sampled_from([1, -7, 10**16]), hold=holds, lose=losses)
    def increment(self, pick: int, key: str, by: int, hold: int | None, lose: str) -> None:
        """Add to a number; a large one is added by the client and written by compare-and-set."""
        held = self.handle(pick)
        if held is not None:
            self._change(held, Change("increment", {key: by}), held.handle.increment(key, by), hold, lose)

    @rule(pick=picks, key=all_keys, hold=holds, lose=losses)
    def append(self, pick: int, key: str, hold: int | None, lose: str) -> None:
        """Append to a list."""
        held, item = self.handle(pick), self.value(key, "text")
        if held is not None:
            self._change(held, Change("append", {key: item}), held.handle.append(key, item), hold, lose)

    @rule(pick=picks, key=own_keys, at=times, hold=holds, lose=losses)
    def upsert_record(self, pick: int, key: str, at: int, hold: int | None, lose: str) -> None:
        """Give a record of a given time; an older one than there is changes nothing."""
        held, value = self.handle(pick), self.value(key, "number")
        if held is None:
            return

        def expect(world: World) -> Outcome:
            return upserted(world, held.name, held.birth, key, value, at)

        run = held.handle.upsert_record(Record(key, value, revision_time(at)))
        self.call(held.agent, run, judge_write(expect, self.observe), hold, lose)

    @rule(pick=picks, key=own_keys, hold=holds, lose=losses)
    def update_if_unchanged(self, pick: int, key: str, hold: int | None, lose: str) -> None:
        """Read the own keys, then write only if their revision is the same."""
        held, value = self.handle(pick), self.value(key, "number")
        if held is None:
            return
        before: list[Values] = []

        async def run() -> None:
            await held.handle.refresh()
            before.append(dict(self.world.values(held.name, held.birth, "")))
            await held.handle.update({key: value}, if_revision=held.handle.revision)

        def expect(world: World) -> Outcome:
            assert not before or world.values(held.name, held.birth, "") == before[0], "an update was lost"
            return changed(world, held.name, held.birth, Change("update", {key: value}))

        self.call(held.agent, run(), judge_write(expect, self.observe), hold, lose)

    @rule(pick=picks, keys=st.sets(all_keys, min_size=1, max_size=2), hold=holds, lose=losses)
    def edit(self, pick: int, keys: set[str], hold: int | None, lose: str) -> None:
        """Change keys in a draft, where nobody else changed them meanwhile."""
        held, values = self.handle(pick), self.values(dict.fromkeys(sorted(keys), "number"))
        if held is None:
            return
        before: Values = {}

        async def run() -> None:
            async with held.handle.edit() as draft:
                before.update(self.world.merged(held.name, held.birth))
                assert dict(draft) == before, f"the draft shows {dict(draft)!r}, expected {before!r}"
                draft.update(values)

        def expect(world: World) -> Outcome:
            now, absent = world.merged(held.name, held.birth), object()
            assert all(now.get(key, absent) == before.get(key, absent) for key in values), "an update was lost"
            return changed(world, held.name, held.birth, Change("update", values))

        self.call(held.agent, run(), judge_write(expect, self.observe), hold, lose)

    @rule(agent=actors, which=st.sampled_from(["user", "app"]), key=own_keys, hold=holds, lose=losses)
    def increment_shared(self, agent: int, which: str, key: str, hold: int | None, lose: str) -> None:
        """Add to a number of a shared scope, without a session."""
        self._increment_shared(agent, which, key, hold, lose)

    def _increment_shared(self, agent: int, which: str, key: str, hold: int | None = None, lose: str = "") -> None:
        who = self.free(agent)
        if who is None:
            return
        scope = who.cache.user_scope(USER) if which == "user" else who.cache.app_scope()
        change = Change("increment", {key: 1})
        judge = judge_write(lambda world: changed_shared(world, which, change), self.observe)
        self.call(who, scope.increment(key), judge, hold, lose)

    @rule(pick=picks, key=all_keys, hold=holds)
    def read_key(self, pick: int, key: str, hold: int | None) -> None:
        """Read one key through a handle."""
        held, (prefix, name) = self.handle(pick), split(key)
        if held is not None:
            judge = judge_read(lambda world: world.values(held.name, held.birth, prefix).get(name, "absent"))
            self.call(held.agent, held.handle.get(key, "absent"), judge, hold)

    def act(self, agent: int, name: str, action: str) -> None:
        """What an agent does while something else is under way."""
        if action == "create":
            self._create(agent, name, {"a": "number"}, None, "")
        elif action == "delete":
            self._delete(agent, name)
        elif action == "shared":
            self._increment_shared(agent, "user", "a")
            self._increment_shared(agent, "app", "a")
        else:
            self._get(agent, name)
            self._rewrite(action == "drop")

    def _rewrite(self, drop: bool) -> None:
        """Set or delete a key through the latest handle."""
        held = self.handle(-1)
        if held is not None and held.agent not in self.calls:
            values = {} if drop else self.values({"a": "number"})
            gone = ("a",) if drop else ()
            self._change(held, Change("update", values, gone), held.handle.update(values, delete=gone), None, "")

    def _change(self, held: Held, change: Change, run: Any, hold: int | None, lose: str) -> None:
        def expect(world: World) -> Outcome:
            return changed(world, held.name, held.birth, change)

        def judge(done: Done) -> World:
            done.value = None if change.kind == "update" else done.value
            after = judge_write(expect, self.observe)(done)
            if done.error is None and change.space and change.values and change.kind == "update":
                self.check_in_use(held)
            return after

        self.call(held.agent, run, judge, hold, lose)

    # ---- agents: flush()

    @rule(pick=picks, hold=holds)
    def flush(self, pick: int, hold: int | None) -> None:
        """Ask whether what was written through a handle is durable; a yes must be true."""
        held = self.handle(pick)
        if held is not None:
            judge = judge_flush(held, self._proof(held))
            self.call(held.agent, held.handle.flush(0.04), judge, hold)

    def _proof(self, held: Held) -> Any:
        """Checks in SQL what a handle has written until now."""
        pending = held.handle._unflushed.pending() if held.handle._unflushed else []

        def proof() -> None:
            sql = self.lab.view().sql
            for one in pending:
                scope = one.place.ref
                cleared, rows = sql.cleared(scope), sql.rows.get(scope.id, {})
                head, whole = sql.heads.get(scope.rows_id, StoredHead()), decode_revision(one.whole or ZERO)
                assert head.updated >= decode_revision(one.head or ZERO), "flush() says yes, and SQL lacks a touch"
                left = [key for key, row in rows.items() if cleared < row[0] <= whole and not row[2]]
                assert not left, f"flush() says yes, and SQL has {left} of {held.name}, which were cleared"
                in_force = sql.fences.get(scope.bucket) == one.incarnation.decode()
                for key, noted in one.entries.items():
                    wanted, row = decode_revision(noted.revision), rows.get(key, (0, "", True))
                    fine = row[0] == wanted or (in_force and max(row[0], cleared) >= wanted)
                    fine = fine or _is_stamped_anew(row, cleared, noted)
                    assert fine, f"flush() says yes, and SQL lacks {key!r} of {held.name}"

        return proof

    # ---- calls that are held go on

    @rule(agent=actors, steps=st.integers(1, 4), which=picks)
    def go_on(self, agent: int, steps: int, which: int) -> None:
        """A call that is held does some more steps."""
        if self.agents[agent] in self.calls:
            self.advance(self.agents[agent], steps, which)


def _is_stamped_anew(row: Row, cleared: int, noted: Noted) -> bool:
    """Whether SQL, which had forgotten it, has what was written of a key again, under a later revision.

    Of what built on what was there, nothing tells it from another's, which built on the same.
    """
    wanted, (revision, stored, is_gone) = decode_revision(noted.revision), row
    if noted.exact:
        return False
    if not noted.text:
        return max(revision, cleared) >= wanted and (is_gone or revision <= cleared)
    return revision >= wanted and not is_gone and fingerprint(stored.encode()) == noted.text
