"""Runs the chosen tests in a copy, and tells which went red."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass

from tests.mutants.mutation import Mutation, Outcome, Verdict
from tests.mutants.tree import StaleMutationError, Tree, copy_of

_TEST_TIMEOUT = 40
"""Seconds one test may take; the longest of those that are chosen takes a quarter of it."""
_RUN_TIMEOUT = 150.0
"""Seconds the tests of one mutation may take in all."""
_BASELINE_TIMEOUT = 900.0
_GRACE = 20.0
"""Seconds in which a run that is asked to end has to end its servers."""
_RED = re.compile(r"^(?:FAILED|ERROR) (\S+(?:\[.*?\])?)(?: - (.*))?$", re.MULTILINE)
_NOTHING_RUN = (2, 3, 4, 5)
"""Exit codes of pytest that say nothing about the tests: interrupted, internal error, wrong usage, none found."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of pytest."""

    code: int | None
    """The exit code; None: it had to be ended."""
    output: str

    @property
    def red(self) -> list[tuple[str, str]]:
        """Tests that failed, and why."""
        return _RED.findall(self.output)


def run_tests(tree: Tree, tests: Iterable[str], *options: str, seconds: float) -> Run:
    """Run tests in a copy, for at most some seconds."""
    arguments = ("-q", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider", f"--timeout={_TEST_TIMEOUT}")
    ids = [f"tests/{test}" for test in tests]
    process = subprocess.Popen(
        tree.command("-m", "pytest", *arguments, *options, *ids),
        cwd=tree.folder,
        env={**tree.environment, "COLUMNS": "1000"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        return _finished(process, seconds)
    finally:
        _end(process)


def _finished(process: subprocess.Popen[str], seconds: float) -> Run:
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return Run(None, "")
    return Run(process.returncode, output)


def _end(process: subprocess.Popen[str]) -> None:
    """End a run that still goes on: asked first, so that it takes its servers with it."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def red_before(tree: Tree, mutations: Iterable[Mutation]) -> dict[str, str]:
    """The chosen tests that are red without any mutation, and why."""
    chosen = sorted({test for mutation in mutations for test in mutation.tests})
    run = run_tests(tree, chosen, seconds=_BASELINE_TIMEOUT)
    if run.code is None or run.code in _NOTHING_RUN:
        lines = run.output.strip().splitlines() or ["the run did not end"]
        return dict.fromkeys(chosen, lines[-1])
    return {test.removeprefix("tests/"): why for test, why in run.red}


def try_mutation(tree: Tree, mutation: Mutation, red: dict[str, str]) -> Outcome:
    """Make one mutation in a copy of `tree`, and see whether one of its tests goes red."""
    for test, why in red.items():
        if any(test == chosen or test.startswith((f"{chosen}[", f"{chosen}::")) for chosen in mutation.tests):
            return Outcome(mutation, Verdict.RED_BEFORE, test, why)
    began = time.monotonic()
    with copy_of(tree.folder) as mutant:
        try:
            mutant.mutate(mutation)
        except StaleMutationError as error:
            return Outcome(mutation, Verdict.STALE, why=str(error))
        run = run_tests(mutant, mutation.tests, "-x", seconds=_RUN_TIMEOUT)
    return _judge(mutation, run, time.monotonic() - began)


def _judge(mutation: Mutation, run: Run, seconds: float) -> Outcome:
    if run.code is None:
        return Outcome(mutation, Verdict.TIMED_OUT, ", ".join(mutation.tests), "the run did not end", seconds)
    if run.code == 0:
        return Outcome(mutation, Verdict.MISSED, seconds=seconds)
    if run.code in _NOTHING_RUN or not run.red:
        lines = run.output.strip().splitlines() or [""]
        return Outcome(mutation, Verdict.STALE, why=f"the tests did not run: {lines[-1]}", seconds=seconds)
    test, why = run.red[0]
    verdict = Verdict.TIMED_OUT if why.startswith("Failed: Timeout") else Verdict.CAUGHT
    return Outcome(mutation, verdict, test.removeprefix("tests/"), why, seconds)
