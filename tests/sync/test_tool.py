"""The agent tool of the synchronous API."""

from __future__ import annotations

import json
from threading import Thread

import pytest

from sessioncache import InvalidValueError, NoSessionError, SessionNotFoundError
from sessioncache.sync import SessionCache, SessionStateTool
from tests.forking import in_child


def test_each_operation_has_its_reply(cache: SessionCache) -> None:
    made = cache.create("ada")
    tool = SessionStateTool(made)
    given = {"namespace": "n", "key": "k"}
    assert tool.call({"operation": "set", **given, "value": "v"}) == {"ok": True}
    assert tool.call({"operation": "get", **given}) == {"value": "v"}
    assert tool.reply({"operation": "list", "namespace": "n"}) == '{"entries": [{"key": "k", "value": "v"}]}'
    assert tool.call({"operation": "delete", **given}) == {"deleted": True}
    assert tool.call({"operation": "clear", "namespace": "n"}) == {"deleted": 0}
    with pytest.raises(InvalidValueError):
        tool.call({"operation": "set", **given})
    assert "value is missing" in json.loads(tool.reply(json.dumps({"operation": "set", **given})))["error"]
    cache.delete("ada", made.id)
    with pytest.raises(SessionNotFoundError):
        tool.call({"operation": "get", **given})
    assert "error" in json.loads(tool.reply({"operation": "get", **given}))


def test_without_a_session_it_works_for_the_one_that_the_thread_has_bound(small_cache: SessionCache) -> None:
    tool = SessionStateTool()
    with pytest.raises(NoSessionError):
        tool.reply({"operation": "list", "namespace": "n"})

    def work(session_id: str) -> None:
        with small_cache.create("ada", session_id=session_id).bind():
            tool.call({"operation": "set", "namespace": "n", "key": "k", "value": session_id})

    threads = [Thread(target=work, args=(name,)) for name in ("s1", "s2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("s1", "s2"):
        assert small_cache.get("ada", name).namespace("n").items() == [("k", name)]


def test_a_forked_child_goes_on_with_it(small_cache: SessionCache) -> None:
    tool = SessionStateTool(small_cache.create("ada"))
    tool.call({"operation": "set", "namespace": "n", "key": "parent", "value": "1"})
    assert in_child(lambda: tool.call({"operation": "set", "namespace": "n", "key": "child", "value": "2"})) == {
        "ok": True
    }
    entries = [{"key": "child", "value": "2"}, {"key": "parent", "value": "1"}]
    assert tool.call({"operation": "list", "namespace": "n"}) == {"entries": entries}
