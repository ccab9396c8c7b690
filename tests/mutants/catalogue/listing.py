"""Lists (DESIGN §5): what keeps a session from being missed, repeated or resurrected there: R14, R17."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LISTING, _PRELUDE = "sessioncache/operations/list.py", "sessioncache/hot/lua/prelude.lua"
_PAGES, _UNFLUSHED = "client/test_pages.py::", "scripts/test_unflushed.py::"

MUTATIONS = (
    Mutation(
        "listed beyond the frontier",
        "R14",
        _LISTING,
        "            known = [one for one in known if end is not None and one[0] <= end]\n",
        "",
        (_PAGES + "test_many_rows_that_unflushed_sessions_have_superseded_do_not_hide_those_below",),
    ),
    Mutation(
        "an unflushed tombstone does not hide SQL's row",
        "R14",
        _LISTING,
        "        self._hot = {one.scope_id: one for one in unflushed}\n",
        "        self._hot = {one.scope_id: one for one in unflushed if not one.deleted}\n",
        (_PAGES + "test_many_rows_that_unflushed_sessions_have_superseded_do_not_hide_those_below",),
    ),
    Mutation(
        "SQL's newer head is not listed",
        "R14",
        _LISTING,
        "            if hot is None or hot.revision < row.head.revision:\n                self._found",
        "            if hot is None:\n                self._found",
        (_PAGES + "test_a_session_re_created_and_flushed_between_the_two_readings_comes_once",),
    ),
    Mutation(
        "a doubtful head is listed",
        "R17",
        _LISTING,
        "if not one.doubtful or known.get(one.scope_id, 0) < one.revision]",
        "]",
        (_PAGES + "test_r17_a_session_deleted_elsewhere_is_not_listed_by_a_redis_that_has_it_unflushed",),
    ),
    Mutation(
        "in one index of unflushed sessions only",
        "R14",
        _PRELUDE,
        "    call('ZADD', unflushed_index(base, place, parents), since, member)\n",
        "",
        (_UNFLUSHED + "test_a_session_is_in_all_indexes_while_sql_lacks_its_head_and_then_in_none",),
    ),
    Mutation(
        "unflushed only with a second mark",
        "R14",
        _PRELUDE,
        "if #parents == 160 and marked > 0 then enter_unflushed",
        "if #parents == 160 and marked > 1 then enter_unflushed",
        ("scripts/test_touching.py::test_a_touch_moves_the_head_and_no_revision_of_the_values",),
    ),
)
