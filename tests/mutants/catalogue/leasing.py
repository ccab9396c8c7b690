"""Run leases: R5, R17."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LUA = "sessioncache/hot/lua/"
_SCRIPTS = "scripts/test_leases.py::"
_CLIENT = "client/test_leases.py::"
_LOST = _CLIENT + "test_what_is_written_under_a_lost_lease_is_refused"

MUTATIONS = (
    Mutation(
        "retention takes a session from its runner",
        "R5",
        _LUA + "delete.lua",
        " or (select(2, lease_of(ctl, member, inc, h[3])) or 0) > 0) then",
        ") then",
        (_SCRIPTS + "test_retention_keeps_a_session_as_long_as_a_runner_has_leased_it",),
    ),
    Mutation(
        "a lease that has just ended is forgotten",
        "R5",
        _LUA + "forget.lua",
        "if is_other or seen < now() - tonumber(ARGV[1]) then",
        "if true then",
        (_SCRIPTS + "test_a_lease_is_forgotten_an_hour_after_its_end_and_not_before",),
    ),
    Mutation(
        "writes are not fenced",
        "R5",
        _LUA + "writing.lua",
        "  if LEASE == '' then return true end\n",
        "  if true then return true end\n",
        (_LOST + "[set]", _SCRIPTS + "test_without_a_lease_nobody_writes_under_one"),
    ),
    Mutation(
        "a lease that is over lets writes in",
        "R5",
        _LUA + "writing.lua",
        "return token == LEASE and left > 0",
        "return token == LEASE",
        (_SCRIPTS + "test_a_lease_is_held_until_the_microsecond_of_its_end",),
    ),
    Mutation(
        "whoever has had a lease writes on",
        "R5",
        _LUA + "writing.lua",
        "return token == LEASE and left > 0",
        "return token and left > 0",
        (_LOST + "[set]",),
    ),
    Mutation(
        "a lease that is held is taken",
        "R5",
        _LUA + "lease.lua",
        "if holder and holder ~= token and left > 0 then return {'taken', left} end\n",
        "",
        (_SCRIPTS + "test_a_lease_is_held_until_the_microsecond_of_its_end",),
    ),
    Mutation(
        "a lease that is over is not to be had",
        "R5",
        _LUA + "lease.lua",
        "holder ~= token and left > 0 then",
        "holder ~= token then",
        (_SCRIPTS + "test_a_lease_is_held_until_the_microsecond_of_its_end",),
    ),
    Mutation(
        "a lost lease is renewed",
        "R5",
        _LUA + "lease.lua",
        "if ARGV[1] == 'renew' and holder ~= token then return {'lost'} end\n",
        "",
        (_SCRIPTS + "test_r17_a_lease_is_of_one_incarnation",),
    ),
    Mutation(
        "another runner's lease is given back",
        "R5",
        _LUA + "lease.lua",
        "  if holder ~= token then return {'lost'} end\n",
        "",
        (
            _SCRIPTS + "test_a_lease_that_another_took_is_neither_renewed_nor_given_back",
            _CLIENT + "test_the_end_of_a_lost_lease_does_not_end_that_of_the_new_holder",
        ),
    ),
    Mutation(
        "a lease of another life is taken",
        "R5",
        _LUA + "lease.lua",
        "if problem == 'gone' then return {'gone'} end\nif problem then return {problem, 1} end\n",
        "if problem and problem ~= 'gone' then return {problem, 1} end\n",
        (_SCRIPTS + "test_a_lease_is_of_one_life",),
    ),
    Mutation(
        "a lease goes on in the next life",
        "R5",
        _LUA + "prelude.lua",
        "if under ~= inc or life ~= birth then return nil end",
        "if under ~= inc then return nil end",
        (_SCRIPTS + "test_a_lease_of_an_earlier_life_that_was_left_behind_is_nobodys",),
    ),
    Mutation(
        "a lease goes on in the next incarnation",
        "R17",
        _LUA + "prelude.lua",
        "if under ~= inc or life ~= birth then return nil end",
        "if life ~= birth then return nil end",
        (_SCRIPTS + "test_r17_a_lease_is_of_one_incarnation",),
    ),
    Mutation(
        "a lease dated far ahead is held",
        "R5",
        _LUA + "prelude.lua",
        "return token, left <= 86400000000 and left or 0",
        "return token, left",
        (_SCRIPTS + "test_a_lease_dated_absurdly_far_ahead_is_over",),
    ),
    Mutation(
        "a deleted session keeps its lease",
        "R5",
        _LUA + "delete.lua",
        "call('HDEL', ctl, 'l:' .. member)\n",
        "",
        (_SCRIPTS + "test_a_lease_is_of_one_life",),
    ),
    Mutation(
        "namespaces are not fenced",
        "R5",
        "sessioncache/session.py",
        "self._birth, name, self._lease)",
        "self._birth, name)",
        (_LOST + "[a namespace]",),
    ),
    Mutation(
        "touches are not fenced",
        "R5",
        "sessioncache/session.py",
        "touch(self._tiers, part, change, self._lease)",
        "touch(self._tiers, part, change)",
        (_LOST + "[touch]",),
    ),
    Mutation(
        "a lease is never renewed",
        "R5",
        "sessioncache/lease.py",
        "self._renewing = asyncio.ensure_future(self._renew())\n",
        "pass\n",
        (_CLIENT + "test_a_lease_renews_itself_as_long_as_its_holder_lives",),
    ),
    Mutation(
        "a lease of an older incarnation is shown",
        "R17",
        "sessioncache/hot/inspection.py",
        "if under == incarnation and 0 < left",
        "if 0 < left",
        ("cli/test_sessions.py::test_r17_the_lease_of_an_older_incarnation_is_not_shown",),
    ),
    Mutation(
        "a lease of an earlier life is shown",
        "R5",
        "sessioncache/operations/inspect.py",
        "is_held = sight.lease is not None and sight.lease[0] == private.own.head[Field.BIRTH]",
        "is_held = sight.lease is not None",
        ("cli/test_sessions.py::test_r5_the_lease_of_an_earlier_life_is_not_shown",),
    ),
)
