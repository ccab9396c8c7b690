"""What the chaos run prints: a table of faults, and one JSON object as the last line."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table

from tests.chaos.stage import Stage
from tests.chaos.verdict import Findings

_SHOWN = 20
"""Most problems that are printed."""


@dataclass
class Tally:
    """Faults by kind, and after how many of them agents were served again."""

    left_out: list[str]
    """Kinds that these engines cannot have."""
    struck: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def begin(self, kind: str) -> None:
        """A fault is made."""
        self.struck[kind] += 1

    def survive(self, kind: str, seconds: float) -> None:
        """Agents were served again so many seconds after its end."""
        self.survived[kind] += 1
        self.slowest[kind] = max(self.slowest[kind], seconds)


def print_report(console: Console, tally: Tally, findings: Findings, stage: Stage, seconds: float, seed: str) -> int:
    """Print it all; the exit code."""
    console.print(_table(tally))
    if tally.left_out:
        console.print(f"left out on these engines: {', '.join(tally.left_out)}")
    if findings.redis_lost > stage.dirty_at_faults:
        findings.say(f"Redis lost {findings.redis_lost} writes, {stage.dirty_at_faults} were dirty")
    for problem in findings.problems[:_SHOWN]:
        console.print(f"  ! {problem}", markup=False)
    if findings.temp_leaks:
        findings.say(f"{findings.temp_leaks} rows of SQL hold temp: values")
    fine = not (findings.problems or findings.lost or findings.resurrected)
    stage.keep = not fine
    if stage.keep:
        _write_dirts(stage)
        console.print(f"journals, logs and what was dirty at each fault are in {stage.folder}")
    print(json.dumps(_summary(tally, findings, stage, seconds, seed)), flush=True)
    return 0 if fine else 1


def _write_dirts(stage: Stage) -> None:
    """Keep what was dirty at each fault, beside the journals."""
    text = json.dumps([asdict(dirt) for dirt in stage.dirts])
    (stage.folder / "dirts.json").write_text(text)


def _summary(tally: Tally, findings: Findings, stage: Stage, seconds: float, seed: str) -> dict[str, object]:
    more = len(findings.problems) - 3
    problems = [*findings.problems[:3], *([f"and {more} more"] if more > 0 else [])]
    return {
        "seconds": round(seconds, 1),
        "seed": seed,
        "acknowledged": findings.acknowledged,
        "forks": findings.forks,
        "records": findings.records,
        "outdated": findings.outdated,
        "runs": findings.runs,
        "watched": findings.watched,
        "missed": findings.missed,
        "lost": findings.lost,
        "redis_lost": findings.redis_lost,
        "dirty_at_faults": stage.dirty_at_faults,
        "resurrected": findings.resurrected,
        "temp_leaks": findings.temp_leaks,
        "untrue_flushes": findings.untrue,
        "faults": dict(tally.struck),
        "survived": dict(tally.survived),
        "left_out": tally.left_out,
        "worker_kills": stage.worker_kills,
        "verdict": "; ".join(problems) or "ok",
    }


def _table(tally: Tally) -> Table:
    table = Table("fault", "times", "survived", "served again after at most")
    for kind, times in tally.struck.items():
        table.add_row(kind, str(times), str(tally.survived[kind]), f"{tally.slowest[kind]:.1f} s")
    return table
