"""The command ``mcp``: the agent tool of one session, for MCP clients that start this process."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sessioncache.cache import SessionCache
from sessioncache.cli.options import installation_of
from sessioncache.errors import ConfigurationError, SessionCacheError, SessionNotFoundError
from sessioncache.session import Session
from sessioncache.tool.replies import as_text, explanation, is_encodable
from sessioncache.tool.state_tool import SessionStateTool

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolResult

logger = logging.getLogger(__name__)


async def serve(options: argparse.Namespace) -> int:
    """Serve one session's tool over standard input and output, until its end or SIGTERM."""
    if find_spec("mcp") is None:
        raise ConfigurationError("the package mcp is missing: pip install 'sessioncache[mcp]'")
    incoming, outgoing = take_standard_streams()
    serving = asyncio.ensure_future(_serve(options, incoming, outgoing))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        return 0
    except SessionNotFoundError as error:
        print(f"sessioncache: {error}; --create makes one", file=sys.stderr)
        return 1
    return 0


def take_standard_streams() -> tuple[int, int]:
    """Input and output under other numbers; in their place nothing to read, and what is printed goes to stderr.

    So nothing but the protocol reaches the client, and no process that is started from here holds its pipes.
    """
    streams = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return streams


async def _serve(options: argparse.Namespace, incoming: int, outgoing: int) -> None:
    connecting = SessionCache.connect(
        options.redis,
        options.database,
        app=options.app,
        org=options.org,
        data_dir=options.data_dir,
        **installation_of(options),
    )
    async with connecting as cache:
        tool = SessionStateTool(await _session(cache, options))
        from sessioncache.cli.wire import Wire  # half a second, which nobody waits for in vain

        await Wire(incoming, outgoing).serve(make_server(tool))


async def _session(cache: SessionCache, options: argparse.Namespace) -> Session:
    if options.create:
        return (await cache.get_or_create(options.user, options.session))[0]
    return await cache.get(options.user, options.session)


def make_server(tool: SessionStateTool) -> Server[Any]:
    """An MCP server of one tool; its calls are carried out one after another, in the order in which they came."""
    from mcp import MCPError, types
    from mcp.server.lowlevel import Server

    told = tool.schema
    in_turn = asyncio.Lock()

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        one = types.Tool(name=told["name"], description=told["description"], input_schema=told["parameters"])
        return types.ListToolsResult(tools=[one])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name != tool.name:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool of this name; there is {tool.name}")
        async with in_turn:
            return await _answer(tool, params.arguments or {})

    return Server("sessioncache", version=version("sessioncache"), on_list_tools=list_tools, on_call_tool=call_tool)


async def _answer(tool: SessionStateTool, arguments: dict[str, Any]) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    try:
        reply = await tool.call(arguments)
    except SessionCacheError as error:
        told = explanation(error)
        if told is None:
            logger.error("a call of the tool failed: %s", error)
        content = TextContent(type="text", text=told or "the call failed")
        return CallToolResult(content=[content], is_error=True)
    # A reply with lone surrogates cannot be written as it is; its text has them escaped.
    structured = reply if is_encodable(json.dumps(reply, ensure_ascii=False)) else None
    return CallToolResult(content=[TextContent(type="text", text=as_text(reply))], structured_content=structured)
