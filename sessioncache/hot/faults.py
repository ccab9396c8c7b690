"""What goes wrong with Redis: what an error of the client or of the server means for the caller.

Messages name the cause in words of ours, never in the server's: its text may quote arguments, which are state.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
from collections.abc import Iterator

from redis.exceptions import (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from sessioncache.errors import ConfigurationError, HotTierUnavailableError, MemoryFullError, SessionCacheError

logger = logging.getLogger(__name__)

_NOT_EXECUTED = "not executed"
_UNANSWERED = "unanswered"
_REFUSING_ALL = (ClusterDownError, MasterDownError, ReadOnlyError, TryAgainError, NoScriptError)
_ACL = "see the access list in the guide to servers"
# How the two engines name what an access list forbids: a command, or the kind of thing that a command was on.
_COMMAND = re.compile(r"the '([A-Za-z|_.-]{1,40})' command")
_FORBIDDEN = {"channel": "one of the channels", "key": "one of the keys"}
_IN_SCRIPT = ("The user executing the script can't", "ACL failure in script")


def not_executed(told: str) -> HotTierUnavailableError:
    """Redis certainly did not execute the command: it may be repeated whatever it is."""
    return HotTierUnavailableError(told, _fate=_NOT_EXECUTED)


def unanswered(told: str) -> HotTierUnavailableError:
    """The command was sent and no answer came: it may have been executed."""
    return HotTierUnavailableError(told, _fate=_UNANSWERED)


def is_not_executed(error: BaseException) -> bool:
    """Whether an error is one of `not_executed`."""
    return isinstance(error, HotTierUnavailableError) and error._fate == _NOT_EXECUTED


def is_unanswered(error: BaseException) -> bool:
    """Whether an error is one of `unanswered`."""
    return isinstance(error, HotTierUnavailableError) and error._fate == _UNANSWERED


def is_repeatable(error: BaseException) -> bool:
    """Whether it is one of either: what has no effect, or an operation id, may be sent again."""
    return is_not_executed(error) or is_unanswered(error)


def explain(error: ResponseError) -> SessionCacheError:
    """What an error reply of Redis means for the caller."""
    if isinstance(error, OutOfMemoryError):
        return MemoryFullError("Redis is out of memory and refuses writes; reads, deletes and flushing work on")
    if isinstance(error, ReadOnlyError):
        return not_executed("this Redis is a replica, which takes no writes")
    word = str(error).split(" ", 1)[0][:40]
    if isinstance(error, _REFUSING_ALL) or word in {"BUSY", "MISCONF", "NOREPLICAS", "LOADING"}:
        return not_executed(f"Redis cannot execute commands now ({type(error).__name__}: {word})")
    forbidden = forbidden_by(error)
    if forbidden:
        return HotTierUnavailableError(f"{forbidden}: {_ACL}")
    logger.error("Redis refused a command: %s", type(error).__name__)
    # The text of such an error may quote arguments, which are state: only its first word is told.
    return HotTierUnavailableError(f"Redis refused a command ({type(error).__name__}: {word})")


def forbidden_by(error: ResponseError) -> str:
    """What an access list of the server denies the user (NOPERM), in words of ours; empty for another error."""
    text = str(error)
    if not isinstance(error, NoPermissionError) and not text.startswith(_IN_SCRIPT):
        return ""
    command = _COMMAND.search(text)
    if command:
        return f"NOPERM: the Redis user may not run the command {command[1].upper()}"
    what = next((ours for theirs, ours in _FORBIDDEN.items() if theirs in text), "a command that our scripts use")
    return f"NOPERM: the Redis user may not use {what}"


def connection_failure(error: Exception, *, is_tls: bool) -> SessionCacheError:
    """What it means that a connection did not come about: ConfigurationError where waiting does not help."""
    chain = list(_chain(error))
    for cause in chain:
        if isinstance(cause, (AuthenticationError, AuthenticationWrongNumberOfArgsError)):
            return ConfigurationError(_login(str(cause)))
        if isinstance(cause, ResponseError) and "DB index" in str(cause):
            return ConfigurationError("the Redis URL names a database (by its number) that the server does not have")
        if isinstance(cause, ResponseError) and forbidden_by(cause):
            return ConfigurationError(f"{forbidden_by(cause)}: {_ACL}")
    why = next(filter(None, (_saying(cause, is_tls=is_tls) for cause in reversed(chain))), type(error).__name__)
    return not_executed(f"Redis cannot be reached: {why}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came of: over a Unix socket redis-py hides everything in a ConnectionError."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _login(text: str) -> str:
    if "HELLO must be called" in text or "Authentication required" in text:
        return "Redis asks for a password, and the URL has none"
    return "Redis refuses the user name or password of the URL"


def _saying(cause: BaseException, *, is_tls: bool) -> str:
    """The cause in words of ours; empty where its class is all that we can say."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        return "its TLS certificate is not trusted here, out of date, or for another name (SSLCertVerificationError)"
    if isinstance(cause, ssl.SSLError):
        return "no TLS comes about with it: is rediss:// right? (SSLError)"
    if isinstance(cause, ConnectionRefusedError):
        return "nobody listens there (ConnectionRefusedError)"
    if isinstance(cause, FileNotFoundError):
        return f"{'a file of certificates is missing' if is_tls else 'nobody listens there'} (FileNotFoundError)"
    if isinstance(cause, socket.gaierror):
        return "its host name cannot be resolved (gaierror)"
    if isinstance(cause, (ConnectionResetError, EOFError)):
        return "it ended the connection at once: does it ask for TLS, rediss://? (ConnectionResetError)"
    if isinstance(cause, TimeoutError) and is_tls:
        return "no TLS came about with it in time: is rediss:// right? (TimeoutError)"
    return "no answer in time (TimeoutError)" if isinstance(cause, TimeoutError) else ""
