"""The wire of one MCP client: nothing that a client sends ends the server, or keeps it from the next message."""

from __future__ import annotations

import json
import os
from typing import Any

import anyio
import pytest

from sessioncache import SessionStateTool
from sessioncache.cli import wire
from sessioncache.cli.mcp import make_server
from sessioncache.testing import InMemorySessionCache

PARSE_ERROR = -32700
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


async def answers(*lines: str) -> list[dict[str, Any]]:
    """What a client hears that sends these lines and ends, without the answer to its greeting."""
    asked, to_server = os.pipe()
    heard, to_client = os.pipe()
    try:
        greeting = json.dumps({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": HELLO})
        os.write(to_server, "\n".join([greeting, *lines, ""]).encode())
        os.close(to_server)
        async with InMemorySessionCache(app="a") as cache:
            tool = SessionStateTool(await cache.create("ada"))
            with anyio.fail_after(20):
                await wire.Wire(asked, to_client).serve(make_server(tool))
        os.close(to_client)
        told = [json.loads(line) for line in os.read(heard, 1 << 20).splitlines()]  # a pipe holds no more
    finally:
        os.close(asked)
        os.close(heard)
    return [answer for answer in told if answer["id"] != "hello"]


def request(number: object = 7, method: str = "ping") -> str:
    """A request as its line."""
    params = {"name": "session_state", "arguments": {"operation": "list", "namespace": "n"}}
    return json.dumps(
        {"jsonrpc": "2.0", "id": number, "method": method} | ({"params": params} if "/" in method else {})
    )


@pytest.mark.parametrize("request_id", [[1], {"a": 1}, None, "nobody's", 1.5])
async def test_a_cancellation_of_nothing_is_ignored(request_id: object) -> None:
    told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
    assert [answer["id"] for answer in await answers(json.dumps(told), request())] == [7]


async def test_names_with_lone_surrogates_are_given_back_as_they_came() -> None:
    told = {answer["id"]: answer for answer in await answers(request("\ud800"), request(7, "\udfff"), request(8))}
    assert told["\ud800"]["result"] == told[8]["result"] == {}
    assert "error" in told[7]


async def test_a_line_beyond_all_measure_is_refused_and_the_next_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_LONGEST_LINE", 10_000)
    for length in (10_001, 40_000):
        *refused, last = await answers("x" * length, request())
        assert {answer["error"]["code"] for answer in refused} == {PARSE_ERROR}
        assert last == {"jsonrpc": "2.0", "id": 7, "result": {}}


@pytest.mark.parametrize("request_id", [7, "7"])
async def test_at_the_end_nobody_waits_for_what_was_cancelled(
    request_id: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stall(*_: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(SessionStateTool, "call", stall)
    monkeypatch.setattr(wire, "_LAST_ANSWERS", 60)
    told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
    assert [answer["id"] for answer in await answers(request(7, "tools/call"), json.dumps(told), request(8))] == [8]
