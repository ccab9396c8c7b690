"""What a head was flushed through, and a record of each namespace, so that a database that comes back older shows it.

No head is rewritten: NULL means its revision.  Of the namespaces that there are, all that their session's head knew
counts as flushed.
A namespace's rows live from the birth of its session on, above what was cleared of its own, whatever was cleared of the
session's own keys since.

On PostgreSQL nobody is held up for long: a column, and the view, waits for its lock a second at a time, else all that
comes behind it would wait, too; and each step is a transaction of its own, which may be begun again after it was broken
off.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sessioncache_migrations.locks import execute_soon

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_HEADS = ("session", "user_scope", "app_scope")
_OF_A_SESSION = """CASE WHEN e.namespace = '' THEN h.cleared
        WHEN n.cleared >= h.birth THEN n.cleared ELSE h.birth - 1 END"""
_RECORD = "LEFT JOIN sessioncache_namespace n ON n.scope_id = e.scope_id AND n.namespace = e.namespace"
_FILL = """
INSERT INTO sessioncache_namespace (scope_id, namespace, cleared, revision, flushed_at)
    SELECT h.scope_id, e.namespace, 0, h.revision, h.flushed_at FROM sessioncache_session h
    JOIN (SELECT DISTINCT scope_id, namespace FROM sessioncache_state WHERE namespace <> '') e
    ON e.scope_id = h.scope_id
"""
_FILL_BATCH = """
WITH part AS (
    SELECT scope_id, revision, flushed_at FROM sessioncache_session
    WHERE scope_id > :after ORDER BY scope_id LIMIT :most
), filled AS (
    INSERT INTO sessioncache_namespace (scope_id, namespace, cleared, revision, flushed_at)
        SELECT DISTINCT p.scope_id, e.namespace, 0, p.revision, p.flushed_at
        FROM part p JOIN sessioncache_state e ON e.scope_id = p.scope_id WHERE e.namespace <> ''
    ON CONFLICT DO NOTHING
)
SELECT max(scope_id) FROM part
"""
_BATCH = 1000
"""Sessions of one transaction."""


def upgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        for name in _HEADS:
            op.add_column(f"sessioncache_{name}", sa.Column("flushed", sa.BigInteger))
        _create_table()
        op.execute(_FILL)
        op.execute("DROP VIEW sessioncache_entries")
        op.execute(_view("CREATE", _OF_A_SESSION, _RECORD))
    else:
        with op.get_context().autocommit_block():
            for name in _HEADS:
                table = f"sessioncache_{name}"
                execute_soon(f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS flushed BIGINT", locks=table)
            _create_table()
            _fill_by_batches()
            execute_soon(_view("CREATE OR REPLACE", _OF_A_SESSION, _RECORD), locks="sessioncache_entries")


def _create_table() -> None:
    op.create_table(
        "sessioncache_namespace",
        sa.Column("scope_id", _NAME, primary_key=True, nullable=False),
        sa.Column("namespace", _NAME, primary_key=True, nullable=False),
        sa.Column("cleared", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("flushed_at", sa.DateTime(timezone=True), nullable=False),
        if_not_exists=True,
    )


def _fill_by_batches() -> None:
    last = ""
    while last is not None:
        last = op.get_bind().execute(sa.text(_FILL_BATCH), {"after": last, "most": _BATCH}).scalar_one()


def downgrade() -> None:
    op.execute("DROP VIEW sessioncache_entries")
    op.drop_table("sessioncache_namespace")
    for name in _HEADS:
        op.drop_column(f"sessioncache_{name}", "flushed")
    op.execute(_view("CREATE", "h.cleared"))


def _view(create: str, cleared: str, record: str = "") -> str:
    return f"""
{create} VIEW sessioncache_entries AS
    SELECT h.org, h.app, h.user_id AS user_id, h.session_id AS session_id, 'session' AS scope,
        e.namespace, e.key, e.value, e.revision, e.updated_at
    FROM sessioncache_state e JOIN sessioncache_session h ON h.scope_id = e.scope_id
    {record}
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
