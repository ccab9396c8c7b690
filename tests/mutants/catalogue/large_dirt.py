"""The dirt of large scopes, in pieces: R6, R8 to R10."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LUA = "sessioncache/hot/lua/"
_LARGE = "scripts/test_large_dirty_scopes.py::"

MUTATIONS = (
    Mutation(
        "values of many keys go through Lua",
        "R6",
        _LUA + "dirt.lua",
        "  if not only_marks and dirty > MANY then return {'large', size} end\n",
        "",
        (_LARGE + "test_values_of_many_keys_do_not_go_through_lua",),
    ),
    Mutation(
        "a large scope is read at several instants",
        "R6",
        "sessioncache/hot/dirty_pieces.py",
        "        if found[:3] != same:\n",
        "        if False:\n",
        (_LARGE + "test_a_scope_that_changes_between_two_pieces_is_read_anew",),
    ),
    Mutation(
        "a large scope that is written all the time is never read",
        "R6",
        "sessioncache/hot/dirty_pieces.py",
        "    for _ in range(_ROUNDS):\n",
        "    while True:\n",
        (_LARGE + "test_a_scope_that_is_written_all_the_time_is_read_nevertheless",),
    ),
    Mutation(
        "a large scope is acknowledged in one script",
        "R8",
        "sessioncache/hot/dirty_fields.py",
        "    if count <= PIECE_ROWS and size <= PIECE_BYTES:\n",
        "    if True:\n",
        (_LARGE + "test_an_acknowledgement_in_pieces_leaves_nothing",),
    ),
    Mutation(
        "scopes of one script have any number of rows",
        "R8",
        "sessioncache/hot/backlog.py",
        " or rows > PIECE_ROWS or total > PIECE_BYTES:",
        ":",
        (_LARGE + "test_scopes_of_one_script_have_no_more_rows_than_one_piece",),
    ),
    Mutation(
        "a claim goes with the first piece of an acknowledgement",
        "R9",
        _LUA + "ack.lua",
        "ARGV[at + 7] ~= '-', ",
        "true, ",
        (_LARGE + "test_what_a_worker_did_not_acknowledge_to_the_end_is_flushed_again",),
    ),
    Mutation(
        "flushed through passes a row that was refused in an early piece",
        "R8",
        "sessioncache/hot/backlog.py",
        'b"2" if isinstance(done, Acknowledged) and _is_refused(done) else b""',
        'b""',
        (_LARGE + "test_a_row_that_was_refused_in_an_early_piece_holds_flushed_through_back",),
    ),
    Mutation(
        "what was refused in an early piece gets younger",
        "R8",
        _LUA + "ack.lua",
        "ARGV[at + 7] == '2'\n",
        "false\n",
        (_LARGE + "test_a_row_that_was_refused_in_an_early_piece_holds_flushed_through_back",),
    ),
    Mutation(
        "values without letters are looked at",
        "R10",
        _LUA + "prelude.lua",
        "      if letter and string.find(string.sub(letter, 11, 11), kind) then\n",
        "      if not letter then letter = ZERO .. '|' .. kind end\n      if true then\n",
        (_LARGE + "test_values_without_a_letter_are_not_looked_at_for_letters",),
    ),
)
