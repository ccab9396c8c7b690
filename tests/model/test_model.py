"""The model test: the real code on a real server, against plain Python, over random interleavings and faults.

``MODEL_SECONDS`` is how long it runs (default 40), ``MODEL_SEED`` where it begins (printed; a failure names its own),
``MODEL_STEPS`` how many rules an example has at most; ``MODEL_SHRINK=1`` looks for the shortest example that fails.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.lab import Lab
from tests.model.machine import SessionCacheMachine

SECONDS = float(os.environ.get("MODEL_SECONDS", "40"))
SEED = int(os.environ.get("MODEL_SEED", "1"))
STEPS = int(os.environ.get("MODEL_STEPS", "40"))
SHRINK = os.environ.get("MODEL_SHRINK") == "1"
_BATCH = 10
"""Examples between two looks at the clock."""

_SETTINGS = settings(
    max_examples=_BATCH,
    stateful_step_count=STEPS,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink] if SHRINK else [Phase.generate],
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Both servers."""
    logging.disable(logging.CRITICAL)  # thousands of faults are reported
    made = Lab()
    SessionCacheMachine.lab = made
    yield made
    made.close()
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(SECONDS + 600)
def test_the_tiers_say_what_the_model_says_whatever_happens(lab: Lab) -> None:
    ends, batch = time.monotonic() + SECONDS, SEED
    while time.monotonic() < ends:
        machine = seed(batch)(type("Machine", (SessionCacheMachine,), {}))
        try:
            run_state_machine_as_test(machine, settings=_SETTINGS)
        except BaseException as error:
            error.add_note(f"MODEL_SEED={batch}, within {_BATCH} examples")
            raise
        batch += 1
    print(f"{(batch - SEED) * _BATCH} examples of up to {STEPS} rules, seeds {SEED} to {batch - 1}")
