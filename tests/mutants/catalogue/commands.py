"""What a command line must not do by mistake: R10."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

MUTATIONS = (
    Mutation(
        "one letter and all letters is all letters",
        "R10",
        "sessioncache/cli/dead_letters.py",
        '    if options.action in ("retry", "drop") and bool(options.letter) == options.all:\n',
        "    if False:\n",
        ("cli/test_console.py::test_whoever_names_one_letter_does_not_drop_others",),
    ),
)
