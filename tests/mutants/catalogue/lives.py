"""Lives, versions and leases: calls that are repeated, what a caller compares with, activity, clocks that are set."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LUA = "sessioncache/hot/lua/"
_OLD = "gaps/test_old_lives.py::test_"
_ONCE = "scripts/test_once.py::test_"
_LEASES = "scripts/test_leases.py::test_"
_SEEN = "conformance/test_memory.py::TestRevisions::test_the_revision_stands_for_what_the_state_shows"

MUTATIONS = (
    Mutation(
        "a repeated write answers another life",
        "R5",
        _LUA + "write.lua",
        "  if is_over(parts[1], before[2]) then return {'gone'} end\n",
        "",
        (_OLD + "r5_a_repeat_whose_first_try_was_applied_is_refused_by_another_life",),
    ),
    Mutation(
        "a repeated touch answers another life",
        "R5",
        _LUA + "touch.lua",
        "  if is_over(session, before[2]) then return {'gone'} end\n",
        "",
        (_OLD + "r5_a_repeat_whose_first_try_was_applied_is_refused_by_another_life",),
    ),
    Mutation(
        "a repeated touch of any life takes the next one",
        "R5",
        _LUA + "writing.lua",
        " or (p.birth == '' and is_above(h[1], revision)))",
        ")",
        (_OLD + "r5_a_repeat_whose_first_try_was_applied_is_refused_by_another_life",),
    ),
    Mutation(
        "another life is told by its revision only",
        "R5",
        _LUA + "writing.lua",
        "(p.birth ~= '' and h[1] ~= p.birth)",
        "is_above(h[1], revision)",
        (_OLD + "r5_a_clock_that_is_set_back_does_not_hide_another_life",),
    ),
    Mutation(
        "a repeated touch answers a head that is not there",
        "R5",
        _LUA + "touch.lua",
        "call('EXISTS', session.hash) == 1 and with_head(before) or {'applied'}",
        "with_head(before)",
        (_OLD + "r4_a_touch_whose_session_was_evicted_before_its_repeat_is_told_to_be_applied",),
    ),
    Mutation(
        "the number of an increment is forgotten",
        "R4",
        _LUA + "writing.lua",
        "#result <= SMALL and string.byte(result) ~= 91",
        "result == ''",
        (_OLD + "r4_the_number_that_an_increment_led_to_is_remembered",),
    ),
    Mutation(
        "long numbers are remembered",
        "R4",
        _LUA + "writing.lua",
        "#result <= SMALL and string.byte(result) ~= 91",
        "string.byte(result) ~= 91",
        (_OLD + "r4_a_number_too_long_to_remember_is_read_again",),
    ),
    Mutation(
        "a step of the clock makes a generation old",
        "R4",
        _LUA + "prelude.lua",
        "math.max(0, math.min(gap, 5000000))",
        "math.max(0, gap)",
        (_ONCE + "an_id_outlives_its_call_wherever_the_clock_steps",),
    ),
    Mutation(
        "a generation that is hardly used never grows old",
        "R4",
        _LUA + "prelude.lua",
        "math.max(0, math.min(gap, 5000000))",
        "0",
        (_ONCE + "ids_are_forgotten_in_the_end",),
    ),
    Mutation(
        "the revision runs ahead of the state",
        "R5",
        "sessioncache/state.py",
        "if layer.revision == done.values_before:",
        "if True:",
        (_SEEN,),
    ),
    Mutation(
        "the revision stays where it was read",
        "R5",
        "sessioncache/state.py",
        "if layer.revision == done.values_before:",
        "if False:",
        (_SEEN,),
    ),
    Mutation(
        "a write tells the revision of the scope for that of its values",
        "R5",
        _LUA + "writing.lua",
        "results, p.r, p.v}",
        "results, p.r, p.r}",
        ("conformance/test_valkey_sqlite.py::TestRevisions::test_what_is_no_value_does_not_make_the_revision_stale",),
    ),
    Mutation(
        "a taking that was given up takes the lease",
        "R4",
        _LUA + "lease.lua",
        "local before = ARGV[1] == 'take' and recall(base, token)\n",
        "local before = nil\n",
        (_LEASES + "r4_a_copy_of_the_taking_that_comes_after_the_lease_was_given_back_takes_nothing",),
    ),
    Mutation(
        "a taking that was cancelled keeps the lease",
        "R5",
        "sessioncache/lease.py",
        "            await self._end()\n            raise\n",
        "            raise\n",
        ("client/test_leases.py::test_a_lease_that_is_being_taken_when_its_taker_is_cancelled_is_given_back",),
    ),
    Mutation(
        "the cancellation of a holder ends the giving back",
        "R5",
        "sessioncache/lease.py",
        "        await asyncio.wait([ending], timeout=self._tiers.settings.timeout)\n",
        "        await ending\n",
        ("client/test_leases.py::test_a_lease_whose_holder_is_cancelled_while_it_leaves_is_given_back",),
    ),
    Mutation(
        "a lease is given back once, or not at all",
        "R5",
        "sessioncache/lease.py",
        "            if loop.time() >= over:\n",
        "            if True:\n",
        ("client/test_leases.py::test_a_lease_whose_taking_ran_out_of_time_is_given_back_once_redis_is_there",),
    ),
    Mutation(
        "a holder begins with what it knew before",
        "R5",
        "sessioncache/lease.py",
        "            await held.refresh()  # whoever had it before has written since\n",
        "",
        ("conformance/test_memory.py::TestLeases",),
    ),
    Mutation(
        "forks are not fenced",
        "R5",
        _LUA + "fork.lua",
        "if not is_fenced(parent) then return refuse(parent, {'lease'}) end\n",
        "",
        (_LEASES + "a_fork_under_a_lease_needs_it",),
    ),
    Mutation(
        "retention takes a cold session from its runner",
        "R5",
        _LUA + "delete.lua",
        "h = {inc, ARGV[8], told.b, ",
        "h = {inc, ARGV[8], false, ",
        (_LEASES + "retention_keeps_a_leased_session_that_was_evicted",),
    ),
)
