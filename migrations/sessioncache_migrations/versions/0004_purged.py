"""Up to which revision purging has taken rows out, per bucket.

A table of its own: every flush holds the rows of its fences under a lock, which purging would have to wait for, and
flushes for purging.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_TABLE = "sessioncache_purged"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("bucket", sa.Integer, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table(_TABLE)
