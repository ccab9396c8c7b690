"""Engines: from a URL, or the caller's own.  The one place that chooses drivers."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sessioncache.errors import ConfigurationError
from sessioncache.primitives.urls import ESCAPES

BUSY_TIMEOUT = 10.0
"""Seconds that SQLite waits for a lock."""
CONNECT_TIMEOUT = 5
"""Seconds that connecting to PostgreSQL may take."""
POOL_TIMEOUT = 60.0
"""Seconds a call waits for a free connection; above every call's own time-out, which is what ends the wait."""
_POOL_SIZE = {"sqlite": 5, "postgresql": 10}

_DRIVERS = {"sqlite": "aiosqlite", "postgresql": "psycopg"}
_EXTRAS = {"sqlite": "sqlite", "postgresql": "postgres"}
_NAMES = {
    "sqlite": "sqlite",
    "sqlite+aiosqlite": "sqlite",
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "postgresql+psycopg": "postgresql",
    "postgresql+psycopg_async": "postgresql",
}

# A half-open connection is noticed within about 15 seconds.
_PATIENCE = {
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "client_encoding": "utf8",
}


def create_engine(url: str) -> AsyncEngine:
    """An engine for a ``sqlite:`` or ``postgresql:`` URL; no connection is made yet.

    Raises ConfigurationError for an unknown database or a driver that is not installed.
    """
    parsed, dialect = _parse(url)
    arguments = {"timeout": BUSY_TIMEOUT} if dialect == "sqlite" else _patience(parsed)
    try:
        return create_async_engine(
            parsed,
            connect_args=arguments,
            pool_size=_POOL_SIZE[dialect],
            max_overflow=0,
            pool_timeout=POOL_TIMEOUT,
            hide_parameters=True,
        )
    except ImportError:
        raise ConfigurationError(
            f"the driver {_DRIVERS[dialect]!r} is missing: pip install 'sessioncache[{_EXTRAS[dialect]}]'"
        ) from None


def prepare_engine(engine: AsyncEngine) -> AsyncEngine:
    """Check that an engine is one that we can work on, and return it; it may be prepared any number of times.

    Nothing is attached to the engine: what a connection needs is set when a transaction of ours first uses it, and the
    caller's own transactions stay as they are.  Raises ConfigurationError for another dialect or driver.
    """
    if not isinstance(engine, AsyncEngine):
        raise ConfigurationError(
            f"the engine must be an AsyncEngine, not {type(engine).__module__}.{type(engine).__name__}"
        )
    dialect, driver = engine.dialect.name, engine.dialect.driver
    if _DRIVERS.get(dialect) != driver.removesuffix("_async"):
        raise ConfigurationError(f"{dialect}+{driver} is not supported: use sqlite+aiosqlite or postgresql+psycopg")
    _refuse_memory(engine.url)
    return engine


def _parse(url: str) -> tuple[URL, str]:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        told = f"the database URL cannot be read; it looks like postgresql://host/name, and {ESCAPES}"
        raise ConfigurationError(told) from None
    dialect = _NAMES.get(parsed.drivername)
    if dialect is None:
        raise ConfigurationError(f"databases are sqlite: and postgresql:, not {parsed.drivername!r}")
    _refuse_memory(parsed)
    if dialect == "postgresql" and _is_torn(parsed, url):
        raise ConfigurationError(f"the database URL has an @ that is of no use: {ESCAPES}")
    return parsed.set(drivername=f"{dialect}+{_DRIVERS[dialect]}"), dialect


def _is_torn(parsed: URL, url: str) -> bool:
    """Whether a part of the password may have been read as host, name or options, which are shown."""
    if "@" in f"{parsed.host}{parsed.database}":
        return True
    login = url.partition("://")[2].partition(":")[2]
    return parsed.password is not None and "@" in login.partition("@")[2]


def _refuse_memory(url: URL) -> None:
    if url.get_backend_name() != "sqlite":
        return
    name = url.database or ""
    if name in ("", ":memory:", "file::memory:") or url.query.get("mode") == "memory":
        raise ConfigurationError("an SQLite database in memory is lost with its connection: name a file")


def _patience(url: URL) -> dict[str, Any]:
    return {name: value for name, value in _PATIENCE.items() if name not in url.query}
