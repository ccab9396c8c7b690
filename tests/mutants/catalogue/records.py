"""Records: the time that was given with a value is compared where it is written, and goes where the value goes."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LUA = "sessioncache/hot/lua/"
_SCRIPTS, _CLIENT = "scripts/test_records.py::", "client/test_records.py::"
_JSON = _SCRIPTS + "test_increment_and_append_see_the_json_and_take_the_date_away"

_DATE = "string.byte(e, 10) == 64 and string.sub(e, 11, 19) or e"
_LATER, _EARLIER = f"is_above({_DATE}, string.sub(text, 2, 10))", f"is_above(string.sub(text, 2, 10), {_DATE})"

MUTATIONS = (
    Mutation(
        "an older record is taken",
        "R2",
        _LUA + "writing.lua",
        f"  elseif code == 'R' and e and {_LATER} then\n    result = 0\n",
        "",
        (_CLIENT + "test_the_newest_of_eight_writers_wins_whatever_the_order",),
    ),
    Mutation(
        "a record of the same time is left out",
        "R2",
        _LUA + "writing.lua",
        _LATER,
        f"not {_EARLIER}",
        (_SCRIPTS + "test_only_what_is_older_than_the_entry_is_left_out",),
    ),
    Mutation(
        "times compared as numbers",
        "R2",
        _LUA + "writing.lua",
        _LATER,
        f"rev_number({_DATE}) > rev_number(string.sub(text, 2))",
        (_SCRIPTS + "test_only_what_is_older_than_the_entry_is_left_out",),
    ),
    Mutation(
        "a record without a time is of none",
        "R2",
        _LUA + "writing.lua",
        "string.sub(e, 11, 19) or e, string",
        "string.sub(e, 11, 19) or ZERO, string",
        (_SCRIPTS + "test_an_entry_without_a_date_is_as_old_as_its_revision",),
    ),
    Mutation(
        "increment and append see the date",
        "R19",
        _LUA + "writing.lua",
        "        local json = string.sub(e, -json_size(e, 10))\n",
        "        local json = string.sub(e, 10)\n",
        (_JSON,),
    ),
    Mutation(
        "dates count as bytes of the scope",
        "R12",
        _LUA + "prelude.lua",
        "  return string.byte(text, first or 1) == 64 and size - 10 or size\n",
        "  return size\n",
        (_SCRIPTS + "test_the_bytes_of_a_scope_are_those_of_its_json",),
    ),
    Mutation(
        "dates counted at a hydration",
        "R12",
        "sessioncache/coordination/hydration.py",
        "sum(json_size(entry.text) for entry in stored.entries)",
        "sum(len(entry.text) for entry in stored.entries)",
        (_CLIENT + "test_a_flush_an_eviction_and_a_hydration_keep_records_as_they_are",),
    ),
    Mutation(
        "the date lost in a flush",
        "R6",
        "sessioncache/durable/flushing.py",
        "not entry.text, date_of(entry.text)",
        "not entry.text, None",
        (_CLIENT + "test_sql_has_the_json_alone_and_the_time_beside_it",),
    ),
    Mutation(
        "the date left in SQL's text",
        "R19",
        "sessioncache/durable/flushing.py",
        "value, space = json_of(entry.text).decode(), dirt.namespace",
        "value, space = entry.text.decode(), dirt.namespace",
        (_CLIENT + "test_sql_has_the_json_alone_and_the_time_beside_it",),
    ),
    Mutation(
        "the date lost in a reading of SQL",
        "R12",
        "sessioncache/durable/reading.py",
        "dated(row.value.encode(), row.given_at)",
        "row.value.encode()",
        (_CLIENT + "test_a_flush_an_eviction_and_a_hydration_keep_records_as_they_are",),
    ),
    Mutation(
        "a record that was left out is shown",
        "R2",
        "sessioncache/handle/base.py",
        "            if not done.changed:\n",
        "            if False:\n",
        ("conformance/test_memory.py::TestRecords::test_an_older_record_changes_nothing",),
    ),
    Mutation(
        "a record that was left out has to be durable",
        "R11",
        "sessioncache/handle/unflushed_writes.py",
        "    if operation.code == Code.SET_UNLESS_OLDER and result == 0:\n        return None\n",
        "",
        ("unit/test_unflushed_writes.py::test_a_record_that_was_left_out_is_not_remembered",),
    ),
)
