"""Processes that end with caches open, and the embedded default under forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessioncache.embedded import folder
from tests.embedded_helpers import User, closed, held, wait_closed
from tests.helpers import ROOT, Urls
from tests.waiting import stretched

BEGIN = """
import os, sys, threading
from sessioncache.sync import SessionCache

cache = SessionCache.connect(sys.argv[1], sys.argv[2], app="app", timeout=30.0)
session = cache.create("ada", state={"a": 1})
"""

# A thread waits for a flush that does not come.
FLUSHING = """
begun, inner = threading.Event(), session._async.flush
async def flush(timeout):
    begun.set()
    await inner(timeout)
session._async.flush = flush
threading.Thread(target=session.flush, args=(60,), daemon=True).start()
assert begun.wait(10)
"""

FORK = """
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""

USE = """
else:
    session.set("a", 2)
"""

ENDINGS = {
    "closed": "cache.close()",
    "left open": "",
    "by an exit": "sys.exit(0)",
    "left open amid a call of a daemon": FLUSHING,
    "in a forked child that used nothing": FORK,
    "in a forked child too": FORK + USE,
    "in a forked child amid a call of its parent": FLUSHING + FORK + USE,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_soon_and_silently(small_urls: Urls, ending: str) -> None:
    code = BEGIN + ENDINGS[ending]
    process = subprocess.Popen(
        [sys.executable, "-W", "default", "-c", code, *small_urls],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        told, _ = process.communicate(timeout=stretched(30))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert (process.returncode, told) == (0, "")


# Opens the folder, forks; the child answers each line by counting, the parent too; each says when it ends.
FORKING = """
import os, sys
from sessioncache.sync import SessionCache

cache = SessionCache.connect(app="app", data_dir=sys.argv[1], timeout=30.0)
session = cache.create("ada", session_id="s1")
os.chdir("/")
first = os.fork()
if first == 0:
    session.increment("n")
    session.flush()
    sys.exit(0)
assert os.waitpid(first, 0)[1] == 0
assert session.increment("n") == 2
session.flush()
second = os.fork()
if second == 0:
    session.increment("n")
    print("child", flush=True)
    sys.stdin.readline()
    print(session.increment("n"), flush=True)
    cache.flush()
    os._exit(0)
cache.close()
print("closed", flush=True)
os.waitpid(second, 0)
"""


@pytest.fixture
def forking(tmp_path: Path) -> Iterator[User]:
    """A process that opened a data folder and forked twice."""
    user = User(tmp_path / "data", FORKING)
    yield user
    user.end()
    wait_closed(tmp_path / "data")


def test_the_embedded_server_outlives_a_child_and_serves_one_without_its_parent(forking: User, tmp_path: Path) -> None:
    assert {forking.told(), forking.told()} == {"child", "closed"}
    assert held(tmp_path / "data", folder.SERVER_LOCK)
    assert forking.process.stdin is not None
    forking.process.stdin.write("\n")
    forking.process.stdin.flush()
    assert forking.told() == "4"
    assert forking.process.wait(stretched(30)) == 0
    wait_closed(tmp_path / "data")
    assert closed(tmp_path / "data")
