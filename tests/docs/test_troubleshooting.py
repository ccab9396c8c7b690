"""The messages that the guide to troubleshooting quotes are those of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sessioncache
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
_QUOTED = re.compile(r"`([^`]+)`")
_NAMES = {"oldest dirty"}
"""Findings of doctor that are named, not quoted."""


def symptoms() -> list[str]:
    """What is quoted in the first column of the tables."""
    rows = [line.split(" | ")[0] for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return sorted({quoted for row in rows if "says" not in row for quoted in _QUOTED.findall(row)} - _NAMES)


def _texts(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@pytest.fixture(scope="module")
def spoken() -> str:
    """All texts of the code."""
    return "\0".join(text for name in ("sessioncache", "workers") for text in _texts(ROOT / name))


@pytest.mark.parametrize("symptom", symptoms())
def test_every_quoted_message_is_one_of_the_code(symptom: str, spoken: str) -> None:
    assert symptom in spoken or hasattr(sessioncache, symptom)


def test_most_errors_have_a_row() -> None:
    assert len([symptom for symptom in symptoms() if symptom.endswith("Error")]) >= 18
