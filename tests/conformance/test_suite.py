"""The conformance suite as somebody else runs it: one fixture, no plugin, and a backend that is wrong goes red."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from sessioncache.testing import conformance

_FILE = """
import pytest
from sessioncache.errors import SessionExistsError
from sessioncache.handle.base import Handle
from sessioncache.testing import InMemorySessionCache, MemoryStore
from sessioncache.testing.conformance import *

{backend}

@pytest.fixture
def open_cache():
    store = MemoryStore()

    def open_one(*, app, org):
        return Backend(app=app, org=org, store=store)

    return open_one
"""

_RIGHT = "Backend = InMemorySessionCache"

_WRONG = {
    "merges dicts": """
class Backend(InMemorySessionCache):
    pass

async def merging(self, key, value):
    before = await self.get(key)
    both = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return await self.update({key: both})

Handle.set = merging
""",
    "increments by reading and writing": """
import asyncio

Backend = InMemorySessionCache

async def increment(self, key, by=1):
    total = (await self.get(key, 0)) + by
    await asyncio.sleep(0)
    await self.set(key, total)
    return total

Handle.increment = increment
""",
    "overwrites on create": """
class Backend(InMemorySessionCache):
    async def create(self, user, *, session_id=None, **named):
        try:
            return await super().create(user, session_id=session_id, **named)
        except SessionExistsError:
            await self.delete(user, session_id)
            return await super().create(user, session_id=session_id, **named)
""",
    "folds the case of users": """
class Backend(InMemorySessionCache):
    async def create(self, user, **named):
        return await super().create(user.lower() if isinstance(user, str) else user, **named)

    async def get(self, user, session_id):
        return await super().get(user.lower() if isinstance(user, str) else user, session_id)
""",
    "lets old handles write": """
from sessioncache.session import Session

Backend = InMemorySessionCache
Session._birth = property(lambda self: b"")
""",
}


def run_suite(folder: Path, backend: str) -> tuple[int, dict[str, int]]:
    """Run the suite in a process of its own; exit code and numbers by outcome."""
    (folder / "test_backend.py").write_text(_FILE.format(backend=backend))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--maxfail=3", "test_backend.py"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=100)
    counts = re.findall(r"(\d+) (passed|failed|error|warning)", done.stdout.splitlines()[-1])
    return done.returncode, {outcome: int(number) for number, outcome in counts}


def test_one_fixture_is_enough_and_no_plugin_is_needed(tmp_path: Path) -> None:
    code, counts = run_suite(tmp_path, _RIGHT)
    assert code == 0
    assert set(counts) == {"passed"}
    assert counts["passed"] > 200


@pytest.mark.parametrize("wrong", _WRONG)
def test_a_backend_that_is_wrong_goes_red(tmp_path: Path, wrong: str) -> None:
    code, counts = run_suite(tmp_path, _WRONG[wrong])
    assert code == 1
    assert counts.get("failed", 0) >= 1
    assert "error" not in counts


def test_every_class_of_the_suite_is_exported() -> None:
    for module in iter_modules(conformance.__path__):
        import_module(f"{conformance.__name__}.{module.name}")
    assert {kind.__name__ for kind in conformance.Conformance.__subclasses__()} <= set(conformance.__all__)
