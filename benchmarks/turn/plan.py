"""What a turn reads and writes, the same for every contender."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal

from sessioncache import APP_PREFIX, USER_PREFIX

Scope = Literal["session", "user", "app"]

SCOPES: tuple[Scope, ...] = ("session", "user", "app")
PREFIXES = ("", USER_PREFIX, APP_PREFIX)
"""Of the keys of each scope."""
KEYS = 10
"""Keys of a scope."""
SIZE = 100
"""Bytes of a value as JSON."""
SESSIONS = 512
"""Every session has a user and an app of its own, so that no contender waits for the lock of a row that all write."""
CHANGED = "key3"
"""What somebody else writes before a turn."""
WRITTEN = "key7"
"""What a turn writes."""
SMALL_SCRIPT = """
for i = 1, #KEYS - 1 do
  redis.call('HINCRBY', KEYS[i], 'revision', 1)
  redis.call('HSET', KEYS[i], ARGV[2 * i], ARGV[2 * i + 1])
  redis.call('ZADD', KEYS[#KEYS], 'NX', ARGV[1], KEYS[i])
  redis.call('PERSIST', KEYS[i])
end
return 1
"""
"""How the floors on Redis write: hashes with a revision and a dirty index, as one would by hand."""


def text(number: int) -> str:
    """A value of `SIZE` bytes as JSON, another one for another number."""
    return f"{number:010} what an agent remembers of a conversation ".ljust(SIZE - 2, "x")


def initial() -> dict[str, str]:
    """The keys of one scope."""
    return {f"key{number}": text(number) for number in range(KEYS)}


def initial_state() -> dict[str, str]:
    """The keys of all three, with their prefixes."""
    return {prefix + key: value for prefix in PREFIXES for key, value in initial().items()}


def names(number: int) -> tuple[str, str, str]:
    """The names of a session's three scopes for those who lay them out by hand, as long as the cache's keys are."""
    name = blake2b(b"%d" % number, digest_size=16).hexdigest()
    return f"plain:{{000}}:h:s{name}", f"plain:{{000}}:h:u{name}", f"plain:{{000}}:h:a{name}"
