"""What callers see: errors that name their cause, arguments that are refused at the call, options that do something."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_CAUSES = "client/test_redis_causes.py::"
_ACCESS = "client/test_access_list.py::"
_HOT = "sessioncache/hot/"
_ODD = "unit/test_odd_arguments.py::test_what_cannot_be_used_is_refused_by_an_error_of_the_tree"

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
        "a created session lacks what is shared",
        "R12",
        "sessioncache/creation.py",
        "{KeyScope.SESSION: [], **{scope: [] for scope in _SHARED}}",
        "{KeyScope.SESSION: []}",
        ("client/test_created_state.py::test_what_is_cold_is_read_from_sql_first",),
    ),
    Mutation(
        "a created session has what was read too early",
        "R5",
        _HOT + "tier.py",
        'is_that = content.fields.get(b"i") == done.incarnation and content.fields.get(b"r") == left',
        "is_that = True",
        ("client/test_created_state.py::test_what_others_wrote_between_the_step_and_the_reading_is_read_once_more",),
    ),
    Mutation(
        "a fork that cannot be read is made",
        "R12",
        "sessioncache/forking.py",
        "spaces(self._parent, self._birth, self._shared)",
        "spaces(self._parent, self._birth)",
        ("client/test_created_state.py::test_nothing_is_created_or_forked_whose_state_cannot_be_read",),
    ),
    Mutation(
        "damaged values raise what the decoder raises",
        "R19",
        "sessioncache/values.py",
        "with suppress(ValueError, RecursionError):",
        "with suppress():",
        ("client/test_damaged.py::test_whoever_reads_it_is_told_session_and_key",),
    ),
    Mutation(
        "a damaged Infinity is a number",
        "R19",
        "sessioncache/values.py",
        "json.loads(text, parse_constant=_refuse_constant)",
        "json.loads(text)",
        ("client/test_damaged.py::test_whoever_reads_it_is_told_session_and_key",),
    ),
    Mutation(
        "workers do not hear how long scopes stay",
        "R15",
        "sessioncache/tiers.py",
        "        if told and told.isdigit():\n",
        "        if False:\n",
        ("client/test_memory.py::test_what_was_flushed_stays_as_long_as_a_cache_said",),
    ),
    Mutation(
        "a prefix is a pattern",
        "R20",
        _HOT + "layout.py",
        r'return _MEANS_MORE.sub(rb"\\\g<0>", name.encode())',
        "return name.encode()",
        ("client/test_prefixes.py::test_everything_works_with_a_prefix_that_would_be_a_pattern",),
    ),
    Mutation(
        "an expected revision is taken as it is",
        "R20",
        "sessioncache/values.py",
        "    if not 0 <= given <= LARGEST:\n",
        "    if False:\n",
        (_ODD,),
    ),
    Mutation(
        "a flush may wait for ever",
        "R11",
        "sessioncache/deadline.py",
        "or not isinstance(value, (int, float)) or not least <= value <= most:",
        "or not isinstance(value, (int, float)):",
        (_ODD,),
    ),
    Mutation(
        "what is no mapping is asked for its items",
        "R19",
        "sessioncache/values.py",
        "    if not isinstance(given, Mapping):\n",
        "    if False:\n",
        (_ODD,),
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
