"""An idle worker: it costs little, and finds what it was not told of."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_SWEEP, _WORKER = "sessioncache/hot/poll.py", "workers/sessioncache_worker/"
_IDLE = "worker/test_idle.py::"

MUTATIONS = (
    Mutation(
        "a new subscription is no reason to look",
        "idle workers",
        _WORKER + "notifications.py",
        '        if message["type"] == "subscribe":\n            heard(None)\n',
        '        if message["type"] == "subscribe":\n            pass\n',
        (_IDLE + "test_a_client_that_subscribes_anew_by_itself_may_have_missed_something",),
    ),
    Mutation(
        "a wake-up channel may be silent for ever",
        "idle workers",
        _WORKER + "notifications.py",
        '        raise OSError("no answer to PING")\n',
        '        return {"type": "silence"}\n',
        (_IDLE + "test_a_connection_that_is_gone_without_a_word_is_made_anew",),
    ),
    Mutation(
        "what the sweep finds is left",
        "R9",
        _WORKER + "worker.py",
        "                for bucket in found:\n",
        "                for bucket in found[:0]:\n",
        (_IDLE + "test_work_of_which_nothing_was_heard_is_found_by_the_sweep",),
    ),
    Mutation(
        "a bucket that is dirty hides those beside it",
        "R9",
        _SWEEP,
        "buckets = [bucket for group in _some(groups, counts) for bucket in group]",
        "buckets = [group[0] for group in _some(groups, counts)]",
        (_IDLE + "test_a_sweep_finds_the_buckets_that_are_dirty_and_no_others",),
    ),
    Mutation(
        "a cluster is asked about many buckets at once",
        "R9",
        _SWEEP,
        "not any(isinstance(count, ClusterCrossSlotError) for count in counts)",
        "True",
        (_IDLE + "test_a_cluster_is_swept_bucket_by_bucket",),
    ),
    Mutation(
        "every bucket is asked by itself",
        "idle workers",
        _SWEEP,
        "_TOGETHER = 64\n",
        "_TOGETHER = 1\n",
        (_IDLE + "test_an_idle_worker_sends_fewer_than_20_commands_a_second",),
    ),
    Mutation(
        "silent workers are remembered",
        "idle workers",
        "sessioncache/hot/lua/forget.lua",
        ", ['w:'] = '^(%d+)|'}",
        "}",
        ("scripts/test_heartbeats.py::test_a_worker_is_forgotten_after_an_hour_of_silence_and_not_before",),
    ),
    Mutation(
        "silent workers are seldom looked for",
        "idle workers",
        _WORKER + "janitor.py",
        "sorted({0, *(",
        "sorted({*(",
        (_IDLE + "test_the_janitor_forgets_silent_workers_each_turn_and_silent_runners_in_a_pass_of_several",),
    ),
    Mutation(
        "a turn of the janitor looks through all keys",
        "idle workers",
        _WORKER + "janitor.py",
        "        for _ in range(_PAGES):\n",
        "        while True:\n",
        (_IDLE + "test_among_many_keys_of_others_the_janitor_looks_through_some_each_turn",),
    ),
)
