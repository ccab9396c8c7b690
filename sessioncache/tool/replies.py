"""Replies: what the agent tool answers to a model.  Pure: no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sessioncache.errors import (
    BackPressureError,
    DamagedValueError,
    DurableTierUnavailableError,
    HotTierUnavailableError,
    InvalidNameError,
    InvalidValueError,
    LimitExceededError,
    MemoryFullError,
    OutcomeUnknownError,
    SessionCacheError,
    SessionNotFoundError,
    StaleSessionError,
)
from sessioncache.primitives.values import encode_value

_AWAY = "the state is out of reach for the moment; nothing was done: try again later"
_ITS_OWN = (InvalidNameError, InvalidValueError, LimitExceededError)
"""Errors that the model made itself; the messages speak of its arguments only."""
_TOLD: Mapping[type[SessionCacheError], str] = {
    SessionNotFoundError: "this session does not exist any more",
    HotTierUnavailableError: _AWAY,
    DurableTierUnavailableError: _AWAY,
    MemoryFullError: "there is no room for more at the moment; nothing was written: try again later",
    BackPressureError: "nothing can be written at the moment: try again later",
    OutcomeUnknownError: "it is not known whether this was done: look at what there is before you try again",
    DamagedValueError: "what is stored under this key cannot be read: set it again, or delete it",
    StaleSessionError: "nothing can be written at the moment: try again in a minute",
}
"""Errors of the machinery: their messages may name servers, which are not for models."""


def explanation(error: SessionCacheError) -> str | None:
    """How an error is explained to a model; None if the model can do nothing about it, and the program has to handle
    it."""
    if isinstance(error, _ITS_OWN):
        return str(error)
    if isinstance(error, DamagedValueError) and error.scope:
        return _AWAY
    return next((told for kind, told in _TOLD.items() if isinstance(error, kind)), None)


def shown(value: Any) -> str:
    """A stored value: a text as it is, anything else as its JSON text."""
    return value if type(value) is str else encode_value("value", value).decode()


def as_text(reply: Mapping[str, Any]) -> str:
    """A reply as JSON text, which every encoding can carry: with lone surrogates, ASCII only."""
    text = json.dumps(reply, ensure_ascii=False)
    return text if is_encodable(text) else json.dumps(reply)


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can encode it: it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
