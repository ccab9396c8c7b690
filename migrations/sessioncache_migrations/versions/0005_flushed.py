"""What a head was flushed through, and a record of each namespace, so that a database that comes back older shows it.

No head is rewritten: NULL means its revision.  Of the namespaces that there are, all that their session's head knew
counts as flushed.
A namespace's rows live from the birth of its session on, whatever was cleared of the session's own keys since.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_HEADS = ("session", "user_scope", "app_scope")
_OF_A_SPACE = "CASE WHEN e.namespace = '' THEN h.cleared ELSE h.birth - 1 END"
_FILL = """
INSERT INTO sessioncache_namespace (scope_id, namespace, cleared, revision, flushed_at)
    SELECT h.scope_id, e.namespace, 0, h.revision, h.flushed_at FROM sessioncache_session h
    JOIN (SELECT DISTINCT scope_id, namespace FROM sessioncache_state WHERE namespace <> '') e
    ON e.scope_id = h.scope_id
"""


def upgrade() -> None:
    for name in _HEADS:
        op.add_column(f"sessioncache_{name}", sa.Column("flushed", sa.BigInteger))
    op.create_table(
        "sessioncache_namespace",
        sa.Column("scope_id", _NAME, primary_key=True, nullable=False),
        sa.Column("namespace", _NAME, primary_key=True, nullable=False),
        sa.Column("cleared", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("flushed_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.execute(_FILL)
    _view(_OF_A_SPACE)


def downgrade() -> None:
    op.execute("DROP VIEW sessioncache_entries")
    op.drop_table("sessioncache_namespace")
    for name in _HEADS:
        op.drop_column(f"sessioncache_{name}", "flushed")
    _view("h.cleared", replaced=False)


def _view(cleared: str, *, replaced: bool = True) -> None:
    if replaced:
        op.execute("DROP VIEW sessioncache_entries")
    op.execute(
        f"""
CREATE VIEW sessioncache_entries AS
    SELECT h.org, h.app, h.user_id AS user_id, h.session_id AS session_id, 'session' AS scope,
        e.namespace, e.key, e.value, e.revision, e.updated_at
    FROM sessioncache_state e JOIN sessioncache_session h ON h.scope_id = e.scope_id
    WHERE NOT e.deleted AND NOT h.deleted AND e.revision > {cleared}
    UNION ALL
    SELECT h.org, h.app, h.user_id AS user_id, NULL AS session_id, 'user' AS scope,
        e.namespace, e.key, e.value, e.revision, e.updated_at
    FROM sessioncache_state e JOIN sessioncache_user_scope h ON h.scope_id = e.scope_id
    WHERE NOT e.deleted AND NOT h.deleted AND e.revision > h.cleared
    UNION ALL
    SELECT h.org, h.app, NULL AS user_id, NULL AS session_id, 'app' AS scope,
        e.namespace, e.key, e.value, e.revision, e.updated_at
    FROM sessioncache_state e JOIN sessioncache_app_scope h ON h.scope_id = e.scope_id
    WHERE NOT e.deleted AND NOT h.deleted AND e.revision > h.cleared
"""
    )
