"""The tutorial, followed word by word."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.pages import SERVERS, Block, blocks
from tests.docs.running import PageRun
from tests.docs.shell import environment
from tests.packaging.test_wheel import wheel

__all__ = ["wheel"]

TUTORIAL = ROOT / "docs" / "tutorial.md"


@pytest.fixture
def servers(valkey_url: str, postgresql_url: str) -> Mapping[str, str]:
    """What the page calls the reader's own servers, and what is taken here."""
    return dict(zip(SERVERS, (f"'{valkey_url}'", f"'{postgresql_url}'"), strict=True))


def installs(block: Block) -> bool:
    return "pip install" in block.text


@pytest.mark.timeout(300)
def test_the_tutorial_followed_with_what_is_installed_here(folder: Path, servers: Mapping[str, str]) -> None:
    with PageRun(folder, environment(), servers) as run:
        for block in blocks(TUTORIAL):
            if not installs(block):
                run.follow(block)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial_followed_in_a_fresh_environment(folder: Path, servers: Mapping[str, str], wheel: Path) -> None:
    """Nothing of the checkout is in reach; pip is given the wheel, since it is this one that is tried."""
    env = environment(PIP_CONSTRAINT=str(ROOT / "constraints.txt"))
    env.pop("PYTHONPATH", None)
    instead = {**servers, '"sessioncache[': f'"{wheel}['}
    with PageRun(folder, env, instead, seconds=300) as run:
        for block in blocks(TUTORIAL):
            run.follow(block)
