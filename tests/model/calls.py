"""Calls of agents, and the judges that hold what came out against the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sessioncache import Session
from sessioncache.errors import (
    DeadLetterError,
    DurableTierUnavailableError,
    FlushTimeoutError,
    HotTierUnavailableError,
    OutcomeUnknownError,
    SessionCacheError,
    SessionExistsError,
    SessionNotFoundError,
    StaleSessionError,
    TypeMismatchError,
    WriteLostError,
)
from tests.model.actors import Agent
from tests.model.state import Outcome, World

_ANSWERS = (SessionNotFoundError, SessionExistsError, TypeMismatchError)
"""Errors that say something about the state."""
Expect = Callable[[World], Outcome]


@dataclass
class Held:
    """A handle that an agent keeps, also after its session has ended."""

    agent: Agent
    handle: Session
    name: str
    birth: bytes


@dataclass
class Done:
    """How a call ended, and the worlds that there were meanwhile, the present one last."""

    value: Any
    error: BaseException | None
    worlds: list[World]
    away: bool
    """Whether the database was away, or an answer of it was lost, at any time of the call."""
    lost: bool
    """Whether Redis had forgotten anything before the call ended."""
    restored: bool
    """Whether SQL had been said to be restored."""
    erased: bool = False
    """Whether the user had been erased before: for a minute nothing new is let in."""


Judge = Callable[[Done], World]
"""Raises AssertionError, or gives the world after the call."""
Effect = Callable[[World], World]
"""Given the world before a step of a call, the world after it."""


@dataclass
class Call:
    """A call under way."""

    judge: Judge
    worlds: list[World] = field(default_factory=list)
    away: bool = False
    loses: bool = False
    """Whether an answer is lost on the way: what it did is there before the call is over."""
    effect: Effect | None = None
    """Of a call that goes on after it has changed something."""


def judge_write(expect: Expect, observe: Callable[[], World]) -> Judge:
    """Of a call that changes something: its effect is that of its last step."""

    def judge(done: Done) -> World:
        now = done.worlds[-1]
        if done.error is None:
            after, value = expect(now)
            assert value is None or value == done.value, f"returned {done.value!r}, expected {value!r}"
            return after
        if isinstance(done.error, OutcomeUnknownError):
            seen = observe()
            applied = None if _error_of(expect, now) else expect(now)[0]
            assert seen in (now, applied), "neither applied nor not applied"
            return seen
        return judge_error(done, expect)

    return judge


def judge_read(expect: Callable[[World], Any]) -> Judge:
    """Of a call that shows something: it shows what its last step saw."""

    def judge(done: Done) -> World:
        now = done.worlds[-1]
        if done.error is not None:
            return judge_error(done, lambda world: (world, expect(world)))
        wanted = expect(now)
        assert done.value == wanted, f"shows {done.value!r}, expected {wanted!r}"
        return now

    return judge


def judge_flush(held: Held, proven: Callable[[], None]) -> Judge:
    """Of a flush: a yes must be true, and a write is lost only where Redis forgot.

    Where SQL was said to be restored, nothing tells any more whether a write survived (R11) whose session others have
    ended since, or that built on what was there, as an increment does: then it may be told as lost, too.
    """

    def is_over(world: World) -> bool:
        life = world.lives[held.name]
        return life is None or life.birth != held.birth

    def judge(done: Done) -> World:
        if done.error is None:
            proven()
        elif isinstance(done.error, WriteLostError):
            fine = done.lost or done.restored or is_over(done.worlds[-1])
            assert fine, "flush() says that a write was lost, and Redis forgot nothing"
        else:
            assert isinstance(done.error, (FlushTimeoutError, DeadLetterError)), repr(done.error)
        return done.worlds[-1]

    return judge


def judge_error(done: Done, expect: Expect) -> World:
    error, now = done.error, done.worlds[-1]
    if isinstance(error, (DurableTierUnavailableError, HotTierUnavailableError)):
        assert done.away, f"no tier was away: {error!r}"
    elif isinstance(error, StaleSessionError):
        assert len(done.worlds) > 1 or done.erased, "nobody else was at work, yet the session is stale"
    else:
        assert isinstance(error, SessionCacheError), repr(error)
        wanted = {_error_of(expect, world) for world in done.worlds}
        assert type(error) in wanted, f"raises {error!r}, expected {wanted}"
    return now


def _error_of(expect: Expect, world: World) -> type[BaseException] | None:
    try:
        expect(world)
    except _ANSWERS as error:
        return type(error)
    except AssertionError:
        return None
    return None
