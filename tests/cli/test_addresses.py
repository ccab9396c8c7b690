"""URLs are shown without anything that may be a password."""

from __future__ import annotations

import pytest

from sessioncache.cli.printing import plain
from sessioncache.primitives.urls import shown_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:secret@host:1/0", "redis://:***@host:1/0"),
        ("rediss://ada:secret@host", "rediss://ada:***@host"),
        ("redis://secret@host", "redis://***@host"),
        ("redis://ada:a/secret#c@d@host:1/0", "redis://ada:***@host:1/0"),
        ("redis://ada:secret?b@host:1/0", "redis://***"),
        ("redis://host/0?password=secret", "redis://host/0?password=***"),
        ("redis://host/0?password=a@secret", "redis://***"),
        ("unix:///a/b.sock?db=1&password=secret", "unix:///a/b.sock?db=1&password=***"),
        ("postgresql://ada:secret@/name?host=/run&sslkey=secret", "postgresql://ada:***@/name?host=/run&sslkey=***"),
        ("sqlite:///folder/state.db", "sqlite:///folder/state.db"),
        ("sqlite:///folder@home/state.db", "sqlite:///folder@home/state.db"),
        ("secret", "***"),
    ],
)
def test_a_url_is_shown_without_passwords(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Grüße 日本語 \u3000 👩\u200d👧", "Grüße 日本語 \u3000 👩\u200d👧"),
        ("\x1b]0;x\x07\r\n\t\x7f\x9b", r"\x1b]0;x\x07\r\n\t\x7f\x9b"),
        ("\u202e\u2066\u200f\u2028\ufeff", r"\u202e\u2066\u200f\u2028\ufeff"),
        ("\ud800", r"\ud800"),
    ],
)
def test_text_is_shown_without_control_characters(text: str, shown: str) -> None:
    assert plain(text) == shown
