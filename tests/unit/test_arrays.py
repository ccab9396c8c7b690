"""Arrays in PostgreSQL's binary form: what comes back from the server is what was given."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from sessioncache.durable.arrays import ARRAYS, bigint_array, teach
from sessioncache.durable.errors import RefusedDataError

CASES: list[tuple[str, list[Any]]] = [
    ("text", ["a", "", "ß€𝄞", "x" * 100_000, "null", '{"a": "b"}', "\\", None]),
    ("text", ["one"]),
    ("bigint", [0, 1, -1, 2**63 - 1, -(2**63)]),
    ("bigint", [None, 5, None]),
    ("boolean", [True, False, None]),
]


@pytest.mark.parametrize(("kind", "values"), CASES, ids=[f"{kind}{n}" for n, (kind, _) in enumerate(CASES)])
async def test_an_array_comes_back_as_it_was_given(postgresql_url: str, kind: str, values: list[Any]) -> None:
    engine = create_async_engine(postgresql_url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        async with engine.connect() as connection:
            for _ in range(2):
                await teach(connection)
                found = await connection.exec_driver_sql(f"SELECT %b::{kind}[]", (ARRAYS[kind](values),))
                assert found.scalar_one() == values
    finally:
        await engine.dispose()


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_number_of_more_than_64_bits_is_refused_as_data(number: int) -> None:
    for values in ([1, number], [None, number]):
        with pytest.raises(RefusedDataError):
            bigint_array(values)
