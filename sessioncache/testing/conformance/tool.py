"""The agent tool over the backend's sessions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sessioncache.errors import InvalidNameError, InvalidValueError, SessionNotFoundError
from sessioncache.testing.conformance.base import Cache, Conformance, raised
from sessioncache.tool.state_tool import SessionStateTool


def ask(operation: str, key: str | None = None, value: str | None = None, namespace: str = "notes") -> dict[str, Any]:
    """What a model sends: nothing is null."""
    sent = {"operation": operation, "namespace": namespace, "key": key, "value": value}
    return {name: given for name, given in sent.items() if given is not None}


class TestTool(Conformance):
    """SessionStateTool(session)."""

    async def test_each_operation_has_its_reply(self, cache: Cache) -> None:
        made = await cache.create("ada")
        tool = SessionStateTool(made)
        calls: list[tuple[dict[str, Any], dict[str, Any]]] = [
            (ask("get", "a"), {"value": None}),
            (ask("set", "b", "2"), {"ok": True}),
            (ask("set", "a", "one"), {"ok": True}),
            (ask("get", "b"), {"value": "2"}),
            (
                ask("list"),
                {"entries": [{"key": "a", "value": "one"}, {"key": "b", "value": "2"}]},
            ),
            (ask("delete", "a"), {"deleted": True}),
            (ask("delete", "a"), {"deleted": False}),
            (ask("clear"), {"deleted": 1}),
            (ask("clear"), {"deleted": 0}),
            (ask("list"), {"entries": []}),
        ]
        for arguments, reply in calls:
            assert await tool.call(arguments) == reply
        assert await made.namespace("notes").items() == []

    async def test_texts_stay_texts_and_other_values_are_shown_as_json(self, cache: Cache) -> None:
        made = await cache.create("ada")
        tool, space = SessionStateTool(made), made.namespace("notes")
        await tool.call(ask("set", "text", "42"))
        assert await space.get("text") == "42"
        values = {"number": 42, "float": 1.0, "null": None, "dict": {"b": [1, "é"], "a": {}}, "quoted": '"42"'}
        await space.update(values)
        shown = {entry["key"]: entry["value"] for entry in (await tool.call(ask("list")))["entries"]}
        assert shown == {
            "text": "42",
            "number": "42",
            "float": "1.0",
            "null": "null",
            "dict": '{"b":[1,"é"],"a":{}}',
            "quoted": '"42"',
        }
        for key, text in shown.items():
            assert await tool.call(ask("get", key)) == {"value": text}

    @pytest.mark.parametrize("name", ["user:x", "app:x", "temp:x", "../s2", "*", "other", "notes2", "a|b", ":"])
    async def test_a_namespace_reaches_nothing_else(self, cache: Cache, name: str) -> None:
        made = await cache.create("ada", state={"x": "own", "user:x": "shared", "app:x": "shared", "temp:x": "temp"})
        await made.namespace("notes").set("x", "notes")
        tool = SessionStateTool(made)
        assert await tool.call(ask("get", "x", namespace=name)) == {"value": None}
        await tool.call(ask("set", "x", "theirs", namespace=name))
        await tool.call(ask("set", "user:x", "theirs", namespace=name))
        assert await tool.call(ask("clear", namespace=name)) == {"deleted": 2}
        await made.refresh()
        assert dict(made.state) == {"x": "own", "user:x": "shared", "app:x": "shared", "temp:x": "temp"}
        assert await made.namespace("notes").items() == [("x", "notes")]

    @pytest.mark.parametrize(
        ("arguments", "error", "path"),
        [
            ({}, InvalidValueError, "operation"),
            ({"operation": "drop", "namespace": "n"}, InvalidValueError, "operation"),
            ({"operation": "list"}, InvalidNameError, "namespace"),
            ({"operation": "list", "namespace": ""}, InvalidNameError, "namespace"),
            ({"operation": "get", "namespace": "n"}, InvalidNameError, "key"),
            ({"operation": "set", "namespace": "n", "key": "k"}, InvalidValueError, "value"),
            ({"operation": "set", "namespace": "n", "key": "k", "value": 1}, InvalidValueError, "value"),
            ({"operation": "list", "namespace": "n", "session_id": "s2"}, InvalidNameError, "session_id"),
        ],
        ids=lambda given: given if isinstance(given, str) else "",
    )
    async def test_wrong_arguments_are_refused_by_name(
        self, cache: Cache, arguments: Any, error: type[Exception], path: str
    ) -> None:
        tool = SessionStateTool(await cache.create("ada"))
        assert (await raised(error, tool.call(arguments))).path == path
        assert path in json.loads(await tool.reply(arguments))["error"]

    async def test_a_tool_belongs_to_one_life_of_its_session(self, cache: Cache) -> None:
        tool = SessionStateTool(await cache.create("ada", session_id="s1"))
        await tool.call(ask("set", "k", "old"))
        await cache.delete("ada", "s1")
        again = await cache.create("ada", session_id="s1")
        await raised(SessionNotFoundError, tool.call(ask("set", "k", "old")))
        assert "error" in json.loads(await tool.reply(ask("get", "k")))
        assert await again.namespace("notes").items() == []
