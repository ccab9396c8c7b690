"""For tests: a session cache without servers, and the conformance suite for backends of sessioncache.

`InMemorySessionCache` serves the unit tests of programs that use sessioncache.  `sessioncache.testing.conformance` is a
suite of pytest tests for whoever writes a backend of the same semantics (it needs pytest, this package does not).
"""

from __future__ import annotations

from sessioncache.testing.memory import InMemorySessionCache
from sessioncache.testing.store import MemoryStore

__all__ = ["InMemorySessionCache", "MemoryStore"]
