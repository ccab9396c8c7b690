"""The keeper of a data folder: ``python -m sessioncache.embedded.keeper FOLDER SERVER WORKER…``.

SERVER is the server's binary, WORKER the worker's command, to which the URLs of both tiers are added.  The keeper works
in the folder and names its files relatively: so it never touches another folder that took the name of a removed one.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sessioncache.embedded import folder
from sessioncache.embedded.locks import FileLock
from sessioncache.embedded.processes import BackOff, LockedProcess

POLL = 0.1
"""Seconds between two checks."""
LINGER = 1.0
"""Seconds without users before the folder is closed, so that a chain of short commands shares one server."""
WORKER_PATIENCE = 30.0
"""Seconds a worker has to flush after SIGTERM."""
SERVER_PATIENCE = 10.0
"""Seconds the server has to save, for each way of asking."""
_LOCK_PATIENCE = 0.5

_log = logging.getLogger("sessioncache.embedded.keeper")

_SERVER_OPTIONS = {
    "--port": "0",
    "--unixsocket": folder.SOCKET,
    "--unixsocketperm": "700",
    "--dir": ".",
    "--save": "",
    "--appendonly": "yes",
    "--appendfsync": "everysec",
    "--maxmemory-policy": "noeviction",
    "--hide-user-data-from-log": "yes",
    "--always-show-logo": "no",
}


class Keeper:
    """Keeps server and worker of the folder that is the working directory running, while it has users."""

    def __init__(self, root: Path, server: str, worker: Sequence[str]) -> None:
        self._root = root
        self._users = FileLock(folder.USERS_LOCK)
        self._worker_users = FileLock(folder.WORKER_USERS_LOCK)
        self._server = LockedProcess(folder.SERVER_LOCK, folder.SERVER_LOG)
        self._worker = LockedProcess(folder.WORKER_LOCK, folder.WORKER_LOG)
        self._server_tries = BackOff(0.2, 5.0)
        self._worker_tries = BackOff(0.2, 10.0)
        self._worker_told: float | None = None
        self._socket = folder.make_socket_path(root)
        self._server_command = [server, *(word for option in _SERVER_OPTIONS.items() for word in option)]
        urls = ["--redis", folder.redis_url(self._socket), "--database", folder.database_url(root)]
        self._worker_command = [*worker, *urls]

    def run(self) -> None:
        """Return when nobody uses the folder any more, server and worker have ended, and no user can come in between.

        `users.lock` is then held exclusively until `close()`.
        """
        used, touched = time.monotonic(), self._users.touched()
        while True:
            if self._in_use():
                used = time.monotonic()
                self._tend()
            elif touched != self._users.touched():
                # Somebody came and left between two checks.
                used, touched = time.monotonic(), self._users.touched()
            elif time.monotonic() - used > LINGER and self._worker_ended() and self._users.try_exclusive():
                break
            time.sleep(POLL)
        self._end_server()
        folder.remove_socket_path(self._root, self._socket)

    def close(self) -> None:
        """Admit users again."""
        self._users.close()

    def _in_use(self) -> bool:
        if not self._users.try_exclusive():
            return True
        self._users.release()
        return False

    def _tend(self) -> None:
        try:
            self._tend_server()
            self._tend_worker()
        except OSError as error:
            _log.error("cannot start a process: %s", error)

    def _tend_server(self) -> None:
        if not self._server.alive() and self._server_tries.may_try():
            _log.info("starting the server")
            self._server.start(self._server_command)

    def _tend_worker(self) -> None:
        if self._worker_told is not None:
            # The server was stopped before somebody came back: wait for that, then start the next one.
            if not self._worker_ended():
                return
            self._worker_tries.reset()
        if self._worker.alive() or not self._worker_wanted() or not folder.answers(folder.SOCKET):
            return
        if self._worker_tries.may_try():
            _log.info("starting the worker")
            self._worker.start(self._worker_command)

    def _worker_wanted(self) -> bool:
        if not self._worker_users.try_exclusive():
            return True
        self._worker_users.release()
        return False

    def _worker_ended(self) -> bool:
        """Ask the worker to end, with growing emphasis; whether it has."""
        if not self._worker.alive():
            self._worker_told = None
            return True
        if self._worker_told is None:
            if self._worker.signal(signal.SIGTERM):
                self._worker_told = time.monotonic()
        elif time.monotonic() - self._worker_told > WORKER_PATIENCE:
            _log.warning("the worker did not end within %.0f s of SIGTERM, killing it", WORKER_PATIENCE)
            self._worker.signal(signal.SIGKILL)
        return False

    def _end_server(self) -> None:
        """SHUTDOWN rather than a signal: the server ends in that command and answers nobody in between."""
        if not self._server.alive():
            return
        _log.info("ending the server")
        if os.path.exists(folder.SOCKET):
            folder.ask(folder.SOCKET, b"SHUTDOWN", timeout=SERVER_PATIENCE)
        else:
            self._server.signal(signal.SIGTERM)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._server.wait(SERVER_PATIENCE):
                return
            _log.warning("the server does not end, sending signal %d", number)
            self._server.signal(number)
        self._server.wait(SERVER_PATIENCE)


def _become_keeper() -> FileLock | None:
    """Take the keeper's lock and write the own id into it; None where there is a keeper."""
    lock = FileLock(folder.KEEPER_LOCK)
    end = time.monotonic() + _LOCK_PATIENCE
    # Users that check whether there is a keeper hold the lock for a moment.
    while not lock.try_exclusive():
        if time.monotonic() > end:
            return None
        time.sleep(0.01)
    os.ftruncate(lock.descriptor, 0)
    os.pwrite(lock.descriptor, b"%d\n" % os.getpid(), 0)
    return lock


def main(arguments: Sequence[str]) -> int:
    """Keep the folder until its last user has left; 0 also where another keeper does."""
    root, server, *worker = arguments
    os.umask(0o077)
    os.chdir(root)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    lock = _become_keeper()
    if lock is None:
        return 0
    keeper = Keeper(Path(root), server, worker)
    keeper.run()
    # In this order: a user who is admitted finds no keeper and starts the next one.
    lock.close()
    keeper.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
