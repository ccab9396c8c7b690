"""Files that commands write."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from sessioncache.errors import ConfigurationError


def write_file(name: str, data: bytes) -> None:
    """Write a file at once, or leave what was there; ConfigurationError where it cannot be written.

    The file is for its owner only, whoever might read an older one of the name; what is no regular file, a pipe say, is
    written to as it is.
    """
    target = Path(os.path.realpath(name))
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
        else:
            _replace(target, data)
    except OSError as error:
        raise ConfigurationError(f"{name!r} cannot be written: {error.strerror}") from error


def _replace(target: Path, data: bytes) -> None:
    descriptor, beside = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside)
        raise
