"""What callers see: errors that name their cause, arguments that are refused at the call, options that do something."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_CAUSES = "client/test_redis_causes.py::"
_ACCESS = "client/test_access_list.py::"
_HOT = "sessioncache/hot/"

MUTATIONS = (
    Mutation(
        "a wake-up that is forbidden ends the write",
        "R1",
        _HOT + "lua/prelude.lua",
        "  redis.pcall('PUBLISH', string.match",
        "  redis.call('PUBLISH', string.match",
        (_ACCESS + "test_a_first_write_to_a_clean_bucket_needs_no_channel",),
    ),
    Mutation(
        "a database that is no number is 0",
        "R18",
        _HOT + "addresses.py",
        'in_path = parts.scheme == "unix" or _DATABASE.fullmatch(unquote(parts.path))',
        "in_path = True",
        (_CAUSES + "test_urls_that_cannot_be_meant_are_refused",),
    ),
    Mutation(
        "a cluster is let in",
        "R18",
        "sessioncache/installation.py",
        'if "cluster" in (server.get("redis_mode"), server.get("server_mode")):',
        "if False:",
        (_CAUSES + "test_a_redis_in_cluster_mode_is_refused",),
    ),
    Mutation(
        "what is forbidden is not named",
        "R15",
        _HOT + "faults.py",
        "    if forbidden:\n",
        "    if False:\n",
        (_CAUSES + "test_what_the_user_may_not_run_is_named",),
    ),
    Mutation(
        "a missing database is an outage",
        "R18",
        _HOT + "faults.py",
        'if isinstance(cause, ResponseError) and "DB index" in str(cause):',
        "if False:",
        (_CAUSES + "test_a_database_that_the_server_does_not_have",),
    ),
    Mutation(
        "an empty variable means the embedded default",
        "R18",
        "sessioncache/connecting.py",
        'if text == "":',
        "if False:",
        ("client/test_connecting.py::test_a_place_that_is_set_but_empty_is_refused",),
    ),
)
