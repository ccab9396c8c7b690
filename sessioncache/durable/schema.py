"""The tables of the durable tier, as SQLAlchemy Core knows them.

The migrations make the same database; a test compares the two.  Names are compared by code point everywhere (``COLLATE
"C"`` on PostgreSQL, SQLite's own rule).  Revisions and births are microseconds; `updated_at`, `flushed_at` and
`registered_at` are the database's clock at the time of writing; `given_at` is the caller timestamp of a value, in
microseconds, NULL without one.  `flushed` is the flush watermark of a scope; NULL, in heads of earlier versions, means
`revision`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    event,
    literal_column,
)

from sessioncache.primitives.scopes import ScopeKind

SCHEMA_REVISION = "0006"
"""The newest migration."""
VERSION_TABLE = "sessioncache_alembic_version"
ENTRIES_VIEW = "sessioncache_entries"

metadata = MetaData()

_NAME = Text().with_variant(Text(collation="C"), "postgresql")


def _name(name: str, *, key: bool = False) -> Column[str]:
    return Column(name, _NAME, primary_key=key, nullable=False)


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _time(name: str) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=False)


state = Table(
    "sessioncache_state",
    metadata,
    _name("scope_id", key=True),
    _name("key_id", key=True),
    _name("namespace"),
    _name("key"),
    Column("value", Text, nullable=False),
    _number("revision"),
    Column("deleted", Boolean, nullable=False),
    _time("updated_at"),
    Column("given_at", BigInteger),
)

session = Table(
    "sessioncache_session",
    metadata,
    _name("scope_id", key=True),
    _name("org"),
    _name("app"),
    _name("user_id"),
    _name("session_id"),
    _name("user_scope_id"),
    _name("app_scope_id"),
    _name("bare_id"),
    _name("title"),
    _number("birth"),
    _number("updated"),
    _number("cleared"),
    Column("deleted", Boolean, nullable=False),
    _number("revision"),
    _number("values_revision"),
    _number("message_count"),
    _number("token_total"),
    _name("forked_from"),
    Column("bucket", Integer, nullable=False),
    _time("flushed_at"),
    Column("flushed", BigInteger),
)

user_scope = Table(
    "sessioncache_user_scope",
    metadata,
    _name("scope_id", key=True),
    _name("org"),
    _name("app"),
    _name("user_id"),
    _number("revision"),
    _number("birth"),
    _number("cleared"),
    Column("deleted", Boolean, nullable=False),
    Column("bucket", Integer, nullable=False),
    _time("flushed_at"),
    Column("flushed", BigInteger),
)

app_scope = Table(
    "sessioncache_app_scope",
    metadata,
    _name("scope_id", key=True),
    _name("org"),
    _name("app"),
    _number("revision"),
    _number("birth"),
    _number("cleared"),
    Column("deleted", Boolean, nullable=False),
    Column("bucket", Integer, nullable=False),
    _time("flushed_at"),
    Column("flushed", BigInteger),
)

namespace = Table(
    "sessioncache_namespace",
    metadata,
    _name("scope_id", key=True),
    _name("namespace", key=True),
    _number("cleared"),
    _number("revision"),
    _time("flushed_at"),
)
"""The record of a namespace, besides the head of its session: the scope revision of its last whole flush.

Its rows live from the birth of its session on, above `cleared`.
"""

fence = Table(
    "sessioncache_fence",
    metadata,
    Column("bucket", Integer, primary_key=True, autoincrement=False),
    _name("incarnation"),
    _time("registered_at"),
)

incarnation = Table(
    "sessioncache_incarnation",
    metadata,
    Column("bucket", Integer, primary_key=True, autoincrement=False),
    _name("incarnation", key=True),
    _time("registered_at"),
)

purged = Table(
    "sessioncache_purged",
    metadata,
    Column("bucket", Integer, primary_key=True, autoincrement=False),
    _number("revision"),
)
"""The largest revision that purging ever removed from a bucket (R14).

Not a column of the fence, whose rows every flush locks.
"""

layout = Table("sessioncache_layout", metadata, _name("name", key=True), _name("value"))

HEADS = {
    ScopeKind.SESSION: session,
    ScopeKind.NAMESPACE: session,
    ScopeKind.USER: user_scope,
    ScopeKind.APP: app_scope,
}
"""The table of each kind of scope's heads, in the order in which a flush takes their locks."""

for _column in ("user_scope_id", "app_scope_id"):
    Index(
        f"sessioncache_session_by_{_column.removesuffix('_scope_id')}",
        session.c[_column],
        session.c.updated.desc(),
        session.c.session_id,
        postgresql_where=~session.c.deleted,
        sqlite_where=~session.c.deleted,
    )
# Few sessions share an instant: those that do are sorted where they are read.
for _name_of, _owner, _instant in (
    ("user_created", ("user_scope_id",), "birth"),
    ("app_created", ("app_scope_id",), "birth"),
    ("org", ("org",), "updated"),
    ("org_created", ("org",), "birth"),
    ("org_user", ("org", "user_id"), "updated"),
    ("org_user_created", ("org", "user_id"), "birth"),
):
    Index(
        f"sessioncache_session_by_{_name_of}",
        *(session.c[name] for name in _owner),
        session.c[_instant].desc(),
        postgresql_where=~session.c.deleted,
        sqlite_where=~session.c.deleted,
    )
Index("sessioncache_session_by_bare_id", session.c.bare_id)
# Of a user who is to be erased.
Index(
    "sessioncache_session_dead_by_user",
    session.c.user_scope_id,
    session.c.scope_id,
    postgresql_where=session.c.deleted,
    sqlite_where=session.c.deleted,
)


def is_deleted(table: Table) -> ColumnElement[bool]:
    """That a row is deleted, in the words of the partial indexes: SQLite uses one only where a query has the same."""
    return literal_column(f"{table.name}.deleted")


# Living rows of a scope are found without its deleted ones and its namespaces, and so are lately deleted ones.
Index(
    f"{state.name}_living",
    state.c.scope_id,
    state.c.namespace,
    postgresql_where=~state.c.deleted,
    sqlite_where=~state.c.deleted,
)
Index(
    f"{state.name}_deleted",
    state.c.scope_id,
    state.c.revision,
    postgresql_where=state.c.deleted,
    sqlite_where=state.c.deleted,
)

# What is past its retention is found without reading what lives.
for _table, _since in ((state, "updated_at"), (session, "flushed_at")):
    Index(f"{_table.name}_dead", _table.c[_since], postgresql_where=_table.c.deleted, sqlite_where=_table.c.deleted)


CLEARED_OF_SPACE = "WHEN n.cleared >= h.birth THEN n.cleared ELSE h.birth - 1 END"
"""How a CASE ends with up to where a namespace is dead, of its record `n` (or none) and its session's head `h`."""
_OF_A_SESSION = f"CASE WHEN e.namespace = '' THEN h.cleared {CLEARED_OF_SPACE}"
_RECORD = """
    LEFT JOIN sessioncache_namespace n ON n.scope_id = e.scope_id AND n.namespace = e.namespace"""


def _living(kind: str, table: str, user: str, session_id: str, record: str = "", cleared: str = "h.cleared") -> str:
    return f"""
    SELECT h.org, h.app, {user} AS user_id, {session_id} AS session_id, '{kind}' AS scope,
        e.namespace, e.key, e.value, e.revision, e.updated_at
    FROM sessioncache_state e JOIN {table} h ON h.scope_id = e.scope_id{record}
    WHERE NOT e.deleted AND NOT h.deleted AND e.revision > {cleared}"""


_VIEW = f"CREATE VIEW {ENTRIES_VIEW} AS" + "\n    UNION ALL".join(
    (
        _living("session", session.name, "h.user_id", "h.session_id", _RECORD, _OF_A_SESSION),
        _living("user", user_scope.name, "h.user_id", "NULL"),
        _living("app", app_scope.name, "NULL", "NULL"),
    )
)


@event.listens_for(metadata, "after_create")
def _create_view(_metadata: MetaData, connection: Connection, **_: object) -> None:
    connection.exec_driver_sql(_VIEW)
