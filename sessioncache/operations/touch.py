"""Touches: the counters and the title of a session, and that it is in use; no value is changed."""

from __future__ import annotations

from sessioncache.coordination.tiers import Tiers
from sessioncache.errors import InvalidNameError, InvalidValueError, LimitExceededError
from sessioncache.handle.refusals import raise_refusal
from sessioncache.hot.messages import Part, Refused, Touch, Written

MAX_TITLE_BYTES = 1_024
"""Longest title, in bytes of UTF-8."""
MAX_COUNT = 10**12
"""Most messages or tokens that one touch adds."""


async def touch(tiers: Tiers, part: Part, change: Touch, lease: bytes = b"") -> tuple[Written, dict[bytes, bytes]]:
    """Touch a session of the part's life, or of any; the write, and the head fields that lists show.

    Gone; StaleLeaseError where `lease` was lost; LimitExceededError.
    """

    async def attempt() -> tuple[Written | Refused, dict[bytes, bytes]]:
        await tiers.back_pressure.admit()
        return await tiers.hot.touch(part, change, lease)

    outcome, head = await tiers.perform(attempt)
    if isinstance(outcome, Refused):
        raise_refusal(outcome.why)
        raise LimitExceededError("a counter would have more than 15 digits; nothing was written")
    return outcome, head


def counting(messages: int, tokens: int, first_message: str | None) -> Touch:
    """A touch with these counters; its title is derived from the first message.  InvalidValueError,
    LimitExceededError."""
    for name, count in (("messages", messages), ("tokens", tokens)):
        kind = type(count).__name__
        if type(count) is not int or count < 0:
            told = "negative" if type(count) is int else f"of type {kind}"
            raise InvalidValueError(f"{name} is {told}, it must be a whole number from 0", path=name, type_name=kind)
        if count > MAX_COUNT:
            raise LimitExceededError(f"{name} must be at most {MAX_COUNT} at once")
    if first_message is None:
        return Touch(messages, tokens)
    if type(first_message) is not str:
        kind = type(first_message).__name__
        raise InvalidValueError(f"first_message is of type {kind}, not str", path="first_message", type_name=kind)
    from sessioncache.primitives.titles import derive_title

    return Touch(messages, tokens, derive_title(first_message))


def check_title(title: object) -> str:
    """The title, if it can be used.  InvalidNameError, LimitExceededError."""
    if type(title) is not str:
        raise InvalidNameError(f"a title must be a str, not {type(title).__name__}")
    try:
        size = len(title.encode())
    except UnicodeEncodeError:
        raise InvalidNameError("the title contains a lone surrogate, which no database can store") from None
    if "\0" in title:
        raise InvalidNameError("the title contains a NUL character")
    if size > MAX_TITLE_BYTES:
        raise LimitExceededError(f"the title has {size} bytes of UTF-8, at most {MAX_TITLE_BYTES} are allowed")
    return title
