"""What an examination must call bad, and must leave as it is: R9, R10, R15, R17, R18, R20."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_FINDINGS = "sessioncache/health/findings.py"
_DOCTOR = "cli/test_doctor.py::"
_JUDGED = "unit/test_health.py::"

MUTATIONS = (
    Mutation(
        "doctor: silent workers are alive",
        "R9",
        _FINDINGS,
        "    if not living:\n",
        "    if False:\n",
        (_JUDGED + "test_a_worker_must_be_alive_and_none_silent_for_longer_than_a_lease",),
    ),
    Mutation(
        "doctor: dead letters are good",
        "R10",
        _FINDINGS,
        "    if letters:\n",
        "    if False:\n",
        (_DOCTOR + "test_dead_letters_are_bad_and_never_quoted",),
    ),
    Mutation(
        "doctor: allkeys is good",
        "R15",
        _FINDINGS,
        '    if policy.startswith("allkeys"):\n',
        "    if False:\n",
        (_DOCTOR + "test_a_policy_that_evicts_what_is_dirty_is_bad",),
    ),
    Mutation(
        "doctor: any incarnation is good",
        "R17",
        _FINDINGS,
        "        if strange:\n",
        "        if False:\n",
        (_JUDGED + "test_an_incarnation_that_the_database_does_not_name_is_bad",),
    ),
    Mutation(
        "doctor: ends where the database is away",
        "R18",
        "sessioncache/health/examination.py",
        "    except DurableTierUnavailableError as error:\n",
        "    except ZeroDivisionError as error:\n",
        (_DOCTOR + "test_with_the_database_away_redis_is_examined_all_the_same",),
    ),
    Mutation(
        "doctor: makes the data folder",
        "R20",
        "sessioncache/health/examination.py",
        "    root = Path(data_dir).expanduser().resolve()\n",
        "    root = folder.prepare_folder(Path(data_dir))\n",
        (_DOCTOR + "test_the_embedded_default_is_not_started_by_looking_at_it",),
    ),
    Mutation(
        "doctor: opens SQLite for writing",
        "R20",
        "sessioncache/health/sql_facts.py",
        '    return create_async_engine(engine.url.set(database=file, query={"mode": "ro", "uri": "true"}))\n',
        "    return engine\n",
        (_DOCTOR + "test_a_database_that_a_crash_left_is_not_mended_by_looking_at_it",),
    ),
)
