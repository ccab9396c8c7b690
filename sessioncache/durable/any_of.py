"""Conditions that a column has one of many values, as one parameter.

A statement with a parameter for each value is compiled, and planned by the database, anew for every number of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import BigInteger, Column, ColumnElement, Integer, Text, any_, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection


def among(
    connection: AsyncConnection, column: Column[Any], values: Iterable[str] | Iterable[int]
) -> ColumnElement[bool]:
    """The condition that a column of texts, or of whole numbers, has one of these values."""
    wanted = list(values)
    if connection.dialect.name == "sqlite":
        return column.in_(select(func.json_each(json.dumps(wanted)).table_valued("value").c.value))
    kind = BigInteger() if isinstance(column.type, Integer) else Text()
    return column == any_(literal(wanted, ARRAY(kind)))
