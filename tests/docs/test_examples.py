"""The examples of the documentation do what they say."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from docs.examples.scheduled_run import APP, Memory
from sessioncache import NoSessionError
from tests.helpers import Process, Urls, connect, drain, fetch, raw, session, start_worker, stored_values, upgrade

MODULE = "docs.examples.scheduled_run"


@pytest.fixture
async def urls(valkey_url: str, sqlite_url: str) -> Urls:
    """Valkey and SQLite."""
    await upgrade(sqlite_url)
    return Urls(valkey_url, sqlite_url)


@pytest.fixture
def env(urls: Urls, tmp_path: Path) -> Mapping[str, str]:
    """Where the processes of the example find both tiers and the notes."""
    return {
        "SESSIONCACHE_REDIS_URL": urls.redis,
        "SESSIONCACHE_DATABASE_URL": urls.database,
        "NOTES_DATABASE": str(tmp_path / "notes.db"),
    }


@pytest.fixture(params=[True, False], ids=["worker running", "no worker"])
def worker_runs(request: pytest.FixtureRequest, urls: Urls) -> Iterator[bool]:
    """With a worker that flushes all the time, and without any."""
    with ExitStack() as stack:
        if request.param:
            stack.enter_context(start_worker(urls, "--flush-delay", "0.02"))
        yield request.param


def run(env: Mapping[str, str], session_id: str) -> dict[str, Any]:
    """A scheduled run in a process of its own; what it saw at its end."""
    with Process(MODULE, "run", session_id, env=env) as process:
        code, out, err = process.finish()
    assert code == 0, err
    return dict(json.loads(out))


def ask(serving: Process, message: str) -> dict[str, Any]:
    """What the serving process answers."""
    serving.say(message)
    return dict(json.loads(serving.hear()))


@pytest.mark.usefixtures("worker_runs")
async def test_a_scheduled_run_resumes_a_session_that_another_process_serves(
    urls: Urls, env: Mapping[str, str]
) -> None:
    with Process(MODULE, "serve", "ada", "c1", env=env) as serving:
        assert serving.hear() == "serving c1"
        first = ask(serving, "hello")
        assert first["state"] == {"turns": 1, "last:serving": "hello", "temp:serving": "draft of turn 1"}
        both = {"last:serving": "hello", "last:scheduled": "good morning"}
        drafts = {"temp:serving": "draft of turn 1", "temp:scheduled": "draft of turn 2"}
        notes = ["serving: hello", "scheduled: good morning"]
        assert run(env, "c1") == {"state": {"turns": 2, **both, **drafts}, "memory": notes}
        last = ask(serving, "still there?")
        both["last:serving"], drafts["temp:serving"] = "still there?", "draft of turn 3"
        assert last == {"state": {"turns": 3, **both, **drafts}, "memory": [*notes, "serving: still there?"]}
    await drain(urls)
    assert stored_values(urls.database, session("ada", "c1", APP)) == {"turns": 3, **both}
    assert fetch(urls.database, "SELECT count(*) FROM sessioncache_state WHERE value LIKE '%draft%'") == [(0,)]


@pytest.mark.usefixtures("worker_runs")
def test_many_messages_and_runs_at_once_are_all_counted(env: Mapping[str, str]) -> None:
    with Process(MODULE, "serve", "ada", "c1", env=env) as serving:
        assert serving.hear() == "serving c1"
        with Process(MODULE, "run", "c1", env=env) as one, Process(MODULE, "run", "c1", env=env) as other:
            for number in range(50):
                serving.say(str(number))
            answers = [json.loads(serving.hear()) for _ in range(50)]
            assert [process.finish()[0] for process in (one, other)] == [0, 0]
        assert answers[-1]["state"]["last:serving"] == "49"
        assert ask(serving, "done")["state"]["turns"] == 53


def test_a_run_after_the_server_has_ended_and_redis_has_forgotten_finds_what_was_flushed(
    urls: Urls, env: Mapping[str, str]
) -> None:
    with Process(MODULE, "serve", "ada", "c1", env=env) as serving:
        serving.hear()
        ask(serving, "hello")
    with start_worker(urls, "--once") as worker:
        assert worker.wait() == 0
    with raw(urls.redis) as client:
        client.flushall()
    assert run(env, "c1")["state"] == {
        "turns": 2,
        "last:serving": "hello",
        "last:scheduled": "good morning",
        "temp:scheduled": "draft of turn 2",
    }


def test_a_run_of_an_unknown_conversation_fails_and_notes_nothing(env: Mapping[str, str]) -> None:
    with Process(MODULE, "run", "nothing", env=env) as process:
        code, _, err = process.finish()
    assert (code, "SessionNotFoundError" in err) == (1, True)
    assert not Path(env["NOTES_DATABASE"]).exists()


async def test_the_memory_layer_keys_by_the_ambient_session_and_fails_without(urls: Urls, tmp_path: Path) -> None:
    memory = Memory(str(tmp_path / "notes.db"))
    async with connect(urls, app=APP) as cache:
        for user, session_id in (("ada", "a1"), ("ada", "a2"), ("bob", "b1")):
            await cache.create(user, session_id=session_id)
            async with cache.resume(session_id):
                memory.remember(f"noted in {session_id}")
        async with cache.resume("a2"):
            assert memory.recall() == ["noted in a1", "noted in a2"]
        async with cache.resume("b1"):
            assert memory.recall() == ["noted in b1"]
    for call in (memory.recall, lambda: memory.remember("whose?")):
        with pytest.raises(NoSessionError):
            call()
    with closing(sqlite3.connect(tmp_path / "notes.db")) as database:
        assert database.execute("SELECT count(*) FROM notes").fetchone() == (3,)
