"""The release notes keep step with the changelog, the version and the schema."""

from __future__ import annotations

import re
import tomllib

from sessioncache.durable.migrate import head_revision
from tests.conftest import ROOT

_NOTES = (ROOT / "docs" / "releases.md").read_text()
_CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
_VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def test_every_released_version_of_the_changelog_has_notes() -> None:
    released = re.findall(r"^## (\d+\.\d+\.\d+)", _CHANGELOG, re.MULTILINE)
    assert [version for version in released if f"\n## {version}" not in _NOTES] == []


def test_changes_that_are_not_released_have_notes_that_name_the_version_before_them() -> None:
    if re.search(r"^## Unreleased\n+### ", _CHANGELOG, re.MULTILINE):
        assert f"\n## After {_VERSION} (not released yet)\n" in _NOTES


def test_the_newest_notes_name_the_schema_to_upgrade_to() -> None:
    newest = _NOTES.split("\n## ")[1]
    assert f"The schema is now {head_revision()}." in newest
