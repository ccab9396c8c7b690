"""Several processes write the same scopes at once (R1, R2), and deleted things stay deleted (R5, R14)."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.helpers import (
    Agent,
    Urls,
    app,
    connect,
    dirty,
    drain,
    evict,
    head_row,
    session,
    start_worker,
    stored_values,
    user,
)

PROCESSES = 4
KEYS = 50
INCREMENTS = 1_000


@pytest.mark.parametrize("worker_runs", [True, False], ids=["worker running", "worker started afterwards"])
async def test_r2_four_processes_keep_all_keys_and_count_exactly(urls: Urls, worker_runs: bool) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1")
    with ExitStack() as stack:
        if worker_runs:
            stack.enter_context(start_worker(urls, "--flush-delay", "0.02"))
        agents = [stack.enter_context(Agent(urls)) for _ in range(PROCESSES)]
        for agent in agents:
            assert agent.do("get", "ada", "s1") == {}
        for number, agent in enumerate(agents):
            agent.begin("work", "ada", "s1", f"p{number}", KEYS, INCREMENTS)
        assert max(agent.answer() for agent in agents) == PROCESSES * INCREMENTS
        keys = {f"p{number}-{key}": key for number in range(PROCESSES) for key in range(KEYS)}
        merged = {prefix + key: value for key, value in keys.items() for prefix in ("", "user:", "app:")}
        expected = merged | {"app:counter": PROCESSES * INCREMENTS}
        assert agents[0].do("get", "ada", "s1") == expected
        if worker_runs:
            for agent in agents:
                assert agent.do("flush") is None
    await drain(urls)
    assert dirty(urls.redis) == 0
    assert stored_values(urls.database, session("ada", "s1")) == keys
    assert stored_values(urls.database, user("ada")) == keys
    assert stored_values(urls.database, app()) == keys | {"counter": PROCESSES * INCREMENTS}
    evict(urls.redis)
    with Agent(urls) as fresh:
        assert fresh.do("get", "ada", "s1") == expected


async def test_r14_without_a_worker_deleted_things_are_absent_at_once_for_every_process(urls: Urls) -> None:
    with Agent(urls) as one, Agent(urls) as two:
        one.do("create", "ada", "s1", {"a": 1, "user:u": 1, "user:v": 1})
        one.do("create", "ada", "s2", {"a": 1})
        await drain(urls)
        two.do("get", "ada", "s1")
        assert two.do("list_ids") == ["s2", "s1"]
        two.do("update", "ada", "s1", {}, ["a", "user:u"])
        assert one.do("delete", "ada", "s2") is True
        for _ in range(2):
            for agent in (one, two):
                assert agent.do("get", "ada", "s1") == {"user:v": 1}
                assert agent.do("get", "ada", "s2")["error"] == "SessionNotFoundError"
                assert agent.do("list_ids") == ["s1"]
                assert agent.do("list_ids", "ada") == ["s1"]
            with Agent(urls) as fresh:
                assert fresh.do("get", "ada", "s1") == {"user:v": 1}
                assert fresh.do("get", "ada", "s2")["error"] == "SessionNotFoundError"
                assert fresh.do("list_ids") == ["s1"]
            evict(urls.redis)
        await drain(urls)
        evict(urls.redis)
        assert two.do("get", "ada", "s1") == {"user:v": 1}
        assert two.do("get", "ada", "s2")["error"] == "SessionNotFoundError"
    assert stored_values(urls.database, session("ada", "s1")) == {}
    assert stored_values(urls.database, user("ada")) == {"v": 1}
    head = head_row(urls.database, session("ada", "s2"))
    assert head is None or head[2]


async def test_r14_a_session_that_was_created_and_deleted_without_a_worker_leaves_no_life_in_sql(urls: Urls) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state={"a": 1})
        await cache.delete("ada", "s1")
        await drain(urls)
        head = head_row(urls.database, session("ada", "s1"))
        assert head is None or head[2]
        evict(urls.redis)
        assert (await cache.list()).items == []


async def test_r5_a_session_created_again_is_out_of_reach_of_other_processes_old_handles(urls: Urls) -> None:
    with Agent(urls) as old, Agent(urls) as new:
        old.do("create", "ada", "s1", {"a": "old", "b": "old", "temp:t": "old", "user:u": 1})
        await drain(urls)
        assert new.do("delete", "ada", "s1") is True
        new.do("create", "ada", "s1", {"b": "new"})
        for key in ("a", "b", "user:u", "app:p", "temp:t"):
            assert old.do("update", "ada", "s1", {key: "intruder"})["error"] == "SessionNotFoundError"
            assert old.do("read", "ada", "s1", key)["error"] == "SessionNotFoundError"
        expected = {"b": "new", "user:u": 1}
        assert new.do("get", "ada", "s1") == expected
        for _ in range(2):
            await drain(urls)
            evict(urls.redis)
            assert old.do("update", "ada", "s1", {"a": "intruder"})["error"] == "SessionNotFoundError"
            with Agent(urls) as fresh:
                assert fresh.do("get", "ada", "s1") == expected
    assert stored_values(urls.database, session("ada", "s1")) == {"b": "new"}


async def test_r5_a_session_created_again_before_any_flush_is_empty_of_its_old_life_in_sql(urls: Urls) -> None:
    async with connect(urls) as cache:
        for life in range(3):
            await cache.create("ada", session_id="s1", state={f"k{life}": life, "same": life})
            await cache.delete("ada", "s1")
        await cache.create("ada", session_id="s1", state={"last": True})
        await drain(urls)
        assert stored_values(urls.database, session("ada", "s1")) == {"last": True}
        evict(urls.redis)
        assert dict((await cache.get("ada", "s1")).state) == {"last": True}
