"""What one value is called: a cell is what one actor alone writes, and its values are numbers that are used once.

``a|KEY``, ``u|USER|KEY``, ``s|USER|ID|LIFE|KEY`` or the life itself, ``s|USER|ID``; a key of a namespace is
``NAMESPACE/KEY``, the title ``#title``, the counter of messages ``#messages``; what must not be has a cell, too:
``#tokens`` that do not fit the messages, and ``KEY#misdated``.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.chaos.cast import SPACE

TITLE, MESSAGES, TOKENS, MISDATED = "#title", "#messages", "#tokens", "#misdated"
TOKENS_A_MESSAGE = 7
RECORDS_FROM = datetime(2300, 1, 1, tzinfo=UTC)
"""Every record is of a later time: so later than any other write, and where a number has no room for microseconds."""


def life_cell(user: str, session: str) -> str:
    """Which life a session lives."""
    return f"s|{user}|{session}"


def private_cell(user: str, session: str, life: int, key: str) -> str:
    """What is private to one life of a session."""
    return f"{life_cell(user, session)}|{life}|{key}"


def space_key(key: str) -> str:
    """The name of a key of the namespace."""
    return f"{SPACE}/{key}"


def title_of(number: int) -> str:
    """The title that bears a number."""
    return f"title {number}"


def head_cells(cell: str, title: str, messages: int, tokens: int) -> dict[str, Any]:
    """The cells of a head, under that of its life; tokens are told only where they do not fit the messages."""
    cells: dict[str, Any] = {f"{cell}|{MESSAGES}": messages} if messages else {}
    if title:
        cells[f"{cell}|{TITLE}"] = int(title.rsplit(" ", 1)[1])
    if tokens != TOKENS_A_MESSAGE * messages:
        cells[f"{cell}|{TOKENS}"] = tokens
    return cells


def value_of(number: int, chance: random.Random) -> dict[str, Any]:
    """A value that bears a number."""
    return {"n": number, "pad": "x" * chance.choice([0, 10, 200, 2000])}


def record_of(number: int, at: int, chance: random.Random) -> dict[str, Any]:
    """The value of a record that bears a number; `at`: the number of its time."""
    return value_of(number, chance) | {"at": at}


def time_of(at: int) -> datetime:
    """The time that is given with a record."""
    return RECORDS_FROM + timedelta(microseconds=at)


def is_misdated(value: Any, at: datetime | None) -> bool:
    """Whether a value is not of the time that it says it was given; None, or a time before all records': of none."""
    told = at if at is not None and at >= RECORDS_FROM else None
    return told != (time_of(value["at"]) if isinstance(value, dict) and "at" in value else None)


def number_of(value: Any) -> Any:
    """What the journal knows a value by."""
    return value["n"] if isinstance(value, dict) else value
