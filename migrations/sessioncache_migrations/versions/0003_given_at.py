"""The time that a caller gave with a value: a column that is NULL for all that is there, so that no row is rewritten.

`updated_at` cannot hold it: it is the time of the flush, by which tombstones are purged.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sessioncache_migrations.locks import execute_soon

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_TABLE = "sessioncache_state"


def upgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        op.add_column(_TABLE, sa.Column("given_at", sa.BigInteger))
        return
    with op.get_context().autocommit_block():
        execute_soon(f"ALTER TABLE {_TABLE} ADD COLUMN IF NOT EXISTS given_at BIGINT", locks=_TABLE)


def downgrade() -> None:
    op.drop_column(_TABLE, "given_at")
