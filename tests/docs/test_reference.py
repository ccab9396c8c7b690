"""The reference says what the docstrings say."""

from __future__ import annotations

import pytest

import sessioncache
from docs.reference import FOLDER, pages
from sessioncache import errors


def test_the_reference_is_not_stale() -> None:
    written = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert written == pages(), "run: python docs/reference.py"


@pytest.mark.parametrize("name", sessioncache.__all__)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    if name == errors.SessionCacheError.__name__:
        return
    is_error = isinstance(getattr(errors, name, None), type)
    text = (FOLDER / ("errors.md" if is_error else "sessions.md")).read_text()
    assert (f"\n| `{name}` |" if is_error else f"\n## {name}\n") in text


def test_every_attribute_and_setting_is_explained() -> None:
    """An empty cell is a docstring that is missing."""
    lines = [
        line
        for name in ("sessions.md", "settings.md", "command-line.md")
        for line in (FOLDER / name).read_text().splitlines()
    ]
    assert [line for line in lines if line.endswith("| |")] == []
