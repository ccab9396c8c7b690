"""What is damaged in Redis, and how much of both tiers is held in memory at a time."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_RULES = "worker/test_damaged_scopes.py::"
_MANY, _PARTS, _ALONE = "scripts/test_many_scopes.py::", "unit/test_loading.py::", "unit/test_isolation.py::"
_FLUSHER, _ISOLATION = "workers/sessioncache_worker/flusher.py", "workers/sessioncache_worker/isolation.py"
_REVALIDATION, _READING = "sessioncache/coordination/revalidation.py", "sessioncache/durable/reading.py"
_RESTARTED = _RULES + "test_r10_all_other_scopes_are_flushed[{}-True]"

MUTATIONS = (
    Mutation(
        "one damaged scope fails all of a call",
        "R10",
        "sessioncache/hot/client.py",
        "                replies[place] = damage_of(reply)\n",
        "                replies[place] = None\n",
        (_MANY + "test_r10_one_damaged_scope_does_not_keep_the_others_from_being_read",),
    ),
    Mutation(
        "with one damaged scope all of its call are",
        "R10",
        "sessioncache/hot/grouping.py",
        "    return [one if isinstance(one, Damaged) else one[0] for one in (next(alone) for _ in group)]\n",
        "    return [reply for _ in group]\n",
        (_MANY + "test_r10_one_damaged_scope_does_not_keep_the_others_from_being_acknowledged",),
    ),
    Mutation(
        "a token is not given to who has it",
        "R10",
        "sessioncache/hot/lua/token.lua",
        "owner == inc and holder ~= token and left > 0",
        "owner == inc and left > 0",
        (_MANY + "test_the_tokens_of_a_call_that_failed_are_given_to_the_others",),
    ),
    Mutation(
        "a field that is cut short ends a revalidation",
        "R10",
        "sessioncache/hot/merging.py",
        "            return await self._read_on(taken, reply)\n        except ValueError:\n",
        "            return await self._read_on(taken, reply)\n        except ZeroDivisionError:\n",
        (_RESTARTED.format("a value is cut short"),),
    ),
    Mutation(
        "a head that is cut short is found late",
        "R10",
        "sessioncache/hot/reconciling.py",
        "        for name in _REVISIONS:\n            looked.revision(name)\n",
        "",
        (_RESTARTED.format("a revision is cut short"),),
    ),
    Mutation(
        "a head that is garbled ends the taking of tokens",
        "R10",
        "sessioncache/hot/merging.py",
        "        except ValueError:\n            return GARBLED\n        ref = ",
        "        except ZeroDivisionError:\n            return GARBLED\n        ref = ",
        (_RESTARTED.format("a number is none"),),
    ),
    Mutation(
        "dirt that is cut short ends a reading",
        "R10",
        "sessioncache/hot/backlog.py",
        "        except ValueError:\n            return GARBLED\n",
        "        except ZeroDivisionError:\n            return GARBLED\n",
        (_RULES + "test_r10_all_other_scopes_are_flushed[a value is cut short-False]",),
    ),
    Mutation(
        "what is damaged is not set apart",
        "R10",
        _FLUSHER,
        "                await self.isolation.set_apart(scope, one.cause, is_damaged=True)\n",
        "                self.held_claims.done_with([scope])\n",
        (_RULES + "test_r10_all_other_scopes_are_flushed[the hash is a text-False]",),
    ),
    Mutation(
        "what cannot be made ready is not set apart",
        "R10",
        _FLUSHER,
        "            readings |= await self._make_ready(unready)\n",
        "            await self._make_ready(unready)\n",
        (_RESTARTED.format("a value is cut short"),),
    ),
    Mutation(
        "what was set apart just now counts as recovered",
        "R10",
        _ISOLATION,
        " and one.tried < began:",
        ":",
        (_ALONE + "test_r10_what_was_set_apart_while_it_was_read_has_not_recovered",),
    ),
    Mutation(
        "damage ends a search",
        "R10",
        _ISOLATION,
        "            except DamagedValueError as error:\n",
        "            except ZeroDivisionError as error:\n",
        (_ALONE + "test_r10_a_damaged_scope_is_found_in_parts_and_told",),
    ),
    Mutation(
        "nobody is told which scope is damaged",
        "errors",
        "sessioncache/hot/errors.py",
        "    if damage and scopes:\n",
        "    if False:\n",
        (_RULES + "test_r10_whoever_touches_it_is_told_which_it_is[the hash is a text]",),
    ),
    Mutation(
        "who waits for a damaged scope tries for ever",
        "errors",
        _REVALIDATION,
        "            raise damaged(taken, [place.ref.member], place.ref.session)\n",
        "            pass\n",
        (_RULES + "test_r10_whoever_touches_it_is_told_which_it_is[a value is cut short]",),
    ),
    Mutation(
        "a write that met damage counts as not applied",
        "R4",
        "sessioncache/hot/idempotency.py",
        "            except DamagedValueError as error:  # as for any script that failed\n",
        "            except ZeroDivisionError as error:\n",
        (_RULES + "test_a_script_that_met_damage_may_have_written_a_part",),
    ),
    Mutation(
        "with one damaged scope nothing is marked anew",
        "R18",
        _REVALIDATION,
        "                if isinstance(outcome, Damaged):\n",
        "                if False:\n",
        (_RULES + "test_r18_all_others_are_marked_where_sql_came_back_older[the hash is a text]",),
    ),
    Mutation(
        "any number of large scopes is brought together at once",
        "memory",
        _REVALIDATION,
        "        if place > start and size + one.size > _MOST:\n",
        "        if False:\n",
        (_PARTS + "test_as_many_scopes_are_brought_together_as_are_of_16_mib",),
    ),
    Mutation(
        "what SQL did not tell at once is left",
        "R17",
        _REVALIDATION,
        "        left = list(asked[len(stored) :])\n",
        "        left: list[_Asked] = []\n",
        (_PARTS + "test_what_sql_did_not_tell_at_once_is_asked_for_again",),
    ),
    Mutation(
        "SQL tells of any number of large changes at once",
        "memory",
        _READING,
        "    wanted = wanted[: await _count_fitting(connection, wanted, heads)]\n",
        "",
        ("durable/test_reading.py::test_no_more_changes_are_read_at_once_than_are_of_so_many_bytes",),
    ),
    Mutation(
        "the log of a worker keeps it from its end",
        "R9",
        "workers/sessioncache_worker/cli.py",
        "        signal.setitimer(signal.ITIMER_REAL, grace + _TO_END)\n",
        "",
        ("faults/test_worker_ends.py::test_r9_a_worker_whose_log_nobody_reads_ends_within_its_grace_time",),
    ),
)
