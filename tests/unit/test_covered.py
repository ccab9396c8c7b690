"""The table of coverage: sums by folder, and a total over statements and branches."""

from __future__ import annotations

from tests.covered import Covered, by_package


def _report(statements: int, run: int, branches: int, taken: int) -> dict[str, dict[str, int]]:
    return {
        "summary": {
            "num_statements": statements,
            "covered_lines": run,
            "num_branches": branches,
            "covered_branches": taken,
        }
    }


def test_files_are_summed_by_their_folder() -> None:
    files = {
        "sessioncache/cache.py": _report(10, 5, 2, 1),
        "sessioncache/hot/fields.py": _report(4, 4, 0, 0),
        "sessioncache/lease.py": _report(6, 6, 2, 2),
    }
    assert by_package(files) == {"sessioncache": Covered(16, 11, 4, 3), "sessioncache/hot": Covered(4, 4, 0, 0)}


def test_statements_and_branches_count_alike() -> None:
    assert Covered(6, 6, 4, 1).percent == 70.0


def test_a_package_without_a_statement_lacks_nothing() -> None:
    assert Covered().percent == 100.0
