"""Births: sessions that are stored in pieces first (R1, R3, R5, R12)."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LUA = "sessioncache/hot/lua/"
_BIRTHS, _FORKING = "sessioncache/hot/births.py", "sessioncache/forking.py"
_SCRIPTS, _CLIENT = "scripts/test_births.py::test_", "client/test_births.py::test_"

MUTATIONS = (
    Mutation(
        "a distant server is waited for with each piece",
        "R12",
        _BIRTHS,
        "islice(pieces, _AT_ONCE)",
        "islice(pieces, 1)",
        (_CLIENT + "pieces_go_several_in_a_round_trip",),
    ),
    Mutation(
        "a birth of which pieces are missing",
        "R12",
        _LUA + "gathered.lua",
        "call('HLEN', one.pieces) ~= one.n or ",
        "",
        (_SCRIPTS + "lost_pieces_are_missed", _SCRIPTS + "a_fork_misses_lost_pieces_of_a_namespace_as_well"),
    ),
    Mutation(
        "a birth of which marks are missing",
        "R1",
        _LUA + "gathered.lua",
        " or call('SCARD', one.pieces .. ':d') ~= one.n",
        "",
        (_SCRIPTS + "lost_pieces_are_missed", _SCRIPTS + "a_fork_misses_lost_pieces_of_a_namespace_as_well"),
    ),
    Mutation(
        "a birth at or below what was there before",
        "R3",
        _LUA + "gathered.lua",
        "is_above(birth, previous) and ",
        "",
        (_SCRIPTS + "a_birth_is_above_sql_the_tombstone_and_its_temp_keys",),
    ),
    Mutation(
        "a birth below the temp: keys of the life before",
        "R5",
        _LUA + "gathered.lua",
        " and is_above(birth, call('HGET', p.hash, 'e') or ZERO)",
        "",
        (_SCRIPTS + "a_birth_is_above_sql_the_tombstone_and_its_temp_keys",),
    ),
    Mutation(
        "a birth may expire",
        "R15",
        _LUA + "gathered.lua",
        "  call('PERSIST', p.pieces)\n",
        "",
        (_SCRIPTS + "a_birth_has_what_a_create_has",),
    ),
    Mutation(
        "the marks of a birth may expire",
        "R15",
        _LUA + "gathered.lua",
        "  call('PERSIST', marks)\n",
        "",
        (_SCRIPTS + "a_birth_has_what_a_create_has",),
    ),
    Mutation(
        "a birth has its name before it is whole",
        "R1",
        _LUA + "gathered.lua",
        "  call('PERSIST', p.pieces)\n  call('RENAME', p.pieces, p.hash)\n",
        "  call('PERSIST', p.pieces)\n  call('RENAME', p.pieces, p.hash)\n  call('HSET', p.hash, unpack(head))\n",
        (_SCRIPTS + "marks_and_index_come_before_the_hash_which_is_whole",),
    ),
    Mutation(
        "pieces stay for ever",
        "R15",
        _LUA + "gather.lua",
        "call('PEXPIRE', pieces, ARGV[2])\n",
        "",
        (_SCRIPTS + "pieces_are_no_scope_and_expire",),
    ),
    Mutation(
        "the shared keys of a birth go back",
        "R3",
        _LUA + "create.lua",
        "  highest = ARGV[17]\n",
        "",
        (_SCRIPTS + "what_is_shared_is_above_the_birth_and_temp_keys_are_of_it",),
    ),
    Mutation(
        "one script forks whatever there is",
        "R12",
        _LUA + "fork.lua",
        "  if keys > MOST_KEYS or bytes > MOST_BYTES then return refuse(parent, {'large'}) end\n",
        "",
        (
            _SCRIPTS + "what_is_larger_is_not_forked_by_one_script",
            _SCRIPTS + "more_bytes_than_one_call_may_write_are_not_forked_by_one_script",
        ),
    ),
    Mutation(
        "a large fork without a namespace that has just come",
        "R12",
        _FORKING,
        '        if own.fields.get(b"l", b"") != fork.spaces.mark:\n            raise MoreNamespaces\n',
        "",
        (_CLIENT + "a_namespace_that_came_since_they_were_listed_is_forked_as_well",),
    ),
    Mutation(
        "a large fork lets its token go while it reads",
        "R13",
        "sessioncache/vacancy.py",
        "            self._keeping.enter_context(self._tiers.hot.kept(self._place, found.token))\n",
        "",
        ("races/test_slow_loads.py::test_a_large_fork_keeps_its_token_while_it_reads_its_parent",),
    ),
    Mutation(
        "a parent is read for an id that is not known to be free",
        "R13",
        _FORKING,
        "        await find_birth(self._tiers.link, self.child, token, known)\n",
        "",
        (_CLIENT + "a_parent_is_read_only_under_the_token",),
    ),
    Mutation(
        "pieces of a birth that failed stay",
        "R12",
        _BIRTHS,
        '            await link.command(b"UNLINK", *(key for place, _ in scopes for key in place.gathered(name)))\n',
        "            pass\n",
        (_SCRIPTS + "pieces_are_no_scope_and_expire",),
    ),
    Mutation(
        "pieces are stored for an id that is taken",
        "R13",
        _LUA + "vacant.lua",
        "if h[1] and not h[2] then return {'exists'} end\n",
        "",
        (_SCRIPTS + "nothing_is_stored_for_an_id_that_is_not_free",),
    ),
    Mutation(
        "a create has no limit for what is shared",
        "R12",
        "sessioncache/creation.py",
        "    check_call(changes for scope, changes in operations.items() if scope is not KeyScope.SESSION)\n",
        "",
        (_CLIENT + "what_is_shared_has_the_limits_of_a_call",),
    ),
    Mutation(
        "private and shared keys of a large create count as one write",
        "R5",
        "sessioncache/session.py",
        "        if written.birth:  # what is shared",
        "        if False:  # what is shared",
        (_CLIENT + "flush_is_true",),
    ),
)
