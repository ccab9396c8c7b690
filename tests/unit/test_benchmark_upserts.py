"""The floors of the flush benchmark upsert rows of the shape that the tables have."""

from __future__ import annotations

from benchmarks.upserts import TABLES, columns_of, make_batch


def test_a_batch_for_the_floors_has_a_value_for_each_column_of_its_table() -> None:
    batch = make_batch(range(1), 1, '"x"', 7)
    for table, rows in zip(TABLES, batch, strict=True):
        assert {len(row) for row in rows} == {len(columns_of(table))}
        (row,) = rows
        for name, value in zip(columns_of(table), row, strict=True):
            kind = table.table.c[name].type.python_type
            assert isinstance(value, kind) or (value is None and table.table.c[name].nullable), name
