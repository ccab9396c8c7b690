"""Addresses of Redis: which URLs are accepted; redis-py would interpret some others in its own way.  Pure: no I/O."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from sessioncache.errors import ConfigurationError
from sessioncache.primitives.urls import ESCAPES

_SCHEMES = ("redis", "rediss", "unix")
_DATABASE = re.compile(r"(/\d*)?")


def check_url(url: object) -> str:
    """The URL; ConfigurationError, which quotes nothing of it, where it is not one of a Redis server.

    The client itself uses database 0 where the URL names one by something else than a number.
    """
    # Python would take the rest for a fragment: a password would be cut short, and the host be missing.
    if isinstance(url, str) and "#" in url:
        raise ConfigurationError("the Redis URL has a # in it: in a password it is written as %23")
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        # Python checks the port only when it is asked for.
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        told = f"the host or port of the Redis URL cannot be read: redis://HOST:PORT/0, and {ESCAPES}"
        # Without the cause, whose message quotes a part of the URL: the password may be in it.
        raise ConfigurationError(told) from None
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError("the Redis URL must begin with redis://, rediss:// or unix://")
    if not port_is_fine:
        raise ConfigurationError("the port of the Redis URL must not be 0")
    if parts.scheme == "unix" and not parts.path:
        raise ConfigurationError("the Redis URL names no socket: unix:///PATH/TO/SOCKET")
    if parts.scheme != "unix" and _is_torn(parts):
        raise ConfigurationError(f"the Redis URL has an @ that is of no use: {ESCAPES}")
    named = parse_qs(parts.query, keep_blank_values=True).get("db", [])
    # The path of a unix URL is the socket; its database can be named in the query only.
    in_path = parts.scheme == "unix" or _DATABASE.fullmatch(unquote(parts.path))
    if not in_path or not all(name.isascii() and name.isdigit() for name in named):
        raise ConfigurationError("the Redis URL must name its database by a number: redis://HOST:PORT/0")
    return str(url)


def _is_torn(parts: SplitResult) -> bool:
    """Whether a part of the password may have been read as host and port, which are shown."""
    return "@" in parts.path or any("@" in one and "=" not in one for one in parts.query.split("&"))
