"""The code of docs/tool.md runs, and its MCP configuration is one that the command takes."""

from __future__ import annotations

import json
import re

import pytest

from sessioncache.cli.main import build_parser
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "tool.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("code", [code for language, code in BLOCKS if language == "python"])
def test_each_python_block_runs(code: str) -> None:
    exec(compile(code, "docs/tool.md", "exec"), {"__name__": "example"})


def test_the_configuration_is_one_that_the_command_takes() -> None:
    (code,) = [code for language, code in BLOCKS if language == "json"]
    server = json.loads(code)["mcpServers"]["state"]
    options = build_parser().parse_args(server["args"])
    assert server["command"] == "sessioncache"
    assert (options.command, options.app, options.user, options.session, options.create) == (
        "mcp",
        "support",
        "ada",
        "conversation-1",
        True,
    )
