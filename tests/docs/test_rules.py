"""The page of the rules is whole: what is cited is defined, what is defined is named by tests, and its files exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import ROOT

_CITED = re.compile(r"\bR([1-9]\d?)\b")
_NAMED_BY_A_TEST = re.compile(r"(?:def test_r|\bR)([1-9]\d?)(?=_|\b)")
_FOLDERS = ("sessioncache", "workers", "migrations", "tests", "docs", "benchmarks", "deploy")


def page() -> str:
    return (ROOT / "docs" / "rules.md").read_text()


def defined() -> list[int]:
    return [int(number) for number in re.findall(r"^### R(\d+) ", page(), re.MULTILINE)]


def sources(*folders: str) -> list[Path]:
    return [
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".lua", ".md") and "__pycache__" not in path.parts
    ]


def test_the_rules_are_defined_in_order_each_once() -> None:
    assert defined() == list(range(1, len(defined()) + 1))


def test_every_rule_that_is_cited_is_defined() -> None:
    files = [*sources(*_FOLDERS), *ROOT.glob("*.md")]
    undefined = {
        f"{path.relative_to(ROOT)}: R{number}"
        for path in files
        for number in _CITED.findall(path.read_text())
        if int(number) not in defined()
    }
    assert undefined == set()


def test_every_rule_is_named_by_a_test() -> None:
    files = [path for path in sources("tests") if path.name.startswith("test_") and path != Path(__file__)]
    named = {int(number) for path in files for number in _NAMED_BY_A_TEST.findall(path.read_text())}
    assert set(defined()) - named == set()


def test_every_rule_says_why_and_where_it_is_kept() -> None:
    for section in re.split(r"^### ", page(), flags=re.MULTILINE)[1:]:
        assert "- **Why:** " in section, section
        kept = re.findall(r"`([\w/]+\.(?:py|lua))`", section.split("- **Kept by:**")[1])
        assert kept, section
        assert [file for file in kept if not (ROOT / file).is_file()] == []
