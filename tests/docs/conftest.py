"""Folders in which pages are followed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.running import Folders


@pytest.fixture(scope="package")
def folders() -> Iterator[Folders]:
    """Those of all tests of the package."""
    made = Folders()
    yield made
    made.close()


@pytest.fixture
def folder(folders: Folders) -> Iterator[Path]:
    """An empty folder, which is the current one."""
    with folders.empty() as path:
        yield path
