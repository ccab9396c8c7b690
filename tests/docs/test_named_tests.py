"""What the documents say of tests is true: every test that they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")

_LINK = re.compile(r"\]\((?!\w+:)([^)#]*)#?([^)]*)\)")


def named_tests(document: Path) -> list[tuple[str, str]]:
    return _NAMED.findall(document.read_text())


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_test_that_a_document_names_exists(document: Path) -> None:
    missing = [
        f"{file}::{name}"
        for file, name in named_tests(document)
        if not (ROOT / file).is_file() or (name and f"def {name}(" not in (ROOT / file).read_text())
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    dead = []
    for file, heading in _LINK.findall(document.read_text()):
        target = (document.parent / file).resolve() if file else document
        if not target.exists() or (heading and heading not in headings(target)):
            dead.append(f"{file}#{heading}")
    assert dead == []


def headings(document: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_each_row_of_the_table_of_features_names_a_test() -> None:
    table = (ROOT / "README.md").read_text().split("## Features")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 13
    assert [row for row in rows if not _NAMED.search(row)] == []


def test_each_guarantee_names_a_test() -> None:
    assert len(named_tests(ROOT / "docs" / "guarantees.md")) >= 15
