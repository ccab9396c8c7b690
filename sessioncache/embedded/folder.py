"""What lies where in a data folder, and how to speak to its server."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from pathlib import Path
from urllib.parse import quote

from sessioncache.errors import ConfigurationError

USERS_LOCK = "users.lock"
WORKER_USERS_LOCK = "worker-users.lock"
KEEPER_LOCK = "keeper.lock"
SPAWN_LOCK = "spawn.lock"
SERVER_LOCK = "server.lock"
WORKER_LOCK = "worker.lock"

KEEPER_LOG = "keeper.log"
SERVER_LOG = "server.log"
WORKER_LOG = "worker.log"

SOCKET = "valkey.sock"
SOCKET_RECORD = "socket.path"
DATABASE = "sessioncache.db"

LONGEST_SOCKET_PATH = 103
"""Bytes of a Unix socket's path that every system takes."""
_LARGEST_LOG = 1024 * 1024


def prepare_folder(data_dir: str | Path) -> Path:
    """Create the folder where it is missing (for its owner only); its absolute path without symbolic links.

    Raises ConfigurationError for a path that a database URL cannot express; OSError where it cannot be created.
    """
    root = Path(data_dir).expanduser().resolve()
    if set(str(root)) & set("?%\0"):
        raise ConfigurationError("the path of the data folder must not contain '?' or '%'")
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return root


def database_url(root: Path) -> str:
    """The URL of the folder's SQLite file."""
    return f"sqlite+aiosqlite:///{root / DATABASE}"


def redis_url(socket_path: str) -> str:
    """The URL of the server that listens on a Unix socket."""
    return f"unix://{quote(socket_path)}"


def find_socket(root: Path) -> str | None:
    """A path of the server's socket that is short enough to connect to; None while the keeper has not made one."""
    direct = str(root / SOCKET)
    if _short_enough(direct):
        return direct
    try:
        return (root / SOCKET_RECORD).read_text() or None
    except FileNotFoundError:
        return None


def make_socket_path(root: Path) -> str:
    """Like `find_socket`, but makes the path: for a deep folder a link to it in a private temporary folder.

    Only the keeper may call it.  A link that an earlier keeper left is used again.
    """
    found = find_socket(root)
    if found is not None and (_short_enough(str(root / SOCKET)) or _leads_to(found, root)):
        return found
    link = Path(_private_temporary_folder()) / "d"
    link.symlink_to(root, target_is_directory=True)
    written = root / (SOCKET_RECORD + ".new")
    written.write_text(str(link / SOCKET))
    written.replace(root / SOCKET_RECORD)
    return str(link / SOCKET)


def remove_socket_path(root: Path, socket_path: str) -> None:
    """Undo `make_socket_path` once the server has ended."""
    link = Path(socket_path).parent
    if link == root:
        return
    link.unlink(missing_ok=True)
    shutil.rmtree(link.parent, ignore_errors=True)
    # Another link is recorded where this folder was removed and made anew.
    if find_socket(root) == socket_path:
        (root / SOCKET_RECORD).unlink(missing_ok=True)


def ask(socket_path: str, command: bytes, timeout: float = 1.0) -> bytes:
    """The first bytes of the server's reply to one inline command; empty if there was none within `timeout` seconds."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(socket_path)
            connection.sendall(command + b"\r\n")
            return connection.recv(512)
    except OSError:
        return b""


def answers(socket_path: str) -> bool:
    """Whether the server is there and has loaded its data."""
    return ask(socket_path, b"PING").startswith(b"+PONG")


def open_log(path: str | Path) -> int:
    """A descriptor to append to a log; a log longer than 1 MiB is set aside first, in the place of the one before."""
    # Missing: there is no log yet, or another process has just set it aside.
    with contextlib.suppress(FileNotFoundError):
        if os.path.getsize(path) > _LARGEST_LOG:
            os.replace(path, f"{path}.1")
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def last_lines(path: Path, count: int = 20) -> str:
    """The end of a log, with the failed start before the present one; empty where there is none."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-count:])
    except OSError:
        return ""


def _short_enough(path: str) -> bool:
    return len(os.fsencode(path)) <= LONGEST_SOCKET_PATH


def _leads_to(socket_path: str, root: Path) -> bool:
    link = Path(socket_path).parent
    try:
        owner = link.parent.stat()
        return owner.st_uid == os.getuid() and not owner.st_mode & 0o077 and link.readlink() == root
    except OSError:
        return False


def _private_temporary_folder() -> str:
    usual = tempfile.gettempdir()
    room = _short_enough(os.path.join(usual, "sessioncache-12345678", "d", SOCKET))
    return tempfile.mkdtemp(prefix="sessioncache-", dir=usual if room else "/tmp")
