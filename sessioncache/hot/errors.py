"""Faults of Redis: what an error of the client or of the server means for the caller.

Messages name the cause in our own words, never in the server's: its text may quote arguments, which are state.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
from collections.abc import Iterator, Sequence

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    BusyLoadingError,
    ClusterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from sessioncache.errors import (
    ConfigurationError,
    DamagedValueError,
    HotTierUnavailableError,
    MemoryFullError,
    SessionCacheError,
)
from sessioncache.hot.messages import Damaged

logger = logging.getLogger(__name__)

_NOT_EXECUTED = "not executed"
_UNANSWERED = "unanswered"
_REFUSED = "refused"
_FORBIDDEN = "forbidden"
_AT_REPLICA = "at a replica"
ELSEWHERE = (RedisConnectionError, ReadOnlyError, ClusterDownError, AskError)
"""Errors that say that this server serves nobody, or not us: MASTERDOWN and MOVED are among them."""
_REFUSING_ALL = (ClusterDownError, AskError, TryAgainError, NoScriptError)
_REFUSING_WRITES = {
    "MISCONF": "since its last snapshot failed (MISCONF): see the server's log, and whether its disk is full",
    "NOREPLICAS": "since fewer replicas follow it than min-replicas-to-write asks for (NOREPLICAS)",
}
_OF_ANOTHER_TYPE = Damaged("a key of it in Redis is of another type than it should be (WRONGTYPE)")
_OF_NO_USE = Damaged("a field of its head in Redis is not what it should be")
_FEW = 4
"""Attempts, over some hundredths of a second, at a replica: the address may lead to the primary in a moment."""
_ACL = "see the access list in the guide to servers"
# How the two engines name what an access list forbids: a command, or the kind of thing that a command was on.
_COMMAND = re.compile(r"the '([A-Za-z|_.-]{1,40})' command")
_DENIED = {"channel": "one of the channels", "key": "one of the keys"}
_IN_SCRIPT = ("The user executing the script can't", "ACL failure in script")


def not_executed(told: str) -> HotTierUnavailableError:
    """Redis certainly did not execute the command: it may be repeated whatever it is."""
    return HotTierUnavailableError(told, _fate=_NOT_EXECUTED)


def unanswered(told: str) -> HotTierUnavailableError:
    """The command was sent and no answer came: it may have been executed."""
    return HotTierUnavailableError(told, _fate=_UNANSWERED)


def is_not_executed(error: BaseException) -> bool:
    """Whether an error says that Redis certainly did nothing: one of `not_executed`, or a refusal."""
    return isinstance(error, HotTierUnavailableError) and error._fate in (_NOT_EXECUTED, _REFUSED, _AT_REPLICA)


def is_final(error: BaseException | None, tries: int) -> bool:
    """Whether Redis refuses something for as long as it stays as it is: more than `tries` attempts are of no use."""
    if not isinstance(error, HotTierUnavailableError):
        return False
    return error._fate == _REFUSED or (error._fate == _AT_REPLICA and tries >= _FEW)


def is_unanswered(error: BaseException) -> bool:
    """Whether an error is one of `unanswered`."""
    return isinstance(error, HotTierUnavailableError) and error._fate == _UNANSWERED


def is_forbidden(error: BaseException) -> bool:
    """Whether an error is one of the server's access list (NOPERM)."""
    return isinstance(error, HotTierUnavailableError) and error._fate == _FORBIDDEN


def is_repeatable(error: BaseException) -> bool:
    """Whether it is one of either: what has no effect, or an idempotency key, may be sent again."""
    return is_not_executed(error) or is_unanswered(error)


def damage_of(error: ResponseError) -> Damaged | None:
    """What an error reply says about the scopes that the command was for; None: nothing.

    A script of ours fails by itself ("user_script") only where it finds what it never writes.
    """
    text = str(error)
    if text.startswith("WRONGTYPE"):
        return _OF_ANOTHER_TYPE
    return _OF_NO_USE if text.startswith("user_script:") else None


def damaged(damage: Damaged, scopes: Sequence[str], session_id: str = "") -> DamagedValueError:
    """The error for damage to one of some scopes."""
    whose = f" of the session {session_id!r}" if session_id else ""
    return DamagedValueError(
        f"what Redis holds of the scope {' or '.join(scopes)}{whose} is damaged: {damage.cause}; "
        "without its keys in Redis it is as the database has it",
        key="",
        session_id=session_id,
        scope=" or ".join(scopes),
    )


def explain(error: ResponseError, scopes: Sequence[str] = ()) -> SessionCacheError:
    """What an error reply of Redis means for the caller; `scopes`: what the command was for."""
    if isinstance(error, OutOfMemoryError):
        return MemoryFullError("Redis is out of memory and refuses writes; reads, deletes and flushing work on")
    if isinstance(error, ReadOnlyError):
        return HotTierUnavailableError("this Redis is a replica, which takes no writes", _fate=_AT_REPLICA)
    # An error reply begins with a word in capitals for its kind.
    word = str(error).split(" ", 1)[0][:40]
    if word in _REFUSING_WRITES:
        told = f"Redis refuses writes, {_REFUSING_WRITES[word]}; what is hot can be read"
        return HotTierUnavailableError(told, _fate=_REFUSED)
    if isinstance(error, _REFUSING_ALL) or word == "BUSY":
        return not_executed(f"Redis cannot execute commands now ({type(error).__name__}: {word})")
    forbidden = forbidden_by(error)
    if forbidden:
        return HotTierUnavailableError(f"{forbidden}: {_ACL}", _fate=_FORBIDDEN)
    damage = damage_of(error)
    if damage and scopes:
        return damaged(damage, scopes)
    logger.error("Redis refused a command: %s", type(error).__name__)
    # The text of such an error may quote arguments, which are state: only its first word is passed on.
    return HotTierUnavailableError(f"Redis refused a command ({type(error).__name__}: {word})")


def not_served(error: RedisConnectionError) -> HotTierUnavailableError:
    """The error for a reply that redis-py counts as one of the connection: the command was not executed."""
    if isinstance(error, BusyLoadingError):
        return not_executed("Redis is loading its data")
    if isinstance(error, AuthenticationError):
        return not_executed("Redis asks for the password again")
    return not_executed(f"Redis does not serve this connection ({type(error).__name__})")


def forbidden_by(error: ResponseError) -> str:
    """What an access list of the server denies the user (NOPERM), in our own words; empty for another error."""
    text = str(error)
    if not isinstance(error, NoPermissionError) and not text.startswith(_IN_SCRIPT):
        return ""
    command = _COMMAND.search(text)
    if command:
        return f"NOPERM: the Redis user may not run the command {command[1].upper()}"
    what = next((ours for theirs, ours in _DENIED.items() if theirs in text), "a command that our scripts use")
    return f"NOPERM: the Redis user may not use {what}"


def connection_failure(error: Exception, *, is_tls: bool) -> SessionCacheError:
    """What it means that a connection could not be made: ConfigurationError where waiting does not help."""
    chain = list(_chain(error))
    for cause in chain:
        if isinstance(cause, (AuthenticationError, AuthenticationWrongNumberOfArgsError)):
            return ConfigurationError(_login(str(cause)), _login=True)
        if isinstance(cause, ResponseError) and "DB index" in str(cause):
            return ConfigurationError("the Redis URL names a database (by its number) that the server does not have")
        if isinstance(cause, ResponseError) and forbidden_by(cause):
            return ConfigurationError(f"{forbidden_by(cause)}: {_ACL}")
    # The innermost cause that we have words for: the outer errors are redis-py's, and say less.
    why = next(filter(None, (_saying(cause, is_tls=is_tls) for cause in reversed(chain))), type(error).__name__)
    return not_executed(f"Redis cannot be reached: {why}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes: over a Unix socket redis-py hides everything in a ConnectionError."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _login(text: str) -> str:
    if "HELLO must be called" in text or "Authentication required" in text:
        return "Redis asks for a password, and the URL has none"
    return "Redis refuses the user name or password of the URL"


def _saying(cause: BaseException, *, is_tls: bool) -> str:
    """The cause in our own words; empty where its class is all that is known."""
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
