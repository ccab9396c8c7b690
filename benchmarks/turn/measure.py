"""The turn beside its floors: one at a time, many at once, in several processes, and with the worker running.

Before each stretch that is timed, another process changes all three scopes of every session, so that its work is not
timed; apart from that, turns of sessions that nobody else wrote.  While the worker runs, stretches are longer, and two
caches take turns instead: each finds what the other one wrote.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial

from rich.table import Table

from benchmarks.measuring import Spread, alternate, ratios, table
from benchmarks.part import Outcome, Part, Say
from benchmarks.results import figure, missing
from benchmarks.turn import plan
from benchmarks.turn.agent import Stretch
from benchmarks.turn.stage import AgentProcess, Stage, opened, prepare

IN_FLIGHT = 64
ALONE = 128
"""Turns of a stretch of one at a time."""
_LEAD = 0.05
"""Seconds in which a command reaches every process."""
WARM, STEADY = 1.2, 2.0
"""Seconds of a stretch beside the worker: that do not count, and that do."""
ROUNDS = 11
HOT = ("ours", "naive", "naive_msgspec", "limit")
SQL = ("write_through", "write_through_delay")

Rounds = dict[str, list[float]]
"""Contender -> one number a round."""
One = Callable[[], Awaitable[float]]


class Turning:
    """The agents of a stage, and the stretches that they turn."""

    def __init__(self, stage: Stage, say: Say) -> None:
        self._stage = stage
        self._say = say
        self.contenders = HOT if stage.missing else HOT + SQL
        self._agents = [stage.start_agent()]
        self._cpu: dict[tuple[str, int, bool], list[float]] = defaultdict(list)
        self._changer = stage.start_agent(connections=8)

    @property
    def has_sql(self) -> bool:
        """Whether there is a PostgreSQL."""
        return not self._stage.missing

    def fill(self) -> None:
        """Create the sessions, and open them everywhere."""
        creator = self._agents[0]
        for name in ("ours", "naive", *(("write_through", "worked") if self.has_sql else ())):
            self._say(f"turn: creating the sessions of {name}")
            creator.ask("create", name=name)
        self._say("turn: opening the sessions")
        for name in self.contenders:
            creator.ask("open", name=name)
            self._changer.ask("open", name=name)

    def add_agents(self, count: int) -> None:
        """Have so many processes for the contenders of several processes."""
        while len(self._agents) < count:
            self._agents.append(self._stage.start_agent())
            for name in ("ours", "naive"):
                self._agents[-1].ask("open", name=name)

    async def alone(self, name: str, *, changed: bool = True) -> float:
        """Microseconds of a turn, one at a time."""
        self._before(name, changed=changed, sessions=ALONE)
        return float(self._agents[0].ask("alone", name=name, calls=ALONE))

    async def many(self, name: str, *, processes: int = 1, changed: bool = True) -> float:
        """Turns a second, `IN_FLIGHT` in all."""
        self._before(name, changed=changed)
        share = plan.SESSIONS // processes
        agents = self._agents[:processes]
        begin = self._soon(agents)
        for place, agent in enumerate(agents):
            part = {"first": place * share, "last": (place + 1) * share}
            agent.tell("many", name=name, in_flight=IN_FLIGHT // processes, begin=begin, **part)
        stretches = [Stretch(*agent.hear()) for agent in agents]
        self._cpu[name, processes, changed].append(sum(one.cpu for one in stretches) / processes / share * 1e6)
        return processes * share / (max(one.ended for one in stretches) - min(one.began for one in stretches))

    def cpu(self, name: str) -> list[float]:
        """Microseconds of CPU that the process took for a turn, one number a round: other jobs count little."""
        return self._cpu[name, 1, True][1:]

    async def steady(self, *names: str) -> float:
        """Turns a second of a longer stretch; the worker has nothing to do before it."""
        rate = float(self._agents[0].ask("steady", names=names, in_flight=IN_FLIGHT, warm=WARM, seconds=STEADY))
        self._stage.drain()
        return rate

    async def rounds(self, what: str, calls: dict[str, One], rounds: int) -> Rounds:
        """Alternating rounds, after one that does not count."""
        self._say(f"turn: {what}")
        await alternate(calls, 1)
        return await alternate(calls, rounds)

    @property
    def first(self) -> AgentProcess:
        """The agent of all that is measured in one process."""
        return self._agents[0]

    def _before(self, name: str, *, changed: bool, sessions: int = plan.SESSIONS) -> None:
        if changed:
            self._changer.ask("change", name=name, last=sessions)

    def _soon(self, agents: Sequence[AgentProcess]) -> float:
        """When all can begin at once: a process that began later than another would be timed for waiting."""
        for agent in agents:
            agent.tell("collect")
        return max(float(agent.hear()) for agent in agents) + _LEAD


async def run(rounds: int, say: Say) -> Outcome:
    """Measure everything."""
    with ExitStack() as stack:
        say("turn: starting servers")
        stage = stack.enter_context(opened())
        await prepare(stage)
        turning = Turning(stage, say)
        turning.fill()
        outcome = Outcome()
        await _changed(turning, rounds, outcome)
        await _unchanged(turning, max(1, rounds * 2 // 3), outcome)
        if turning.has_sql:
            await _beside_the_worker(turning, max(1, rounds // 2), outcome)
        else:
            outcome.figures |= missing(_SQL_KEYS, stage.missing)
        await _in_processes(turning, max(1, rounds * 2 // 3), outcome)
        return outcome


async def _changed(turning: Turning, rounds: int, outcome: Outcome) -> None:
    names = turning.contenders
    alone = await turning.rounds("1 in flight", {n: partial(turning.alone, n) for n in names}, rounds)
    many = await turning.rounds(f"{IN_FLIGHT} in flight", {n: partial(turning.many, n) for n in names}, rounds)
    cpu = {name: turning.cpu(name) for name in names}
    for name in names:
        outcome.figures |= figure(_key(name, "cpu_us_64"), Spread.of(cpu[name]))
        outcome.figures |= figure(_key(name, "p50_us"), Spread.of(alone[name]))
        outcome.figures |= figure(_key(name, "rate_64"), Spread.of(many[name]))
    for key, found, other in (
        ("turn_p50_ratio", alone, "naive"),
        ("turn_p50_ratio_msgspec", alone, "naive_msgspec"),
        ("turn_rate_ratio_64", many, "naive"),
        ("turn_rate_ratio_64_msgspec", many, "naive_msgspec"),
        ("turn_cpu_ratio_64", cpu, "naive"),
        ("limit_share_64", many, "limit"),
    ):
        outcome.figures |= figure(key, ratios(found["ours"], found[other]))
    if turning.has_sql:
        idle = ratios(many["ours"], many["write_through"])
        outcome.figures |= figure("write_through_ratio_64_idle_worker", idle)
    outcome.tables.append(_table("A turn, 1 in flight, changed by another process: µs, p50", alone))
    outcome.tables.append(_table(f"Turns a second, {IN_FLIGHT} in flight, changed by another process", many))
    outcome.tables.append(_table(f"CPU of the client's process: µs a turn, {IN_FLIGHT} in flight", cpu))


async def _unchanged(turning: Turning, rounds: int, outcome: Outcome) -> None:
    names = ("ours", "naive")
    alone = await turning.rounds(
        "1 in flight, unchanged", {n: partial(turning.alone, n, changed=False) for n in names}, rounds
    )
    many = await turning.rounds(
        f"{IN_FLIGHT} in flight, unchanged", {n: partial(turning.many, n, changed=False) for n in names}, rounds
    )
    outcome.figures |= figure("turn_unchanged_p50_us", Spread.of(alone["ours"]))
    outcome.figures |= figure("turn_unchanged_rate_64", Spread.of(many["ours"]))
    outcome.figures |= figure("turn_unchanged_p50_ratio", ratios(alone["ours"], alone["naive"]))
    outcome.figures |= figure("turn_unchanged_rate_ratio_64", ratios(many["ours"], many["naive"]))
    outcome.tables.append(_table("A turn, 1 in flight, unchanged: µs, p50", alone))
    outcome.tables.append(_table(f"Turns a second, {IN_FLIGHT} in flight, unchanged", many))


async def _in_processes(turning: Turning, rounds: int, outcome: Outcome) -> None:
    for processes in (2, 4):
        turning.add_agents(processes)
        calls: dict[str, One] = {n: partial(turning.many, n, processes=processes) for n in ("ours", "naive")}
        found = await turning.rounds(f"{processes} processes", calls, rounds)
        outcome.figures |= figure(f"turn_rate_64_processes_{processes}", Spread.of(found["ours"]))
        ratio = ratios(found["ours"], found["naive"])
        outcome.figures |= figure(f"turn_rate_ratio_64_processes_{processes}", ratio)
        outcome.tables.append(_table(f"Turns a second of {processes} processes, {IN_FLIGHT} in flight in all", found))


async def _beside_the_worker(turning: Turning, rounds: int, outcome: Outcome) -> None:
    for name in ("worked", "worked_other"):
        turning.first.ask("open", name=name)
    calls: dict[str, One] = {
        "ours": partial(turning.steady, "worked", "worked_other"),
        **{name: partial(turning.steady, name) for name in SQL},
    }
    found = await turning.rounds("beside the worker", calls, rounds)
    outcome.figures |= figure("turn_rate_64_with_worker", Spread.of(found["ours"]))
    outcome.figures |= figure("write_through_ratio_64", ratios(found["ours"], found["write_through"]))
    outcome.figures |= figure("write_through_delay_ratio_64", ratios(found["ours"], found["write_through_delay"]))
    outcome.tables.append(_table(f"Turns a second, {IN_FLIGHT} in flight, ours while the worker flushes", found))


def _key(name: str, what: str) -> str:
    if name in SQL:
        return f"{name}_{what}"
    return f"turn_{what}" if name == "ours" else f"turn_{name}_{what}"


def _table(title: str, found: Rounds) -> Table:
    def row(name: str, values: Sequence[float]) -> tuple[str, str, str]:
        return name, Spread.of(values).shown(0), "" if name == "ours" else ratios(found["ours"], values).shown()

    columns = ("", "median of the rounds (quartiles)", "ours ÷ this")
    return table(title, columns, [row(name, values) for name, values in found.items()])


_SQL_KEYS = (
    "write_through_ratio_64",
    "write_through_delay_ratio_64",
    "write_through_ratio_64_idle_worker",
    "turn_rate_64_with_worker",
    *(f"{name}_{what}" for name in SQL for what in ("p50_us", "rate_64", "cpu_us_64")),
)
_KEYS = (
    *(f"turn_{what}{with_}" for what in ("p50_ratio", "rate_ratio_64") for with_ in ("", "_msgspec")),
    *(f"turn_{what}" for what in ("p50_us", "rate_64", "cpu_us_64", "cpu_ratio_64")),
    *(f"turn_unchanged_{what}" for what in ("p50_us", "rate_64", "p50_ratio", "rate_ratio_64")),
    *(f"turn_{what}_64_processes_{count}" for what in ("rate", "rate_ratio") for count in (2, 4)),
    "limit_share_64",
)

PART = Part("turn", (*_KEYS, *_SQL_KEYS), run, ROUNDS)
