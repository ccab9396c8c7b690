"""The time that a caller gave with a value: a column that is NULL for all that is there, so that no row is rewritten.

`updated_at` cannot hold it: it is the time of the flush, by which tombstones are purged.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_TABLE = "sessioncache_state"


def upgrade() -> None:
    op.add_column(_TABLE, sa.Column("given_at", sa.BigInteger))


def downgrade() -> None:
    op.drop_column(_TABLE, "given_at")
