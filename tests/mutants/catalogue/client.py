"""Values and names: R19 and R20; and what a handle remembers of its writes: R11."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_VALUES = "sessioncache/primitives/values.py"
_TITLES = "sessioncache/primitives/titles.py"
_REFUSED = "unit/test_values.py::test_what_is_not_exactly_json_is_refused_with_path_and_type"

MUTATIONS = (
    Mutation(
        "a keeper that died stays dead while the program runs",
        "R9",
        "sessioncache/embedded/opening.py",
        "                await _start_again(root, worker)\n",
        "                pass\n",
        (
            "embedded/test_embedded.py::"
            "test_a_keeper_that_is_killed_with_its_server_and_worker_comes_back_while_the_program_runs",
        ),
    ),
    Mutation(
        "unflushed writes are forgotten",
        "R11",
        "sessioncache/handle/unflushed_writes.py",
        "now.entries = {k: e for k, e in now.entries.items() if k not in known or e.revision > known[k].revision}",
        "now.entries = {}",
        ("unit/test_unflushed_writes.py::test_what_was_written_since_is_kept",),
    ),
    Mutation("NaN accepted", "R19", _VALUES, "if not math.isfinite(item):", "if False:", (_REFUSED,)),
    Mutation(
        "tuple accepted",
        "R19",
        _VALUES,
        '    else:\n        raise _refused(path, kind, f"the value at {path} is of type',
        '    elif kind is not tuple:\n        raise _refused(path, kind, f"the value at {path} is of type',
        (_REFUSED,),
    ),
    Mutation(
        "1.0 becomes 1",
        "R19",
        _VALUES,
        "        text = _encode(value)\n",
        "        text = _encode(int(value) if type(value) is float and value.is_integer() else value)\n",
        ("unit/test_values.py::test_the_hard_ones_come_back_exactly",),
    ),
    Mutation(
        "surrogate pairs accepted",
        "R19",
        _VALUES,
        "        _check_surrogates(key, value)\n",
        "",
        ("unit/test_values.py::test_a_high_and_a_low_surrogate_side_by_side_are_refused",),
    ),
    Mutation(
        "dict keys become strings",
        "R19",
        _VALUES,
        "            if type(name) is not str:\n",
        "            if False:\n",
        ("unit/test_values.py::test_a_dict_key_that_is_not_exactly_a_str_is_refused",),
    ),
    Mutation(
        "Lua adds what it cannot count",
        "R19",
        "sessioncache/hot/lua/writing.lua",
        "and #t <= 15 end",
        "end",
        ("scripts/test_writing.py::test_what_lua_cannot_add_exactly_is_left_to_the_client",),
    ),
    Mutation(
        "a title cuts a flag",
        "R19",
        _TITLES,
        "(len(grapheme) - len(grapheme.rstrip(_FLAG_LETTERS))) % 2 == 1\n",
        "False\n",
        ("unit/test_titles.py::test_no_grapheme_is_cut",),
    ),
    Mutation(
        "a title cuts a cluster of consonants",
        "R19",
        _TITLES,
        "combining(c) == _VIRAMA or c in _LINKS or (linked and _is_mark(c))\n",
        "combining(c) == _VIRAMA\n",
        ("unit/test_titles.py::test_no_sequence_of_unicode_is_cut_where_people_see_one_character",),
    ),
    Mutation(
        "names trimmed",
        "R20",
        "sessioncache/primitives/names.py",
        "    return name\n",
        "    return name.strip()\n",
        ("unit/test_names.py::test_a_name_is_kept_verbatim",),
    ),
    Mutation(
        "names folded",
        "R20",
        "sessioncache/primitives/names.py",
        "    return name\n",
        "    return name.casefold()\n",
        ("unit/test_names.py::test_a_name_is_kept_verbatim",),
    ),
    Mutation(
        "names run into each other",
        "R20",
        "sessioncache/primitives/scopes.py",
        '        digest.update(len(data).to_bytes(4, "big"))\n',
        "",
        ("unit/test_scopes.py",),
    ),
    Mutation(
        "on the embedded default old dirt keeps the next program from writing",
        "R18",
        "sessioncache/coordination/connecting.py",
        '        settings = replace(settings, on_full="wait")\n',
        "",
        ("embedded/test_embedded.py::test_a_write_waits_for_the_worker_to_flush_what_is_old",),
    ),
)
