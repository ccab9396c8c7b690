"""Hydrating: R12 to R14."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LUA = "sessioncache/hot/lua/"
_TOKENS = "scripts/test_tokens.py::"
_READINGS = "sessioncache/readings.py"
_SHARED = "client/test_readings.py::"

MUTATIONS = (
    Mutation(
        "half a scope installed",
        "R12",
        _LUA + "install.lua",
        "if call('HLEN', staged) ~= tonumber(ARGV[3]) then",
        "if false then",
        (_TOKENS + "test_a_scope_of_which_a_staged_chunk_was_evicted_is_not_installed",),
    ),
    Mutation(
        "a cold scope is written",
        "R12",
        _LUA + "writing.lua",
        "  if not h[1] then return 'cold' end\n",
        "  if not h[1] then h = {p.inc, ZERO, p.birth, false, false, false, 0, 0, false, false} end\n",
        (_TOKENS.replace("tokens", "writing") + "test_all_cold_parts_are_named_at_once",),
    ),
    Mutation(
        "install without token",
        "R13",
        _LUA + "install.lua",
        "if not holds_token(KEYS[1], member, inc, ARGV[1]) then return {'retry'} end\n",
        "",
        (_TOKENS + "test_what_was_read_before_a_write_that_was_flushed_and_evicted_is_never_installed",),
    ),
    Mutation(
        "create without token",
        "R13",
        _LUA + "create.lua",
        "if not holds_token(session.ctl, session.member, session.inc, ARGV[9]) then",
        "if false then",
        (_TOKENS + "test_a_create_under_another_token_is_refused",),
    ),
    Mutation(
        "tombstone without token",
        "R13",
        _LUA + "delete.lua",
        "if not holds_token(ctl, member, inc, ARGV[7]) then",
        "if false then",
        ("gaps/test_cold_delete.py::test_a_cold_session_is_buried_under_its_token_only",),
    ),
    Mutation(
        "not found without token",
        "R13",
        _LUA + "absent.lua",
        "if not holds_token(KEYS[1], member, inc, ARGV[1]) then return {'retry'} end\n",
        "",
        (_TOKENS + "test_absence_is_confirmed_under_the_token_only",),
    ),
    Mutation(
        "token not bound to its incarnation",
        "R13",
        _LUA + "prelude.lua",
        "return held and string.match(held, '^(.-)|%d+$') == inc .. '|' .. token",
        "return held and string.match(held, '^.-|(.-)|%d+$') == token",
        (_TOKENS + "test_a_new_incarnation_destroys_the_token",),
    ),
    Mutation(
        "install keeps the token",
        "R13",
        _LUA + "install.lua",
        "destroy_token(KEYS[1], member)\n",
        "",
        (_TOKENS + "test_an_install_consumes_the_token",),
    ),
    Mutation(
        "a write leaves the token",
        "R13",
        _LUA + "writing.lua",
        "  destroy_token(p.ctl, p.member)\n  for i = 2",
        "  for i = 2",
        (_TOKENS + "test_a_write_or_a_delete_destroys_the_token",),
    ),
    Mutation(
        "a delete leaves the token",
        "R13",
        _LUA + "delete.lua",
        "destroy_token(ctl, member)\n",
        "",
        (_TOKENS + "test_a_write_or_a_delete_destroys_the_token",),
    ),
    Mutation(
        "installed over a hash",
        "R13",
        _LUA + "install.lua",
        "if call('EXISTS', KEYS[2]) == 1 then return {'retry'} end\n",
        "",
        (_TOKENS + "test_nothing_is_installed_over_a_hash",),
    ),
    Mutation(
        "two loaders at once",
        "R12",
        _LUA + "token.lua",
        "  if owner == inc and left > 0 and left <= 60000000 then return {'wait', math.ceil(left / 1000)} end\n",
        "",
        (_TOKENS + "test_a_second_loader_waits_for_the_first",),
    ),
    Mutation(
        "hydrate with dead entries",
        "R14",
        "sessioncache/durable/reading.py",
        "if not row.deleted and row.revision > head.cleared]",
        "if not row.deleted]",
        ("test_durable_reading.py::test_only_living_entries_are_read_but_all_count_for_what_is_known",),
    ),
    Mutation(
        "a deleted session is hydrated",
        "R14",
        "sessioncache/hydration.py",
        "if place.ref.kind is ScopeKind.SESSION and found.is_free:",
        "if place.ref.kind is ScopeKind.SESSION and found.stored is None:",
        ("gaps/test_cold_delete.py::test_a_session_that_sql_knows_as_deleted_is_not_found",),
    ),
    Mutation(
        "a transaction for each cold scope",
        "R12",
        _READINGS,
        "_MOST = 32\n",
        "_MOST = 1\n",
        (_SHARED + "test_many_cold_sessions_take_few_transactions",),
    ),
    Mutation(
        "one fenced off, all fenced off",
        "R17",
        _READINGS,
        "_fail([one for one in part if one.ref.bucket in fenced.buckets], fenced)",
        "_fail(part, fenced)",
        (_SHARED + "test_who_comes_under_an_older_incarnation_is_fenced_off_alone",),
    ),
    Mutation(
        "a damaged row fails its neighbours",
        "R12",
        _READINGS,
        "if len(part) == 1 or isinstance(error, DurableTierUnavailableError):",
        "if True:",
        (_SHARED + "test_a_damaged_row_concerns_its_own_session_only",),
    ),
    Mutation(
        "who reads together waits together",
        "R12",
        _READINGS,
        "asyncio.timeout_at(wanted.until)",
        "asyncio.timeout_at(None)",
        (_SHARED + "test_each_caller_gives_up_at_its_own_deadline",),
    ),
)
