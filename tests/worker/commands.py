"""The command line as its users run it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.helpers import Urls

_COMMAND = Path(sys.executable).parent / "sessioncache"


class Answer(NamedTuple):
    """What a command with ``--json`` said."""

    code: int
    said: Any


async def run(urls: Urls, *words: str) -> Answer:
    """Run ``sessioncache WORDS --json`` over both tiers; its exit code, and its last line decoded."""
    tiers = ("--redis", urls.redis, "--database", urls.database, "--json")
    process = await asyncio.create_subprocess_exec(
        _COMMAND, *words, *tiers, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode in (0, 1), err.decode()
    return Answer(process.returncode, json.loads(out.decode().splitlines()[-1]))
