"""Indexes for lists by creation, and for lists of a whole org.

On a large table they take a while to build; writers wait meanwhile, and what they wait with stays in Redis.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_TABLE = "sessioncache_session"
_INDEXES = {
    "user_created": ("user_scope_id", "birth"),
    "app_created": ("app_scope_id", "birth"),
    "org": ("org", "updated"),
    "org_created": ("org", "birth"),
    "org_user": ("org", "user_id", "updated"),
}


def upgrade() -> None:
    living = ~sa.column("deleted", sa.Boolean)
    for name, (*owner, instant) in _INDEXES.items():
        columns: list[Any] = [*owner, sa.column(instant).desc()]
        op.create_index(f"{_TABLE}_by_{name}", _TABLE, columns, postgresql_where=living, sqlite_where=living)


def downgrade() -> None:
    for name in _INDEXES:
        op.drop_index(f"{_TABLE}_by_{name}", _TABLE)
