"""Settings: every limit and default, with its unit.  Pure: no I/O."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Self

from sessioncache.errors import ConfigurationError, InvalidNameError
from sessioncache.primitives.names import check_name

MAX_VALUE_BYTES = 1024 * 1024
"""Largest encoded value."""
MAX_SCOPE_KEYS = 20_000
"""Most living keys of one scope."""
MAX_SCOPE_BYTES = 64 * 1024 * 1024
"""Most bytes of encoded values of one scope."""
MAX_CALL_KEYS = 2_000
"""Most keys that one call may change, in all its scopes together."""
MAX_CALL_BYTES = 2 * 1024 * 1024
"""Most bytes of encoded values that one call may write, in all its scopes together."""
MAX_REPLACED_BYTES = 4 * 1024 * 1024
"""Most bytes of encoded values of one scope that one call of more than four keys may overwrite or delete."""
MAX_FORK_NAMESPACES = 500
"""Most namespaces of a session that is forked."""
TOMBSTONE_RETENTION = 7 * 86_400
"""Seconds for which tombstones are kept after they were flushed."""
OPERATION_ID_LIFETIME = 120
"""Seconds for which the idempotency key of a call is remembered at least."""
IDLE_TTL = 86_400.0
"""Seconds for which a clean scope stays in Redis unless a setting says otherwise."""
_LONGEST = 10 * 366 * 86_400.0
"""Longest time to live in seconds."""
LAYOUT_VERSION = 1
"""The version of the layout of both tiers."""


@dataclass(frozen=True, slots=True)
class _Settings:
    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Check names and values; raise ConfigurationError naming what is wrong."""
        known = {f.name: f for f in fields(cls)}
        for name, value in given.items():
            if name not in known:
                raise ConfigurationError(f"unknown setting {name!r}; there are {', '.join(sorted(known))}")
            default = known[name].default
            if isinstance(default, (int, float)):
                _check_positive(name, value, whole=isinstance(default, int))
        settings = cls(**given)
        settings.check()
        return settings

    def check(self) -> None:
        """Check the settings against each other.  ConfigurationError."""


def _check_positive(name: str, value: object, *, whole: bool) -> None:
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < math.inf:
        raise ConfigurationError(f"{name} must be a {'whole number' if whole else 'number'} above 0, not {value!r}")


def _check_prefix(prefix: object) -> None:
    if not isinstance(prefix, str) or not prefix or set(prefix) & set("{}\0"):
        raise ConfigurationError("prefix must be a text that is not empty and has no braces")
    try:
        check_name("prefix", prefix)
    except InvalidNameError as error:
        raise ConfigurationError(str(error)) from None


def _check_lives(**given: float | None) -> None:
    """Check times to live, which Redis counts in milliseconds from now."""
    for name, seconds in given.items():
        if seconds is not None and seconds > _LONGEST:
            raise ConfigurationError(f"{name} must be at most {_LONGEST:g} seconds, not {seconds!r}")


@dataclass(frozen=True, slots=True)
class CacheSettings(_Settings):
    """Settings of a cache object."""

    timeout: float = 5.0
    """Seconds a call may take in all, repeats and hydration included."""
    idle_ttl: float | None = None
    """Seconds for which a clean scope stays in Redis; renewed by use once half of them are over.

    It is one value for an installation: workers, which set it once a scope is flushed, follow the last cache that set
    it. None: the value of the workers, 24 h unless set otherwise.
    """
    temp_ttl: float = 3_600.0
    """Seconds after their last use for which the `temp:` keys of a session live."""
    max_dirty: int = 1_000_000
    """Dirty scopes from which on writes are refused or wait (deletes are accepted)."""
    max_dirty_age: float = 3_600.0
    """Seconds that the oldest unflushed write may wait for SQL before writes are refused or wait."""
    on_full: str = "refuse"
    """What happens to a write above these limits: ``refuse`` (BackPressureError) or ``wait`` (for at most the
    time-out).

    The embedded default always waits, since its worker may have started a moment ago.
    """
    retention: float | None = None
    """Seconds after its last activity for which a session of this app is kept (0: for ever); the workers delete it
    then.

    None: the value that was set last, by whichever process; at first for ever.
    """
    prefix: str = "sessioncache"
    """What every Redis key starts with; one prefix is one installation."""
    buckets: int = 256
    """Partitions of the key space; fixed for an installation once it holds data."""

    def check(self) -> None:
        if self.retention is not None and self.retention != 0:
            _check_positive("retention", self.retention, whole=False)
        if self.idle_ttl is not None:
            _check_positive("idle_ttl", self.idle_ttl, whole=False)
        if self.on_full not in ("refuse", "wait"):
            raise ConfigurationError(f"on_full must be 'refuse' or 'wait', not {self.on_full!r}")
        if self.timeout > OPERATION_ID_LIFETIME / 2:
            raise ConfigurationError(
                f"timeout must be at most {OPERATION_ID_LIFETIME // 2} seconds, not {self.timeout!r}"
            )
        if self.buckets > 16_384:
            raise ConfigurationError(f"buckets must be a whole number from 1 to 16384, not {self.buckets!r}")
        _check_prefix(self.prefix)
        _check_lives(idle_ttl=self.idle_ttl, temp_ttl=self.temp_ttl)


@dataclass(frozen=True, slots=True)
class WorkerSettings(_Settings):
    """Settings of a flush worker."""

    flush_delay: float = 1.0
    """Seconds from the first change of a clean scope to its flush."""
    lease: float = 15.0
    """Seconds after which another worker takes over what a silent worker has claimed."""
    batch_rows: int = 1_000
    """Most rows of one transaction (a larger scope is a batch of its own)."""
    batch_bytes: int = 4 * 1024 * 1024
    """Most bytes of values of one transaction (a larger scope is a batch of its own)."""
    max_attempts: int = 3
    """Refusals of an entry as data after which it is a dead letter."""
    grace: float = 25.0
    """Seconds that a worker that is asked to stop takes at most to finish what it has begun."""
    idle_ttl: float = IDLE_TTL
    """Seconds a scope stays in Redis after it was flushed, unless it is used, or a cache set another `idle_ttl`."""
    janitor: float = 60.0
    """Seconds between two rounds of the janitor."""
    sweep: float = 15.0
    """Seconds between two polls of all buckets, in case a notification was missed."""
    prefix: str = "sessioncache"
    """As in the cache's settings."""
    buckets: int = 256
    """As in the cache's settings."""

    def check(self) -> None:
        if self.lease > 600 or self.flush_delay > 600:
            raise ConfigurationError("lease and flush_delay are at most 600 seconds")
        _check_prefix(self.prefix)
        _check_lives(idle_ttl=self.idle_ttl)
