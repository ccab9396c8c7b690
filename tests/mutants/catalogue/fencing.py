"""Fencing: which incarnation of a bucket may write, and when another one is registered (R17, R18)."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_FENCING = "sessioncache/coordination/fencing.py"
_REPLICA, _INSTALLATION = "races/test_first_replica.py::", "client/test_installation.py::"

MUTATIONS = (
    Mutation(
        "an incarnation stays without the fence",
        "R17",
        _FENCING,
        "if one.kept and fences.get(b) != one.id}",
        "if False}",
        (_REPLICA + "test_r17_a_kept_incarnation_stays_only_where_sql_names_it",),
    ),
    Mutation(
        "what SQL names already is written once more",
        "R17",
        _FENCING,
        "        return [bucket for bucket in buckets if bucket not in confirmed]\n",
        "        return buckets\n",
        (_REPLICA + "test_r17_with_sql_locked_a_first_replica_stops_nothing",),
    ),
    Mutation(
        "what was made for another database is kept",
        "R18",
        _FENCING,
        "            await self._durable.check_owned(named.values())\n",
        "            pass\n",
        ("unit/test_fencing.py::test_r18_what_sql_names_already_is_still_asked_whose_it_is",),
    ),
    Mutation(
        "a first replica stops all with SQL away",
        "R17",
        _FENCING,
        "            kept = await self._incarnations.keep(sorted(held))\n",
        "            kept = set[int]()\n",
        (_REPLICA + "test_r17_with_sql_away_a_first_replica_stops_nothing",),
    ),
    Mutation(
        "a restart is an alarm",
        "R17",
        _FENCING,
        "if before not in (found[b].before, unusable.get(b))}",
        "}",
        (_REPLICA + "test_r17_a_restart_with_all_that_there_was_is_no_alarm",),
    ),
    Mutation(
        "a Redis that forgot everything is left to whoever comes first",
        "R18",
        _FENCING,
        "        await self._incarnations.claim()\n",
        "",
        (_INSTALLATION + "test_r18_who_works_on_is_told_that_others_set_up_a_redis_that_forgot_everything",),
    ),
    Mutation(
        "a Redis that forgot everything while it was registered is left to whoever comes first",
        "R18",
        _FENCING,
        "        await self._incarnations.claim()  # again: Redis may have forgotten it since\n",
        "",
        (_INSTALLATION + "test_r18_a_redis_that_forgets_everything_while_it_is_registered_is_reclaimed_too",),
    ),
    Mutation(
        "what SQL names already waits for what has to be written",
        "R17",
        _FENCING,
        "        async with self._swapping:\n            if not unnamed",
        "        async with self._looking:\n            if not unnamed",
        (_REPLICA + "test_r17_with_sql_locked_a_first_replica_stops_nothing",),
    ),
    Mutation(
        "who asks for no bucket waits for others",
        "R17",
        _FENCING,
        "        if not own:  # a worker",
        "        if False:  # a worker",
        ("unit/test_fencing.py::test_who_asks_for_no_bucket_waits_for_nobody",),
    ),
)
