"""What is logged reaches those who set up logging, and nobody else."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["sessioncache", "sessioncache_worker"])
@pytest.mark.parametrize(("set_up", "told"), [("", ""), ("logging.basicConfig()", "away")])
def test_a_program_without_logging_gets_no_lines_on_its_terminal(package: str, set_up: str, told: str) -> None:
    code = f"import logging, {package}\n{set_up}\nlogging.getLogger('{package}.tiers').warning('away')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert told in done.stderr
    assert bool(done.stderr) == bool(told)
