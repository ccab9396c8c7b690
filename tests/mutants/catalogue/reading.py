"""Sharing a connection, and reading only what has changed: no answer for another call, nothing older than Redis has."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LINE = "sessioncache/hot/line.py"
_STATE = "sessioncache/state.py"
_READ = "sessioncache/hot/lua/read.lua"
_LINES = "client/test_lines.py::test_"
_KNOWN = "unit/test_known.py::test_"
_UNCHANGED = "client/test_unchanged.py"

MUTATIONS = (
    Mutation(
        "a cancelled call is sent",
        "shared pipelines",
        _LINE,
        "        going = [exchange for exchange in leaving if not exchange.answer.done()]\n",
        "        going = leaving\n",
        (_LINES + "a_call_that_is_cancelled_before_it_left_is_not_sent",),
    ),
    Mutation(
        "many calls leave over a connection that may have ended",
        "R4",
        _LINE,
        "len(self._leaving) >= _AT_ONCE and not self._doubted",
        "len(self._leaving) >= _AT_ONCE",
        (_LINES + "all_calls_wait_where_the_end_of_the_connection_may_be_unnoticed",),
    ),
    Mutation(
        "one time-out ends all",
        "shared pipelines",
        _LINE,
        "            if exchange.until <= now:\n",
        "            if True:\n",
        (_LINES + "each_call_has_a_time_of_its_own_and_the_late_connection_serves_who_waits",),
    ),
    Mutation(
        "the answer of a call that was given up is the next one's",
        "shared pipelines",
        _LINE,
        "        self._waiting.extend(going)\n",
        "        self._waiting = deque(e for e in (*self._waiting, *going) if not e.answer.done())\n",
        (_LINES + "an_answer_that_nobody_waits_for_any_more_reaches_nobody",),
    ),
    Mutation(
        "a late connection is used again",
        "shared pipelines",
        "sessioncache/hot/link.py",
        "                line.retire()  # the next one may be better\n",
        "",
        (_LINES + "after_a_time_out_the_next_call_has_another_connection",),
    ),
    Mutation(
        "what was sent is sent again without being asked",
        "R4",
        "sessioncache/hot/link.py",
        "                if exchange.sent:\n",
        "                if False:\n",
        (_LINES + "a_cut_connection_ends_every_call_that_was_sent_over_it",),
    ),
    Mutation(
        "what others wrote in between is taken for known",
        "unchanged reads",
        _STATE,
        "after if layer.held and layer.held == before else",
        "after if layer.held else",
        (_KNOWN + "a_write_of_ours_takes_what_is_held_along_only_from_the_version_held",),
    ),
    Mutation(
        "a write of ours is shown in spite of a newer reading",
        "unchanged reads",
        _STATE,
        "if where is scope and count > began and read_at < revision:",
        "if where is scope and count > began:",
        (_KNOWN + "a_key_that_somebody_deleted_since_a_write_is_not_brought_back_by_it",),
    ),
    Mutation(
        "a write of ours that is answered late is shown",
        "unchanged reads",
        _STATE,
        "if is_known or self._is_overtaken(began, key, revision):",
        "if self._is_overtaken(began, key, revision):",
        (_KNOWN + "a_write_that_answers_after_a_reading_of_something_newer_changes_nothing",),
    ),
    Mutation(
        "an older reading replaces a newer one",
        "unchanged reads",
        _STATE,
        "return bool(version) and version[:-DIGITS] == held[:-DIGITS] and version < held",
        "return False",
        (_KNOWN + "readings_that_are_older_than_what_is_held_change_nothing",),
    ),
    Mutation(
        "a changed scope counts as unchanged",
        "unchanged reads",
        _READ,
        "reply[part + 1] = held ~= '' and held == inc .. h[5] and 1 or read(inc, hash, h[5], count, keys)",
        "reply[part + 1] = held ~= '' and 1 or read(inc, hash, h[5], count, keys)",
        (_UNCHANGED,),
    ),
    Mutation(
        "changed temp: keys count as unchanged",
        "unchanged reads",
        _READ,
        "reply[part + 1] = held ~= '' and held == inc .. h[2] and 1 or read(inc, hash, h[2], count, keys)",
        "reply[part + 1] = held ~= '' and 1 or read(inc, hash, h[2], count, keys)",
        (_UNCHANGED,),
    ),
    Mutation(
        "a merge goes unnoticed by who holds the scope",
        "unchanged reads",
        "sessioncache/hot/lua/merge.lua",
        "  top = top + 1\n  call('HSET', ctl, 'm:' .. member, rev_digits(top))\n",
        "",
        ("gaps/test_merge.py::test_whoever_holds_a_scope_that_was_merged_in_the_same_incarnation_reads_it_again",),
    ),
    Mutation(
        "a reading of the whole meets temp: keys of an earlier life",
        "R5",
        _READ,
        "    if h[1] ~= birth then reply[part + 1] = {inc}\n",
        "    if not h[1] then reply[part + 1] = {inc}\n",
        ("gaps/test_temp.py::test_temp_keys_of_an_earlier_life_are_not_met_by_a_reading_of_the_whole",),
    ),
    Mutation(
        "what was merged is forgotten with its eviction",
        "unchanged reads",
        "sessioncache/hot/lua/install.lua",
        "if merged then --",
        "if false then --",
        ("gaps/test_merge.py::test_a_scope_that_was_merged_and_evicted_is_another_than_it_was_before",),
    ),
    Mutation(
        "what is older is never believed",
        "unchanged reads",
        _STATE,
        "return layer.told > began and _is_older",
        "return _is_older",
        (_KNOWN + "what_is_older_counts_where_the_call_began_after_what_is_held",),
    ),
    Mutation(
        "a closing connection is written to",
        "shared pipelines",
        _LINE,
        "        if self.lost or self._transport.is_closing():\n",
        "        if self.lost:\n",
        (_LINES + "a_call_that_met_a_closing_connection_was_not_sent",),
    ),
    Mutation(
        "who asks when all readings have ended waits in vain",
        "R13",
        "sessioncache/readings.py",
        "            self._running -= 1\n",
        "            asyncio.get_running_loop().call_soon(setattr, self, '_running', self._running - 1)\n",
        ("client/test_readings.py::test_who_asks_just_when_all_transactions_have_ended_is_read_too",),
    ),
    Mutation(
        "a merged reading mixes two moments",
        "R1",
        "sessioncache/hot/tier.py",
        '                if body.get(b"r") != content.fields[b"r"] or body.get(b"i") != content.incarnation:\n',
        "                if False:\n",
        (_UNCHANGED + "::test_a_reading_of_the_whole_never_mixes_two_moments",),
    ),
)
