"""Every code block of every page is run, but for the few that say why not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import ROOT, StartRedis
from tests.docs.pages import NOT_CODE, SERVERS, Block, agrees, blocks, pages, steps
from tests.docs.running import PageRun
from tests.docs.shell import environment
from tests.docs.test_tutorial import TUTORIAL

PAGES = [page for page in pages() if page != TUTORIAL and any(b.language not in NOT_CODE for b in blocks(page))]
MOST_NOT_RUN = 20
"""Blocks that are not run, in all pages."""
_INDENTED = re.compile(r"^ {4,}(?:\$|python|pip|make|sessioncache|import|from) .*", re.MULTILINE)


@pytest.fixture
def servers(start_redis: StartRedis, postgresql_url: str) -> Mapping[str, str]:
    """Servers in place of the reader's; Redis is the page's own, since pages change its settings."""
    server = start_redis("redis")
    urls = dict(zip(SERVERS, (f"'{server.url}'", f"'{postgresql_url}'"), strict=True))
    return {**urls, "redis-cli ": f"redis-cli -s {server.socket} ", '-u "$SESSIONCACHE_REDIS_URL" ': ""}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_runs(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    for name in ("SESSIONCACHE_REDIS_URL", "SESSIONCACHE_DATABASE_URL", "SESSIONCACHE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    instead = request.getfixturevalue("servers") if any(url in page.read_text() for url in SERVERS) else {}
    with PageRun(folder, environment(), instead) as run:
        for block in blocks(page):
            run.follow(block)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_a_fence_that_names_its_language(page: Path) -> None:
    assert [str(block) for block in blocks(page) if not block.language] == []
    fences = len(re.findall(r"^ *(?:```|~~~)", page.read_text(), re.MULTILINE))
    assert fences == 2 * len([block for block in blocks(page) if not _hidden(block)])
    assert _INDENTED.findall(_without_fences(page)) == []


def _hidden(block: Block) -> bool:
    return block.page.read_text().splitlines()[block.line - 1].startswith("<!--")


def _without_fences(page: Path) -> str:
    return re.sub(r"^```.*\n(?:.*\n)*?```$", "", page.read_text(), flags=re.MULTILINE)


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    reasons = [block.reason for page in pages() for block in blocks(page) if block.reason]
    assert len(reasons) <= MOST_NOT_RUN
    assert [reason for reason in reasons if len(reason) < 10] == []


def test_what_stands_for_any_text_is_told_apart() -> None:
    assert agrees("turn 3 at …\n…\ndone", "turn 3 at noon\none\ntwo\ndone")
    assert agrees("…", "")
    assert not agrees("turn 3", "turn 4")
    assert not agrees("turn 3", "turn 3\nand more")
    assert not agrees("a …", "b c")


def test_a_transcript_is_commands_typing_and_output() -> None:
    found = steps("$ one \\\n  two  # why\n> typed\nprinted\n$ three\n")
    assert [(step.command, step.typed, step.printed) for step in found] == [
        ("one   two", "typed\n", "printed"),
        ("three", "", ""),
    ]
