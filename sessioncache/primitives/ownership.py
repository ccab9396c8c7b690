"""Ownership: which database the buckets of a Redis belong to, as the end of their incarnations shows.  Pure: no I/O.

Every reply contains the incarnation anyway.  So each caller notices at no cost when an operator has given Redis to
another database, or another database has taken the place of the one that Redis belongs to.
"""

from __future__ import annotations

from sessioncache.errors import ConfigurationError

INSTALLATION = "installation"
"""The name under which both tiers record the id of the installation."""
TAKEN = "this Redis belongs to another database: give it a prefix of its own, or the database it was used with"

_MARK = "."
_LENGTH = 6


def tag_of(installation: str) -> str:
    """What the incarnations of an installation end with; empty where that is not known."""
    return _MARK + installation[:_LENGTH] if installation else ""


def check_owner(incarnation: str, installation: str) -> None:
    """ConfigurationError where an incarnation belongs to another database than that of an installation."""
    _, marked, tag = incarnation.partition(_MARK)
    if marked and installation and tag != installation[:_LENGTH]:
        raise ConfigurationError(
            "this Redis belongs to another database by now: nothing is flushed to this one. Use the database that it"
            " belongs to, or give Redis a prefix of its own (see `sessioncache db adopt`)"
        )
