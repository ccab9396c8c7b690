"""The parts of the embedded default: locks, processes that hold them, logs, back-off."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sessioncache.embedded import folder
from sessioncache.embedded.locks import FileLock
from sessioncache.embedded.processes import BackOff, LockedProcess
from tests.waiting import stretched, wait_until


def test_locks_exclude_each_other(tmp_path: Path) -> None:
    first, second, third = (FileLock(tmp_path / "lock") for _ in range(3))
    assert first.try_shared()
    assert second.try_shared()
    assert not third.try_exclusive()
    assert not third.held_exclusively()
    first.close()
    first.close()
    second.release()
    assert third.try_exclusive()
    assert second.held_exclusively()
    third.close()
    assert not second.held_exclusively()


def test_a_young_or_dead_process_is_not_signalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    process = LockedProcess("lock", "log")
    assert not process.signal(signal.SIGTERM)
    # A bystander that got the id of a holder that has ended.
    with subprocess.Popen(["sleep", "60"]) as bystander:
        (tmp_path / "lock").write_text(str(bystander.pid))
        assert not process.signal(signal.SIGKILL)
        assert bystander.poll() is None
        bystander.kill()
    process.start(["sleep", "60"])
    wait_until(lambda: process.signal(signal.SIGTERM), 5, "the process has noted its id")
    assert process.wait(stretched(5))


def test_a_process_that_holds_the_lock_is_not_started_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = LockedProcess("lock", "log"), LockedProcess("lock", "log")
    first.start(["sh", "-c", "echo first; exec sleep 60"])
    second.start(["sh", "-c", "echo second; exec sleep 60"])
    assert first.alive()
    assert second.alive()
    wait_until(lambda: second.signal(signal.SIGKILL), 5, "the process has noted its id")
    assert first.wait(stretched(5))
    assert "second" not in (tmp_path / "log").read_text()


def test_a_long_log_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * (1024 * 1024 + 1))
    os.close(folder.open_log(tmp_path / "log"))
    assert (tmp_path / "log").stat().st_size == 0
    assert (tmp_path / "log.1").stat().st_size > 1024 * 1024


def test_back_off_grows_and_forgives(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    tries = BackOff(1, 3)
    waits = []
    for _ in range(4):
        begin = now
        while not tries.may_try():
            now += 1
        waits.append(now - begin)
    assert waits == [0, 1, 2, 3]
    now += 61
    assert tries.may_try()
    now += 1
    assert tries.may_try()
