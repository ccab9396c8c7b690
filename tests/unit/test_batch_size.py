"""How many rows one transaction gets."""

from __future__ import annotations

from sessioncache_worker.batch_size import BatchSize


def test_a_quick_database_gets_as_many_rows_as_the_settings_allow() -> None:
    pace = BatchSize(1_000, slow=2.0)
    pace.took(1_000, 0.01)
    assert pace.rows == 1_000


def test_a_slow_batch_halves_the_next_ones() -> None:
    pace = BatchSize(1_000, slow=2.0)
    pace.took(1_000, 2.1)
    assert pace.rows == 500


def test_a_failure_halves_the_next_batches_down_to_a_least() -> None:
    pace = BatchSize(1_000, slow=2.0)
    for _ in range(20):
        pace.failed()
    assert pace.rows == 50


def test_fewer_rows_than_the_least_stay_as_the_settings_say() -> None:
    pace = BatchSize(7, slow=2.0)
    pace.failed()
    assert pace.rows == 7


def test_batches_grow_again_when_full_ones_are_quick() -> None:
    pace = BatchSize(1_000, slow=2.0)
    pace.failed()
    pace.failed()
    pace.took(250, 0.1)
    pace.took(500, 0.1)
    assert pace.rows == 1_000
    pace.took(1_000, 0.1)
    assert pace.rows == 1_000


def test_batches_that_are_not_full_or_not_quick_leave_the_pace_alone() -> None:
    pace = BatchSize(1_000, slow=2.0)
    pace.failed()
    pace.took(100, 0.1)
    pace.took(500, 1.0)
    assert pace.rows == 500
