"""Where a cache is told to find its tiers: what is set but empty is a mistake, and no wish for the embedded default."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessioncache import ConfigurationError, SessionCache
from sessioncache.coordination.connecting import DATA_DIR, DATABASE_URL, REDIS_URL
from sessioncache.sync import SessionCache as SyncCache


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """An embedded default that was begun nevertheless would leave its folder here."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("variable", [REDIS_URL, DATABASE_URL, DATA_DIR])
async def test_a_place_that_is_set_but_empty_is_refused(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "")
    with pytest.raises(ConfigurationError, match=f"{variable} is empty"):
        await SessionCache.connect(app="app")
    with pytest.raises(ConfigurationError, match=f"{variable} is empty"):
        await asyncio.to_thread(SyncCache.connect, app="app")


@pytest.mark.parametrize("given", [{"redis_url": ""}, {"database_url": ""}, {"data_dir": ""}, {"redis_url": 6379}])
async def test_a_place_that_is_none_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        await SessionCache.connect(app="app", **given)
    with pytest.raises(ConfigurationError):
        await asyncio.to_thread(SyncCache.connect, app="app", **given)


@pytest.mark.parametrize("command", [("sessioncache.cli.main", "flush"), ("sessioncache_worker.cli", "--once")])
def test_commands_refuse_an_empty_place(command: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REDIS_URL, "")
    module, argument = command
    program = f"from {module} import main; raise SystemExit(main())"
    run = subprocess.run([sys.executable, "-c", program, argument], capture_output=True, check=False)
    assert (run.returncode, b"--redis: is empty" in run.stderr) == (2, True)
