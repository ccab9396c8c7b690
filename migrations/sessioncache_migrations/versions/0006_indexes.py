"""Indexes of rows and of heads; on PostgreSQL they are built beside those who write.

Of rows: of what lives in a scope, and of what was deleted of it, so that neither is read for the other's sake, nor a
namespace for another's.  Of heads: for lists of a user in all apps by creation, and for the tombstones of a user.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_STATE, _SESSION = "sessioncache_state", "sessioncache_session"
_DELETED = sa.column("deleted", sa.Boolean)
_INDEXES: dict[str, tuple[str, list[Any], Any]] = {
    f"{_STATE}_living": (_STATE, ["scope_id", "namespace"], ~_DELETED),
    f"{_STATE}_deleted": (_STATE, ["scope_id", "revision"], _DELETED),
    f"{_SESSION}_by_org_user_created": (_SESSION, ["org", "user_id", sa.column("birth").desc()], ~_DELETED),
    f"{_SESSION}_dead_by_user": (_SESSION, ["user_scope_id", "scope_id"], _DELETED),
}


def upgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        for name, (table, columns, which) in _INDEXES.items():
            op.create_index(name, table, columns, sqlite_where=which)
        return
    with op.get_context().autocommit_block():
        for name, (table, columns, which) in _INDEXES.items():
            _build(name, table, columns, which)


def downgrade() -> None:
    for name, (table, _, _) in _INDEXES.items():
        op.drop_index(name, table)


def _build(name: str, table: str, columns: list[Any], which: Any) -> None:
    """Build an index while others write, unless an upgrade that broke off later has done so."""
    valid = sa.text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)")
    if op.get_bind().execute(valid, {"name": name}).scalar():
        return
    op.drop_index(name, table, if_exists=True, postgresql_concurrently=True)
    op.create_index(name, table, columns, postgresql_concurrently=True, postgresql_where=which)
