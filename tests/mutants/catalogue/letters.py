"""What the database refuses as data: R10."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LUA = "sessioncache/hot/lua/"
_LETTERS, _SCRIPTS = "gaps/test_letters.py::", "scripts/test_letters.py::"
_NAMESPACE = "test_r10_a_namespace_whose_record_is_refused_holds_up_neither_its_session_nor_others"

MUTATIONS = (
    Mutation(
        "one refusal makes a letter",
        "R10",
        _LUA + "accuse.lua",
        "local dead = attempts >= tonumber(ARGV[3]) and 1 or 0",
        "local dead = 1",
        (_LETTERS + "test_a_refusal_is_a_letter_after_as_many_attempts_as_set",),
    ),
    Mutation(
        "what another worker flushed meanwhile is accused",
        "R10",
        _LUA + "accuse.lua",
        "if not is_awaited() then return {'ok', 0, 0} end\n",
        "",
        (_SCRIPTS + "test_what_another_worker_flushed_meanwhile_is_not_accused",),
    ),
    Mutation(
        "a head that only letters are marked beside is accused",
        "R10",
        _LUA + "accuse.lua",
        "if call('ZSCORE', base .. 'dirty', member) then return true end",
        "if call('EXISTS', base .. 'd:' .. member) == 1 then return true end",
        (_SCRIPTS + "test_a_head_that_nothing_but_letters_waits_for_is_not_accused",),
    ),
    Mutation(
        "a head that only a namespace waits for is not accused",
        "R10",
        _LUA + "accuse.lua",
        "if call('ZSCORE', base .. 'dirty', space) then return true end",
        "if false then return true end",
        (_SCRIPTS + "test_a_head_that_only_a_namespace_waits_for_is_accused",),
    ),
    Mutation(
        "dead letters still claimed",
        "R10",
        _LUA + "accuse.lua",
        "if dead == 1 then rest(KEYS[1], base, member, KEYS[2]) end\n",
        "",
        (_LETTERS + "test_a_letter_takes_its_scope_out_of_the_index_at_once",),
    ),
    Mutation(
        "dead letters armed again",
        "R10",
        _LUA + "ack.lua",
        "elseif not rest(ctl, base, member, hash) then",
        "else",
        (_LETTERS + "test_a_scope_of_dead_letters_is_pinned_but_neither_claimed_nor_old",),
    ),
    Mutation(
        "dead letters still flushed",
        "R10",
        _LUA + "dirt.lua",
        "    if not dead[field] then kept",
        "    if true then kept",
        (_LETTERS + "test_a_letter_is_left_out_of_later_flushes",),
    ),
    Mutation(
        "a record of a namespace that is refused is blamed on its session",
        "R10",
        "workers/sessioncache_worker/poison.py",
        "if not dirt.holder or await self._takes(dirt.host, read_after):",
        "if not dirt.holder:",
        ("rules/test_letters.py::" + _NAMESPACE,),
    ),
    Mutation(
        "a namespace does not rest when its record is refused",
        "R10",
        _LUA + "prelude.lua",
        "return is_dead(member) or session and is_dead('s' .. session)",
        "return is_dead(session and 's' .. session or member)",
        (_SCRIPTS + "test_a_namespace_whose_record_is_refused_rests_alone_until_it_is_written_anew",),
    ),
    Mutation(
        "a namespace of a living session is never given up",
        "R10",
        _LUA + "scrub.lua",
        "if h[2] and ARGV[4] ~= '1' and problem",
        "if h[2] and problem",
        (_SCRIPTS + "test_a_namespace_whose_record_is_refused_is_given_up_on_command_only",),
    ),
    Mutation(
        "what makes a head suspect outlives its flush with a namespace",
        "R10",
        _LUA + "ack.lua",
        "if letter and string.sub(letter, 11, 11) == '0' then",
        "if false then",
        (_SCRIPTS + "test_what_makes_a_head_suspect_goes_when_a_namespace_is_flushed_with_it",),
    ),
    Mutation(
        "a letter holds for newer writes",
        "R10",
        _LUA + "prelude.lua",
        "if value and string.sub(value, 1, 9) == revisions[j] then",
        "if value then",
        (_LETTERS + "test_a_newer_write_of_a_dead_letter_is_flushed",),
    ),
    Mutation(
        "poison takes its batch along",
        "R10",
        "workers/sessioncache_worker/poison.py",
        "        names = {entry.key for entry in refused}\n",
        "        return FlushResult([])\n        names = {entry.key for entry in refused}\n",
        (_LETTERS + "test_what_is_flushed_with_poison_is_durable_at_once",),
    ),
    Mutation(
        "a pardon flushes nothing",
        "R10",
        _LUA + "pardon.lua",
        "  call('ZADD', base .. 'dirty', now(), member)\n",
        "",
        (_LETTERS + "test_a_letter_is_flushed_on_command_once_its_cause_is_gone",),
    ),
)
