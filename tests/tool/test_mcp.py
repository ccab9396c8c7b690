"""The agent tool over MCP: the command as MCP clients start it, driven by the SDK's own client and byte by byte."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, MCPError, StdioServerParameters, types
from mcp.client import Client
from mcp.client.stdio import stdio_client

from sessioncache import Session, SessionCache, SessionStateTool
from tests.conftest import StartRedis
from tests.embedded_helpers import wait_closed
from tests.helpers import ROOT, Process, Urls, drain
from tests.tool.world import FOREIGN_ARGUMENTS, HOSTILE_NAMES, REFUSED_NAMES, SPACE, make_surroundings, snapshot
from tests.waiting import stretched

PATHS = os.pathsep.join(path for path in sys.path if path)
HANDSHAKE = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


def bound_to(urls: Urls, *more: str) -> list[str]:
    """Options for the session of the tests."""
    tiers = ["--redis", urls.redis, "--database", urls.database]
    return ["mcp", *tiers, "--app", "app", "--user", "ada", "--session", "s1", *more]


class Served(Process):
    """The command, spoken to line by line."""

    def __init__(self, *options: str) -> None:
        super().__init__("tests.tool.command", *options)

    def shake_hands(self) -> None:
        """Begin as clients do."""
        for message in HANDSHAKE:
            self.say(json.dumps(message))
        assert json.loads(self.hear())["id"] == 1

    def ask(self, number: int, **arguments: Any) -> None:
        """Ask the tool, without waiting for the answer."""
        params = {"name": "session_state", "arguments": arguments}
        self.say(json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}))


def command(options: list[str]) -> StdioServerParameters:
    """What the SDK's clients start."""
    arguments = ["-m", "tests.tool.command", *options]
    return StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT, env={"PYTHONPATH": PATHS})


async def call(
    client: ClientSession | Client, operation: str, namespace: str = "n", **rest: Any
) -> types.CallToolResult:
    """Call the tool."""
    arguments = {"operation": operation, "namespace": namespace, **rest}
    result = await client.call_tool("session_state", arguments)
    assert isinstance(result, types.CallToolResult)
    return result


def text_of(result: types.CallToolResult) -> str:
    """Its only content."""
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


@pytest.fixture
async def made(small_cache: SessionCache) -> Session:
    """The session."""
    return await small_cache.create("ada", session_id="s1")


async def test_the_sdks_client_gets_each_reply(small_cache: SessionCache, made: Session, small_urls: Urls) -> None:
    calls: list[tuple[tuple[str, dict[str, Any]], Any]] = [
        (("get", {"key": "k"}), {"value": None}),
        (("set", {"key": "k", "value": "42"}), {"ok": True}),
        (("set", {"key": "a", "value": "é ✈"}), {"ok": True}),
        (("get", {"key": "k"}), {"value": "42"}),
        (("list", {}), {"entries": [{"key": "a", "value": "é ✈"}, {"key": "k", "value": "42"}]}),
        (("delete", {"key": "k"}), {"deleted": True}),
        (("delete", {"key": "k"}), {"deleted": False}),
        (("clear", {}), {"deleted": 1}),
        (("list", {}), {"entries": []}),
    ]
    async with stdio_client(command(bound_to(small_urls))) as streams, ClientSession(*streams) as client:
        await client.initialize()
        (tool,) = (await client.list_tools()).tools
        schema = SessionStateTool().schema
        told = (tool.name, tool.description, tool.input_schema)
        assert told == (schema["name"], schema["description"], schema["parameters"])
        for (operation, rest), reply in calls:
            result = await call(client, operation, **rest)
            assert (result.is_error, result.structured_content, json.loads(text_of(result))) == (False, reply, reply)
        await made.namespace("n").set("k", {"b": 1, "a": [1.0]})
        assert (await call(client, "get", key="k")).structured_content == {"value": '{"b":1,"a":[1.0]}'}
        await made.namespace("n").set("k", "\ud800")
        result = await call(client, "get", key="k")
        assert (result.structured_content, json.loads(text_of(result))) == (None, {"value": "\ud800"})
        await small_cache.delete("ada", "s1")
        await small_cache.create("ada", session_id="s1")
        result = await call(client, "set", key="k", value="v")
        assert (result.is_error, text_of(result)) == (True, "this session does not exist any more")


async def test_hostile_calls_by_the_newest_protocol_change_nothing_else(
    small_cache: SessionCache, small_urls: Urls
) -> None:
    await make_surroundings(small_cache, small_urls)
    before = snapshot(small_urls, HOSTILE_NAMES)
    async with Client(stdio_client(command(bound_to(small_urls)))) as client:
        for name in HOSTILE_NAMES:
            assert not (await call(client, "set", name, key="x", value="theirs")).is_error
        for name in set(REFUSED_NAMES) - {"\ud800"}:
            assert (await call(client, "clear", name)).is_error
        for name in FOREIGN_ARGUMENTS:
            result = await call(client, "clear", SPACE, **{name: "s2"})
            assert (result.is_error, "unknown arguments" in text_of(result)) == (True, True)
        for wrong in ({"operation": "clear"}, {"namespace": SPACE}, {"operation": "drop", "namespace": SPACE}, None):
            result = await client.call_tool("session_state", wrong)
            assert isinstance(result, types.CallToolResult)
            assert result.is_error
        with pytest.raises(MCPError):
            await client.call_tool("session_state_of_bob", {"operation": "clear", "namespace": SPACE})
        for name in HOSTILE_NAMES:
            assert (await call(client, "clear", name)).structured_content == {"deleted": 1}
    await drain(small_urls)
    assert snapshot(small_urls, HOSTILE_NAMES) == before


@pytest.mark.usefixtures("made")
async def test_the_end_of_input_ends_it_once_what_was_asked_is_answered(small_urls: Urls) -> None:
    with Served(*bound_to(small_urls)) as served:
        served.shake_hands()
        for number in range(2, 22):
            served.ask(number, operation="set", namespace="n", key="k", value=str(number))
            served.ask(-number, operation="get", namespace="n", key="k")
        served.ask(100, operation="set", namespace="\ud800", key="k", value="v")
        served.say("nonsense")
        code, out, err = served.finish()
    answers = {answer["id"]: answer for answer in map(json.loads, out.splitlines())}
    assert (code, err) == (0, "")
    for number in range(2, 22):
        assert answers[-number]["result"]["structuredContent"] == {"value": str(number)}, "in the order of the calls"
    assert "lone surrogate" in answers[100]["result"]["content"][0]["text"]
    assert answers[None]["error"]["code"] == types.PARSE_ERROR


@pytest.mark.usefixtures("made")
async def test_a_signal_ends_it_while_the_client_holds_its_end_open(small_urls: Urls) -> None:
    with Served(*bound_to(small_urls)) as one, Served(*bound_to(small_urls)) as other:
        for served, number in ((one, signal.SIGTERM), (other, signal.SIGINT)):
            served.shake_hands()
            served.send(number)
        assert (one.wait(stretched(20)), other.wait(stretched(20))) == (0, 0)


async def test_a_client_that_reads_nothing_does_not_hold_it_up(made: Session, small_urls: Urls) -> None:
    await made.namespace("n").set("k", "x" * 500_000)
    with Served(*bound_to(small_urls)) as served:
        served.shake_hands()
        for number in range(2, 6):
            served.ask(number, operation="get", namespace="n", key="k")
        served.send(signal.SIGTERM)
        assert served.wait(stretched(20)) == 0, served.complained()


async def test_the_session_has_to_exist_unless_it_is_to_be_created(small_cache: SessionCache, small_urls: Urls) -> None:
    with Served(*bound_to(small_urls)) as served:
        code, out, err = served.finish()
    assert (code, out) == (1, "")
    assert "there is no session 's1'" in err
    assert await small_cache.find("s1") == []
    with Served(*bound_to(small_urls, "--create")) as one, Served(*bound_to(small_urls, "--create")) as other:
        assert (one.finish(), other.finish()) == ((0, "", ""), (0, "", ""))
    assert len(await small_cache.find("s1")) == 1


async def test_tiers_that_are_away_wrong_usage_and_a_missing_sdk(
    start_redis: StartRedis, small_urls: Urls, tmp_path: Path
) -> None:
    server = start_redis(tcp=True)
    server.kill()
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'mcp' else find(name, *rest)\n"
    )
    without = {"PYTHONPATH": os.pathsep.join([str(tmp_path), PATHS])}
    away = Served(*bound_to(Urls(server.url, small_urls.database)))
    wrong = Served("mcp", "--app", "app")
    missing = Process("tests.tool.command", *bound_to(small_urls), env=without)
    with away, wrong, missing:
        ends = [one.finish() for one in (away, wrong, missing)]
    assert [(code, out) for code, out, _ in ends] == [(3, ""), (2, ""), (2, "")]
    assert "Redis cannot be reached" in ends[0][2]
    assert "pip install 'sessioncache[mcp]'" in ends[2][2]


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
@pytest.mark.usefixtures("made")
async def test_a_stream_that_is_closed_is_an_empty_one(small_urls: Urls, closed: str) -> None:
    run = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "tests.tool.command", *bound_to(small_urls)]
    done = await asyncio.to_thread(
        subprocess.run, run, cwd=ROOT, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


async def test_on_the_embedded_default_it_leaves_nothing_running(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    options = ["mcp", "--data-dir", str(folder), "--app", "a", "--user", "u", "--session", "s", "--create"]
    with Served(*options) as served:
        served.shake_hands()
        served.ask(2, operation="set", namespace="n", key="k", value="v")
        code, out, err = await asyncio.to_thread(served.finish)
    assert (code, json.loads(out)["result"]["structuredContent"], err) == (0, {"ok": True}, "")
    gc.collect()
    wait_closed(folder)
