"""Processes that hold a file lock as long as they live, whoever started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from sessioncache.embedded.folder import open_log
from sessioncache.embedded.locks import FileLock

# Writes the process's id into the lock file, then becomes the program: from the first moment the holder of the
# lock is the process that the file names.
_NOTE_ID_AND_EXECUTE = 'echo $$ >"$0" && exec "$@"'


class LockedProcess:
    """The one process that holds `lock_path`, and its log; paths are relative to the working directory.

    Only who holds the keeper's lock may start or signal it.
    """

    def __init__(self, lock_path: str, log_path: str) -> None:
        self._lock_path = lock_path
        self._log_path = log_path
        self._look = FileLock(lock_path)
        self._child: subprocess.Popen[bytes] | None = None

    def alive(self) -> bool:
        """Whether the process, or a child of it that can still write its files, lives."""
        if self._child is not None:
            self._child.poll()
        return self._look.held_exclusively()

    def start(self, command: Sequence[str]) -> None:
        """Start it, unless it lives.  OSError where the system cannot."""
        lock = FileLock(self._lock_path)
        try:
            if lock.try_exclusive():
                os.ftruncate(lock.descriptor, 0)
                self._child = self._spawn(command, lock.descriptor)
        finally:
            lock.close()

    def signal(self, number: int) -> bool:
        """Send a signal to it; False where it does not live, or is so young that its id is unknown."""
        holder = os.pread(self._look.descriptor, 32, 0).strip()
        if not holder:
            return False
        if sys.platform != "linux":
            return self.alive() and _kill(int(holder), number)
        try:
            handle = os.pidfd_open(int(holder))
        except ProcessLookupError:
            return False
        try:
            # The lock is checked only now, so that the handle is its holder's, not a later process's of the same id.
            return self.alive() and _signal_handle(handle, number)
        finally:
            os.close(handle)

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended; False if it lives on."""
        end = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    def _spawn(self, command: Sequence[str], lock_descriptor: int) -> subprocess.Popen[bytes]:
        log = open_log(self._log_path)
        try:
            return subprocess.Popen(
                ["/bin/sh", "-c", _NOTE_ID_AND_EXECUTE, self._lock_path, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock_descriptor],
            )
        finally:
            os.close(log)


def _kill(process_id: int, number: int) -> bool:
    try:
        os.kill(process_id, number)
    except ProcessLookupError:
        return False
    return True


def _signal_handle(handle: int, number: int) -> bool:
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    return True


class BackOff:
    """When something that keeps failing may be tried again: at once, then after ever longer waits."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self.reset()

    def reset(self) -> None:
        """The next try may be now."""
        self._wait = self._first
        self._tried: float | None = None

    def may_try(self) -> bool:
        """Whether a try is due; if so, it counts as made.  Success for a minute is forgiven as if never tried."""
        now = time.monotonic()
        if self._tried is None or now - self._tried > 60:
            self._wait = self._first
        elif now - self._tried < self._wait:
            return False
        else:
            self._wait = min(2 * self._wait, self._longest)
        self._tried = now
        return True
