"""The command: ``python -m tests.mutants [--list] [--only NAME …] [--why]``.

The last line is a JSON object: mutations, caught, missed (numbers).  Exit 1 if any was not caught.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from rich.console import Console
from rich.table import Column, Table

from tests.mutants.catalogue import MUTATIONS
from tests.mutants.mutation import Mutation, Outcome
from tests.mutants.running import red_before, try_mutation
from tests.mutants.tree import copy_of

_WIDTH = 180
"""Columns of the table where there is no terminal."""
_AT_ONCE = 2
"""Mutations that are tried at the same time; each runs servers of its own."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    options = _parser().parse_args(argv)
    chosen = [one for one in MUTATIONS if not options.only or one.name in options.only]
    unknown = set(options.only) - {one.name for one in MUTATIONS}
    if unknown:
        print(f"no such mutation: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    if options.list:
        console.print(_list(chosen))
        return 0
    outcomes = _try_all(console, chosen)
    console.print(_table(outcomes, why=options.why))
    return _conclude(outcomes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="try these mutations only")
    parser.add_argument("--list", action="store_true", help="show the mutations and their tests, and do nothing")
    parser.add_argument("--why", action="store_true", help="show the failure of the test that went red, too")
    return parser


def _try_all(console: Console, chosen: list[Mutation]) -> list[Outcome]:
    with copy_of() as tree:  # one picture for all: the checkout may be edited meanwhile
        tree.check_imports()
        console.print(f"without a mutation: the tests of {len(chosen)} mutations must be green …")
        red = red_before(tree, chosen)
        for test, why in red.items():
            console.print(f"  red: {test} ({why})", markup=False)
        found: dict[str, Outcome] = {}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for done in as_completed([pool.submit(try_mutation, tree, mutation, red) for mutation in chosen]):
                outcome = done.result()
                found[outcome.mutation.name] = outcome
                console.print(f"[{len(found)}/{len(chosen)}] {outcome.mutation.name}: {outcome.verdict}", markup=False)
    return [found[mutation.name] for mutation in chosen]


def _list(chosen: list[Mutation]) -> Table:
    table = Table("mutation", "rule", "file", Column("tests", overflow="fold"))
    for one in chosen:
        table.add_row(one.name, one.rule, one.file, "\n".join(one.tests).replace("[", "\\["))
    return table


def _table(outcomes: list[Outcome], *, why: bool) -> Table:
    table = Table("mutation", "rule", "verdict", Column("test that went red", overflow="fold"), "s")
    for one in outcomes:
        told = one.test if one.caught and not why else "\n".join(filter(None, (one.test, one.why)))
        colour = "green" if one.caught else "bold red"
        verdict = f"[{colour}]{one.verdict}[/]"
        table.add_row(one.mutation.name, one.mutation.rule, verdict, told.replace("[", "\\["), f"{one.seconds:.0f}")
    return table


def _conclude(outcomes: list[Outcome]) -> int:
    caught = sum(one.caught for one in outcomes)
    print(json.dumps({"mutations": len(outcomes), "caught": caught, "missed": len(outcomes) - caught}))
    return 0 if caught == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
