"""The vitals are true, and there whatever the state of things: R10, R15, R17."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_VITALS = "sessioncache/hot/lua/metrics.lua"
_TESTS = "client/test_metrics.py::"

MUTATIONS = (
    Mutation(
        "no vitals when memory is full",
        "R15",
        _VITALS,
        "#!lua flags=no-writes\n",
        "#!lua\n",
        (_TESTS + "test_vitals_are_read_when_memory_is_full",),
    ),
    Mutation(
        "every bucket counts as registered",
        "R17",
        _VITALS,
        "enter(ctl) and 1 or 0",
        "1",
        (_TESTS + "test_a_bucket_is_told_with_its_incarnation_and_whether_sql_knows_it",),
    ),
    Mutation(
        "dead letters are not told",
        "R10",
        _VITALS,
        "if string.sub(letter, 11, 11) ~= '0' then dead = dead + 1 end",
        "dead = dead + 0",
        (_TESTS + "test_dead_letters_are_counted_and_are_neither_dirty_nor_old",),
    ),
)
