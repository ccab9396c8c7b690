"""The verdict: what was acknowledged is what is readable, or was overwritten by a later acknowledged write."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from math import inf
from typing import Any

from tests.chaos.journal import BROKEN, NEVER, OK, REFUSED, UNKNOWN, Call, Story
from tests.chaos.snapshot import Dirt, Values

_DURABLE = "durable"
"""Beside outcomes: what of the acknowledged was shown to be durable."""

_UNNOTICED = 20.0
"""Seconds after which it was found at the latest that SQL came back older."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a cell."""

    at: int
    value: int | None
    outcome: str
    shown: tuple[float, float] = NEVER
    """When a flush() that showed it to be durable began and ended."""
    made: float = -inf
    """When it was made."""


@dataclass(slots=True)
class Findings:
    """What the verdict rests on."""

    acknowledged: int = 0
    lost: int = 0
    redis_lost: int = 0
    resurrected: int = 0
    temp_leaks: int = 0
    untrue: int = 0
    """Cells that SQL lacked just after a flush() had returned."""
    forks: int = 0
    """Forks that were acknowledged."""
    records: int = 0
    """Records that were taken."""
    outdated: int = 0
    """Records that were refused, since there was one of a later time."""
    runs: int = 0
    """Runs under a lease in which something was acknowledged."""
    watched: int = 0
    """Changes of shared scopes that watches told."""
    missed: int = 0
    """Those that were told to be missed."""
    problems: list[str] = field(default_factory=list)

    def say(self, problem: str) -> None:
        """Note something that must not be."""
        self.problems.append(problem)


class Judge:
    """Compares what is there with what agents were told, given what Redis was made to forget."""

    def __init__(self, stories: Iterable[Story], dirts: Sequence[Dirt]) -> None:
        self._stories = list(stories)
        self._dirts = dirts
        self.findings = Findings()
        self._writes: dict[str, list[Write]] = defaultdict(list)
        self._items: dict[str, list[Write]] = defaultdict(list)
        self._notes: dict[str, dict[int, tuple[int, Write]]] = defaultdict(dict)
        self._origins: dict[str, tuple[str, list[Write], float]] = {}
        """Of a fork's cell its parent's, what was written to that, and when the fork was there."""
        self._times: dict[int, int] = {}
        self._sums: dict[str, dict[str, int]] = defaultdict(
            lambda: {OK: 0, UNKNOWN: 0, REFUSED: 0, BROKEN: 0, _DURABLE: 0}
        )
        for story in self._stories:
            self._take(story)

    def judge(self, final: Mapping[str, Any]) -> Findings:
        """All cells at the end."""
        for story in self._stories:
            for seen in story.seen:
                self._check_seen(seen)
            for stored in story.stored:
                self._check_stored(stored)
        for cell in self._writes:
            if self._lives(cell, final):
                self._check_cell(cell, final.get(cell), self._writes[cell], self._dirts, "at the end", count=True)
        self._check_strangers(final)
        for cell, items in self._items.items():
            self._check_list(cell, final.get(cell) or [], items)
        for cell, notes in self._notes.items():
            self._check_runs(cell, final.get(cell) or [], notes)
        for cell, sums in self._sums.items():
            if self._lives(cell, final):
                self._check_counter(cell, int(final.get(cell) or 0), sums)
        return self.findings

    # ---- the journals

    def _take(self, story: Story) -> None:
        late: list[Call] = []
        for call in story.calls:
            what = call.what
            if call.outcome == BROKEN:
                self.findings.say(f"an agent met {call.error}")
            if "flush" not in what and call.outcome == OK:
                self.findings.acknowledged += 1
            for cell, value in what.get("sets", {}).items():
                self._writes[cell].append(_write(call, value))
            if "upserts" in what:
                self._take_record(what["upserts"], call)
            if "appends" in what:
                self._items[what["appends"]].append(_write(call, what["item"]))
            if "notes" in what:
                self._notes[what["notes"]][what["item"]] = what["run_of"], _write(call, what["item"])
            if "fork" in what and call.outcome != REFUSED:
                self._fork(call)
                late += [call] * (call.outcome == UNKNOWN)
                self.findings.forks += call.outcome == OK
            if "adds" in what:
                self._sums[what["adds"]][call.outcome] += what["by"]
                self._sums[what["adds"]][_DURABLE] += what["by"] * (call.shown < NEVER)
            if what.get("life") and call.outcome == OK:  # a call through a handle succeeds only while its life lasts
                self._writes[what["life"][0]].append(_write(call, what["life"][1]))
        for call in late:
            self._fork_late(call.what["fork"]["of"], call.what["fork"]["into"], call.at)

    def _take_record(self, cell: str, call: Call) -> None:
        """A record is taken unless there is one of a later time; of those that are refused nothing may be seen."""
        number, at = call.what["n"], call.what["at"]
        self._times[number] = at
        answers = self._answers(cell, at, [dirt for dirt in self._dirts if dirt.at < call.ended_at])
        outcome = call.outcome
        if outcome == OK and call.taken not in answers:
            answer = "taken" if call.taken else "refused"
            self.findings.say(f"{cell} was to be {number} of time {at}, which was {answer}")
        if (outcome == OK and not call.taken) or (outcome == UNKNOWN and True not in answers):
            outcome = REFUSED
        self.findings.records += outcome == OK
        self.findings.outdated += call.outcome == OK and not call.taken
        self._writes[cell].append(_write(call, number, outcome))

    def _answers(self, cell: str, at: int, dirts: Sequence[Dirt]) -> set[bool]:
        """What may be said to a record of a time, which depends on what Redis was made to forget."""
        writes = self._writes[cell]
        values = self._possible(writes)
        if self._was_forgotten(cell, values, dirts):
            values |= self._since_durable(cell, writes, dirts)
        return {value is None or self._times.get(value, 0) <= at for value in values}

    def _fork(self, call: Call) -> None:
        """A fork, if it is there, has of each cell what its parent may have had: that comes before it in the story."""
        parent, child = call.what["fork"]["of"], call.what["fork"]["into"]
        for cell in self._cells_of(parent):
            writes, into = list(self._writes[cell]), child + cell.removeprefix(parent)
            self._origins[into] = cell, writes, call.ended_at
            for number, value in enumerate(sorted(self._possible(writes), key=str)):
                self._writes[into].append(_write(call, value, UNKNOWN if number else OK))

    def _fork_late(self, parent: str, child: str, at: int) -> None:
        """A fork of unknown outcome may have come about at any time after its call."""
        for cell in self._cells_of(parent):
            later = [Write(at, w.value, UNKNOWN) for w in self._writes[cell] if w.at > at and w.outcome != REFUSED]
            into = self._writes[child + cell.removeprefix(parent)]
            first = sum(write.at <= at for write in into)
            into[first:first] = later

    def _cells_of(self, life: str) -> list[str]:
        return [cell for cell in self._writes if cell.startswith(life)]

    @staticmethod
    def _possible(writes: Sequence[Write]) -> set[int | None]:
        """What a cell may hold: the last acknowledged value, or one of unknown outcome after it."""
        told = [at for at, write in enumerate(writes) if write.outcome == OK]
        recent = [write for write in writes[told[-1] if told else 0 :] if write.outcome != REFUSED]
        return {write.value for write in recent} | (set() if told else {None})

    # ---- cells

    def _check_seen(self, seen: dict[str, Any]) -> None:
        """What an agent read must be what it had last been told, unless Redis had been made to forget that."""
        before = [write for write in self._writes.get(seen["seen"], []) if write.at < seen["at"]]
        dirts = [dirt for dirt in self._dirts if dirt.at < seen["t"]]
        self._check_cell(seen["seen"], seen["n"], before, dirts, f"read at {seen['t']:.3f}", count=False)

    def _check_stored(self, stored: dict[str, Any]) -> None:
        """What SQL had just after a flush() is what that had shown to be durable, or something later.

        Of what was durable before SQL was put back, SQL has what it was put back to.
        """
        falls = [dirt.at for dirt in self._dirts if dirt.at < stored["t"] and dirt.of_sql]
        for cell, value in stored["stored"].items():
            writes = self._writes.get(cell, [])
            known = writes[: bisect_left(writes, stored["at"], key=lambda write: write.at)]
            since = max([*falls, -inf])
            shown = (at for at in range(len(known) - 1, -1, -1) if _is_shown(known[at], since, stored["since"]))
            first = next(shown, None)
            if first is not None and value not in {write.value for write in known[first:] if write.outcome != REFUSED}:
                self.findings.untrue += 1
                self.findings.say(f"flush() returned at {stored['since']:.3f}, and SQL had {value} of {cell}")

    def _check_cell(
        self, cell: str, value: int | None, writes: Sequence[Write], dirts: Sequence[Dirt], when: str, *, count: bool
    ) -> None:
        wanted = self._possible(writes)
        if value in wanted:
            return
        if self._is_excused(cell, value, writes, dirts):
            self.findings.redis_lost += count
        elif _is_life(cell) and value is not None:
            self.findings.resurrected += 1
            self.findings.say(f"{cell} came back as {value} instead of {_some(wanted)}, {when}")
        else:
            self.findings.lost += 1
            self.findings.say(f"{cell} is {value} instead of {_some(wanted)}, {when}")

    def _is_excused(self, cell: str, value: int | None, writes: Sequence[Write], dirts: Sequence[Dirt]) -> bool:
        """Whether Redis was made to forget what is missing; of a fork perhaps before it was made."""
        if self._was_forgotten(cell, self._possible(writes), dirts) and value in self._since_durable(
            cell, writes, dirts
        ):
            return True
        origin, before, made = self._origins.get(cell, ("", [], inf))
        if not origin:
            return False
        return self._is_unknown_space(cell, value, made) or self._is_excused(origin, value, before, dirts)

    def _is_unknown_space(self, cell: str, value: int | None, made: float) -> bool:
        """Whether a fork lacks a namespace that SQL had been made to forget, which nobody had found yet."""
        of_space = value is None and "/" in cell.rsplit("|", 1)[1]
        return of_space and any(one.unsaid and one.at < made < one.at + _UNNOTICED for one in self._dirts)

    @staticmethod
    def _was_forgotten(cell: str, wanted: set[int | None], dirts: Sequence[Dirt]) -> bool:
        """Whether it was dirty at a fault, or its session's end was: with that, the keys of that life are back."""
        if any(cell in dirt.cells and dirt.cells[cell] in wanted for dirt in dirts):
            return True
        return _came_back(cell, dirts)

    @staticmethod
    def _since_durable(cell: str, writes: Sequence[Write], dirts: Sequence[Dirt]) -> set[int | None]:
        """What may be left when a tier forgets: nothing older than what flush() has shown to be durable.

        Where SQL has been put back since, nothing older than what it was put back to.
        """
        backups = [dirt.fell[cell] for dirt in dirts if cell in dirt.fell]
        back = range(len(writes) - 1, -1, -1)
        first = next((at for at in back if _is_durable(cell, writes[at], dirts)), None)
        if first is None and backups and None not in backups:
            first = min((at for at in back if writes[at].value in backups), default=None)
        left = {write.value for write in writes[first or 0 :] if write.outcome != REFUSED}
        return left | {None} if first is None else left

    def _lives(self, cell: str, final: Mapping[str, Any]) -> bool:
        """Whether a cell is to be compared: keys of a session die with its life."""
        parts = cell.split("|")
        return parts[0] != "s" or len(parts) == 3 or str(final.get("|".join(parts[:3]))) == parts[3]

    def _check_strangers(self, final: Mapping[str, Any]) -> None:
        """Nothing is there that nobody wrote there, entries of an earlier life included."""
        for cell, value in final.items():
            if value is not None and not any(
                cell in known for known in (self._writes, self._items, self._sums, self._notes)
            ):
                self.findings.resurrected += 1
                self.findings.say(f"{cell} is there, and nobody wrote it")

    # ---- lists and counters

    def _check_list(self, cell: str, found: Sequence[int], items: Sequence[Write]) -> None:
        """Every item once, in order; only those may be missing that Redis was made to forget."""
        if list(found) != sorted(set(found)):
            wrong = [item for before, item in pairwise(found) if item <= before]
            self.findings.say(f"{cell} holds items twice or out of order: {wrong}")
        self._check_items(cell, found, items)

    def _check_runs(self, cell: str, found: Sequence[int], notes: Mapping[int, tuple[int, Write]]) -> None:
        """Every note once, those of each run in order and together: none after another run has begun to note."""
        runs = [run for run, _ in groupby(found, key=lambda item: notes[item][0] if item in notes else None)]
        if len(runs) != len(set(runs)):
            late = sorted(run or 0 for run, times in Counter(runs).items() if times > 1)
            self.findings.say(f"{cell} holds notes of runs that had lost their lease: {late}")
        by_run = sorted(found, key=lambda item: (runs.index(notes[item][0]) if item in notes else -1, item))
        if list(found) != by_run or len(found) != len(set(found)):
            self.findings.say(f"{cell} holds notes twice or out of order")
        self.findings.runs += len({run for run, note in notes.values() if note.outcome == OK})
        self._check_items(cell, found, [note for _, note in notes.values()])

    def _check_items(self, cell: str, found: Sequence[int], items: Sequence[Write]) -> None:
        """All that was acknowledged, nothing that was refused."""
        possible = {item.value for item in items if item.outcome != REFUSED}
        if not possible.issuperset(found):
            refused = sorted(set(found) - possible)
            self.findings.say(f"{cell} holds items that were refused: {refused}")
        forgotten = {item for dirt in self._dirts for item in dirt.cells.get(cell) or []}
        for item in items:
            if item.outcome == OK and item.value not in found:
                excused = item.value in forgotten and not _is_durable(cell, item, self._dirts)
                self._note_missing(cell, item, excused=excused)

    def _note_missing(self, cell: str, item: Write, *, excused: bool) -> None:
        if excused:
            self.findings.redis_lost += 1
            return
        self.findings.lost += 1
        self.findings.say(f"{cell} lacks {item.value}")

    def _check_counter(self, cell: str, found: int, sums: Mapping[str, int]) -> None:
        """At least what was acknowledged, at most that and what is unknown."""
        missing = sums[OK] - found
        forgotten = sum(dirt.counters.get(cell, 0) for dirt in self._dirts)
        if _came_back(cell, self._dirts):
            forgotten = max(forgotten, sums[OK] - sums[_DURABLE])
        backups = [int(dirt.fell[cell] or 0) for dirt in self._dirts if cell in dirt.fell]
        if backups:
            forgotten = max(forgotten, sums[OK] - min(backups))
        excused = min(max(missing, 0), forgotten)
        self.findings.redis_lost += excused
        if missing > excused:
            self.findings.lost += missing - excused
            self.findings.say(f"{cell} is {found}, {sums[OK]} were acknowledged")
        if found > sums[OK] + sums[UNKNOWN]:
            self.findings.say(f"{cell} is {found}: more than the {sums[OK]} acknowledged and {sums[UNKNOWN]} unknown")


def compare(findings: Findings, views: Mapping[str, Values]) -> None:
    """Hot, cold and SQL must be the same."""
    (name, first), *others = views.items()
    for other, values in others:
        for cell in sorted(first.keys() | values.keys()):
            if first.get(cell) != values.get(cell):
                findings.lost += 1
                findings.say(f"{cell} is {first.get(cell)} {name} and {values.get(cell)} {other}")


def _write(call: Call, value: int | None, outcome: str = "") -> Write:
    """One write of a call."""
    outcome = outcome or call.outcome
    return Write(call.at, value, outcome, call.shown if outcome == OK else NEVER, call.what["t"])


def _is_shown(write: Write, since: float, by: float) -> bool:
    """Whether it was made after one time, and a flush() has shown it to be durable by another."""
    return since < write.made and write.shown[1] <= by


def _is_durable(cell: str, write: Write, dirts: Iterable[Dirt]) -> bool:
    """Whether flush() has shown a write to be durable, after the last time that SQL forgot it.

    What was hot then is written again: where Redis forgets before that is done, it is lost.
    """
    dirty = max((dirt.at for dirt in dirts if not dirt.of_sql and cell in dirt.cells), default=-inf)
    falls = [dirt.at for dirt in dirts if cell in dirt.fell or (dirt.of_sql and dirt.at < dirty)]
    return max([*falls, -inf]) < write.made and write.shown < NEVER


def _came_back(cell: str, dirts: Iterable[Dirt]) -> bool:
    """Whether the end of its life was forgotten: then it is back, as it was in SQL."""
    kind, *rest = cell.split("|")
    if kind != "s" or len(rest) == 2:
        return False
    life, number = "|".join(["s", *rest[:2]]), int(rest[2])
    return any(life in dirt.cells and dirt.cells[life] != number for dirt in dirts)


def _is_life(cell: str) -> bool:
    return cell.startswith("s|") and cell.count("|") == 2


def _some(values: set[int | None]) -> str:
    return ", ".join(sorted(map(str, values))[-5:])
