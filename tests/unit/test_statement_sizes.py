"""Pieces: statements get fewer rows where the database is slow, and more again."""

from __future__ import annotations

from sessioncache.durable.statement_sizes import StatementSizes


def test_what_is_cut_is_whole_whatever_is_learnt_meanwhile() -> None:
    pieces, rows, found = StatementSizes(), list(range(5_000)), list[int]()
    for number, piece in enumerate(pieces.cut(rows)):
        found += piece
        pieces.took(len(piece), 10.0 if number % 2 else 0.1)
    assert found == rows


def test_a_slow_statement_makes_the_next_ones_as_small_as_it_was_too_slow() -> None:
    pieces = StatementSizes()
    pieces.took(1_000, 4.0)
    assert pieces.rows == 250
    pieces.took(250, 0.9)
    assert pieces.rows == 250
    pieces.took(250, 0.1)
    assert pieces.rows == 500
    pieces.took(100, 0.1)
    assert pieces.rows == 500, "a small one tells nothing"


def test_a_statement_that_failed_makes_the_next_ones_much_smaller_and_not_empty() -> None:
    pieces, sizes = StatementSizes(), list[int]()
    for _ in range(5):
        pieces.failed(0.5)
        sizes.append(pieces.rows)
    assert sizes == [250, 62, 15, 10, 10]


def test_a_statement_that_is_refused_at_once_tells_nothing_of_the_time() -> None:
    pieces = StatementSizes()
    pieces.failed(0.1)
    assert pieces.rows == 1_000
