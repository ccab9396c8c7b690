"""The rules of agents that concern whole sessions: namespaces, forks, touches, resuming, clearing, erasing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from sessioncache import Session, SessionInfo
from sessioncache.errors import OutcomeUnknownError, SessionCacheError
from tests.model.agent_rules import AgentRules, actors, holds, kinds, losses, names, picks
from tests.model.calls import Done, Held, judge_error, judge_read, judge_write
from tests.model.resting import told_by
from tests.model.state import SESSIONS, SPACES, USER, Change, Told, World, forked, touched

spaces = st.sampled_from([SPACES[0], SPACES[0], *SPACES])
# A prefix means nothing in a namespace.
space_keys = st.sampled_from(["a", "a", "user:a"])
titles = st.sampled_from(["", "title"])
space_changes = st.sampled_from(["update", "update", "update", "drop", "delete", "increment", "append", "clear"])


class LifeRules(AgentRules):
    """What agents do with whole sessions, and with parts of them."""

    # ---- namespaces

    @rule(pick=picks, space=spaces, kind=space_changes, key=space_keys, value=kinds, hold=holds, lose=losses)
    def change_namespace(
        self, pick: int, space: str, kind: str, key: str, value: str, hold: int | None, lose: str
    ) -> None:
        """Change a namespace through a session's handle."""
        held, made = self.handle(pick), self.value(key, value)
        if held is not None:
            self._change_space(held, space, kind, key, made, hold, lose)

    def _change_space(
        self, held: Held, space: str, kind: str, key: str, made: Any, hold: int | None = None, lose: str = ""
    ) -> None:
        scope = held.handle.namespace(space)
        calls: dict[str, tuple[Callable[[], Any], Change]] = {
            "update": (lambda: scope.set(key, made), Change("update", {key: made})),
            "drop": (lambda: scope.update({}, delete=[key]), Change("update", {}, (key,))),
            "delete": (lambda: scope.delete(key), Change("delete", {key: None})),
            "increment": (lambda: scope.increment(key, 3), Change("increment", {key: 3})),
            "append": (lambda: scope.append(key, made), Change("append", {key: made})),
            "clear": (scope.clear, Change("clear")),
        }
        run, change = calls[kind]
        self._change(held, Change(change.kind, change.values, change.delete, space), run(), hold, lose)

    @rule(pick=picks, space=spaces, hold=holds, lose=losses)
    def read_namespace(self, pick: int, space: str, hold: int | None, lose: str) -> None:
        """Read a namespace, whole."""
        held = self.handle(pick)
        if held is not None:
            self._read_space(held, space, hold, lose)

    def _read_space(self, held: Held, space: str, hold: int | None = None, lose: str = "") -> None:
        judge = judge_read(lambda world: sorted(world.life(held.name, held.birth).spaces[space].items()))
        self.call(held.agent, held.handle.namespace(space).items(), judge, hold, lose)

    @rule(pick=picks, hold=holds, lose=losses)
    def clear_session(self, pick: int, hold: int | None, lose: str) -> None:
        """Delete all private keys; namespaces stay."""
        held = self.handle(pick)
        if held is not None:
            self._change(held, Change("clear"), held.handle.clear(), hold, lose)

    # ---- touches

    @rule(pick=picks, messages=st.integers(0, 3), text=titles, anyhow=st.booleans(), hold=holds, lose=losses)
    def touch_session(self, pick: int, messages: int, text: str, anyhow: bool, hold: int | None, lose: str) -> None:
        """Add to the counters, through a handle or (`anyhow`) in whatever life."""
        held = self.handle(pick)
        if held is not None:
            self._touch(held, messages, text, hold, lose, anyhow=anyhow)

    def _touch(
        self, held: Held, messages: int, text: str, hold: int | None = None, lose: str = "", *, anyhow: bool = False
    ) -> None:
        more: dict[str, Any] = {"messages": messages, "tokens": 7 * messages, "first_message": text or None}
        run = held.agent.cache.touch(USER, held.name, **more) if anyhow else held.handle.touch(**more)

        def told(told: Told) -> Told:
            return Told(told.title or text, told.messages + messages, told.tokens + 7 * messages, told.forked_from)

        self._note(held, run, told, hold, lose, anyhow=anyhow)

    @rule(pick=picks, anyhow=st.booleans(), hold=holds, lose=losses)
    def rename_session(self, pick: int, anyhow: bool, hold: int | None, lose: str) -> None:
        """Give another title."""
        held, title = self.handle(pick), str(self.value("title", "text"))
        if held is not None:
            run = held.agent.cache.rename(USER, held.name, title) if anyhow else held.handle.rename(title)
            self._note(held, run, lambda told: told._replace(title=title), hold, lose, anyhow=anyhow)

    def _note(
        self, held: Held, run: Any, told: Callable[[Told], Told], hold: int | None, lose: str, *, anyhow: bool
    ) -> None:
        def judge(done: Done) -> World:
            info: SessionInfo | None = done.value
            done.value = told_by(info) if info else None
            birth = None if anyhow else held.birth
            after = judge_write(lambda world: touched(world, held.name, birth, told), self.observe)(done)
            if done.error is None:
                self.check_in_use(held)
            return after

        self.call(held.agent, run, judge, hold, lose)

    # ---- forks

    @rule(pick=picks, child=st.sampled_from(SESSIONS), anyhow=st.booleans(), hold=holds, lose=losses)
    def fork_session(self, pick: int, child: str, anyhow: bool, hold: int | None, lose: str) -> None:
        """Fork a session through a handle, or (`anyhow`) whatever life it leads."""
        held = self.handle(pick)
        if held is not None:
            self._fork(held, child, hold, lose, anyhow=anyhow)

    def _fork(self, held: Held, child: str, hold: int | None = None, lose: str = "", *, anyhow: bool = False) -> None:
        name, birth = held.name, None if anyhow else held.birth
        births: list[bytes] = []

        def effect(world: World) -> World:
            """The fork is there after one of the steps, whole; others follow, in which it is read."""
            before, seen = world.lives[child], self.observe().lives[child]
            if births or seen is None or (before is not None and before.birth == seen.birth):
                return world
            births.append(seen.birth)
            self.fork_blindly(name, child)
            try:
                return forked(world, name, birth, child, seen.birth)[0]
            except SessionCacheError as error:
                raise AssertionError(f"forked in spite of {error!r}") from error

        def judge(done: Done) -> World:
            now = done.worlds[-1]
            if births:
                self._judge_fork(held, child, births[0], done)
            elif not isinstance(done.error, OutcomeUnknownError):
                assert done.error is not None, "forked, and nothing is there"
                judge_error(done, lambda world: forked(world, name, birth, child, b""))
            return now

        run = held.agent.cache.fork(USER, name, new_id=child) if anyhow else held.handle.fork(new_id=child)
        self.call(held.agent, run, judge, hold, lose, effect)

    def _judge_fork(self, held: Held, child: str, birth: bytes, done: Done) -> None:
        """Of a fork that is there."""
        if done.error is None:
            session: Session = done.value
            wanted = done.worlds[-1].merged(child, birth)
            assert dict(session.state) == wanted, f"the fork shows {dict(session.state)}, expected {wanted}"
            self.keep(held.agent, session, child)
        elif not isinstance(done.error, OutcomeUnknownError):
            lives = [world.lives[child] for world in done.worlds]
            assert any(not life or life.birth != birth for life in lives), f"forked, yet raises {done.error!r}"

    # ---- finding

    @rule(agent=actors, name=names, hold=holds, lose=losses)
    def resume_session(self, agent: int, name: str, hold: int | None, lose: str) -> None:
        """Find a session by its id alone."""
        who = self.free(agent)
        if who is None:
            return

        async def run() -> Session:
            async with who.cache.resume(name) as session:
                return session

        def judge(done: Done) -> World:
            session: Session | None = done.value
            birth = session._birth if session else b""
            done.value = dict(session.state) if session else None
            after = judge_read(lambda world: world.merged(name, birth))(done)
            if session:
                self.keep(who, session, name)
            return after

        self.call(who, run(), judge, hold, lose)

    # ---- erasing

    @rule(agent=actors, hold=holds, lose=losses, dice=st.integers(0, 2))
    def erase_user(self, agent: int, hold: int | None, lose: str, dice: int) -> None:
        """Erase all that there is of the user."""
        if dice == 0:
            self._erase(agent, hold, lose)

    def _erase(self, agent: int, hold: int | None = None, lose: str = "") -> None:
        who = self.free(agent)
        if who is None:
            return
        self.erased = True

        def effect(world: World) -> World:
            """Each step takes something away, and brings nothing."""
            seen = self.observe()
            for name, life in seen.lives.items():
                assert life is None or life == world.lives[name], (
                    f"an erasure changed {name}: {life} was {world.lives[name]}"
                )
            assert seen.user in ({}, world.user), "an erasure changed the user's keys"
            assert seen.app == world.app, "an erasure changed the app's keys"
            return seen

        def judge(done: Done) -> World:
            now = done.worlds[-1]
            if done.error is None:
                gone = not now.user and not any(now.lives.values())
                assert gone or done.lost or len(done.worlds) > 1, f"erased, and there is {now}"
            else:
                judge_error(done, lambda world: (world, None))
            return now

        self.call(who, who.cache.erase_user(USER), judge, hold, lose, effect)

    # ---- what an agent does while something else is under way

    def act(self, agent: int, name: str, action: str) -> None:
        """As of other agents, and what concerns whole sessions."""
        if action == "erase":
            self._erase(agent)
            return
        if action not in ("space", "fork", "touch"):
            super().act(agent, name, action)
            return
        self._get(agent, name)
        held = self.handle(-1)
        if held is None or held.agent in self.calls:
            return
        if action == "space":
            self._change_space(held, SPACES[0], "update", "a", self.value("a", "number"))
        elif action == "touch":
            self._touch(held, 1, "")
        else:
            self._fork(held, SESSIONS[1 - SESSIONS.index(held.name)])
