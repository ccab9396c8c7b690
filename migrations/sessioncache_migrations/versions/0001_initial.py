"""The first schema: state, heads, fences with their history, layout, and the view of readable entries."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

_VIEW = """
CREATE VIEW sessioncache_entries AS
    SELECT h.org, h.app, h.user_id AS user_id, h.session_id AS session_id, 'session' AS scope,
        e.namespace, e.key, e.value, e.revision, e.updated_at
    FROM sessioncache_state e JOIN sessioncache_session h ON h.scope_id = e.scope_id
    WHERE NOT e.deleted AND NOT h.deleted AND e.revision > h.cleared
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


def upgrade() -> None:
    _create_state()
    _create_session()
    _create_shared("user_scope", "org", "app", "user_id")
    _create_shared("app_scope", "org", "app")
    _create_records()
    op.execute(_VIEW)


def downgrade() -> None:
    op.execute("DROP VIEW sessioncache_entries")
    for name in ("layout", "incarnation", "fence", "app_scope", "user_scope", "session", "state"):
        op.drop_table(f"sessioncache_{name}")


def _names(*names: str, key: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, _NAME, primary_key=key, nullable=False) for name in names]


def _numbers(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names]


def _flag(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean, nullable=False)


def _time(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False)


def _bucket(*, key: bool = False) -> sa.Column[Any]:
    return sa.Column("bucket", sa.Integer, primary_key=key, autoincrement=False, nullable=False)


def _create_state() -> None:
    op.create_table(
        "sessioncache_state",
        *_names("scope_id", "key_id", key=True),
        *_names("namespace", "key"),
        sa.Column("value", sa.Text, nullable=False),
        *_numbers("revision"),
        _flag("deleted"),
        _time("updated_at"),
    )


def _create_session() -> None:
    op.create_table(
        "sessioncache_session",
        *_names("scope_id", key=True),
        *_names("org", "app", "user_id", "session_id", "user_scope_id", "app_scope_id", "bare_id", "title"),
        *_numbers("birth", "updated", "cleared"),
        _flag("deleted"),
        *_numbers("revision", "values_revision", "message_count", "token_total"),
        *_names("forked_from"),
        _bucket(),
        _time("flushed_at"),
    )
    for owner in ("user", "app"):
        _index_listing(f"sessioncache_session_by_{owner}", f"{owner}_scope_id")
    op.create_index("sessioncache_session_by_bare_id", "sessioncache_session", ["bare_id"])
    _index_tombstones("state", "updated_at")
    _index_tombstones("session", "flushed_at")


def _index_tombstones(table: str, since: str) -> None:
    dead = sa.column("deleted", sa.Boolean)
    op.create_index(
        f"sessioncache_{table}_dead", f"sessioncache_{table}", [since], postgresql_where=dead, sqlite_where=dead
    )


def _index_listing(name: str, owner: str) -> None:
    living = ~sa.column("deleted", sa.Boolean)
    columns: list[Any] = [owner, sa.column("updated").desc(), "session_id"]
    op.create_index(name, "sessioncache_session", columns, postgresql_where=living, sqlite_where=living)


def _create_shared(name: str, *names: str) -> None:
    op.create_table(
        f"sessioncache_{name}",
        *_names("scope_id", key=True),
        *_names(*names),
        *_numbers("revision", "birth", "cleared"),
        _flag("deleted"),
        _bucket(),
        _time("flushed_at"),
    )


def _create_records() -> None:
    op.create_table("sessioncache_fence", _bucket(key=True), *_names("incarnation"), _time("registered_at"))
    op.create_table(
        "sessioncache_incarnation", _bucket(key=True), *_names("incarnation", key=True), _time("registered_at")
    )
    op.create_table("sessioncache_layout", *_names("name", key=True), *_names("value"))
