"""File locks that end with their holder."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path


class FileLock:
    """One open description of a lock file, and the `flock` it may hold.

    The file is created where it is missing and never removed.  The lock goes with the last descriptor of this
    description: on `close()`, when the object is collected, or when the process ends in whatever way.  A program that
    is executed does not inherit it unless it is given `descriptor` on purpose.  A forked child would, and would keep
    the lock alive after its parent: therefore the child closes its copy at once (without unlocking, which would unlock
    the parent's), and its copy of this object is closed.  A fork that bypasses Python's hooks prolongs the lock until
    the child ends.
    """

    def __init__(self, path: str | Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._finalizer = weakref.finalize(self, os.close, self.descriptor)
        _open_locks.add(self)

    @property
    def closed(self) -> bool:
        """Whether the description was closed, here or because this is a forked child's copy."""
        return not self._finalizer.alive

    def try_shared(self) -> bool:
        """Take the lock shared, unless somebody holds it exclusively."""
        return self._try(fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Take the lock exclusively, unless somebody holds it."""
        return self._try(fcntl.LOCK_EX)

    def release(self) -> None:
        """Give the lock back, for all who share this description."""
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def touch(self) -> None:
        """Leave word, as the file's time, that somebody was here."""
        os.utime(self.descriptor)

    def touched(self) -> int:
        """When somebody last left word, in nanoseconds by the wall clock."""
        return os.fstat(self.descriptor).st_mtime_ns

    def held_exclusively(self) -> bool:
        """Whether another description holds the lock exclusively; this one must hold nothing.

        Two who ask at once do not see each other.  Who wants the lock exclusively may be refused for that moment.
        """
        if not self.try_shared():
            return True
        self.release()
        return False

    def close(self) -> None:
        """Close this process's descriptor; may be called again."""
        self._finalizer()

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


_open_locks: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _close_inherited() -> None:
    for lock in list(_open_locks):
        lock.close()


os.register_at_fork(after_in_child=_close_inherited)
