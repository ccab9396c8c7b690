"""The catalogue of mutations: each quotes its guard as it stands, so that none is stale when they are tried."""

from __future__ import annotations

from collections import Counter

from tests.conftest import ROOT
from tests.mutants.catalogue import MUTATIONS


def test_each_guard_is_in_its_file_exactly_once() -> None:
    assert [one.name for one in MUTATIONS if (ROOT / one.file).read_text().count(one.find) != 1] == []


def test_no_name_is_given_twice() -> None:
    assert [name for name, count in Counter(one.name for one in MUTATIONS).items() if count > 1] == []
