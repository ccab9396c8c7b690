"""Alembic's environment: migrates over the connection that was put into the configuration's attributes.

Its owner sees to it that nobody else upgrades this database meanwhile.  On SQLite it is in a transaction already, which
its owner commits; on PostgreSQL each version is a transaction, but for indexes that are built while others write.
"""

from __future__ import annotations

from alembic import context

from sessioncache.durable.schema import VERSION_TABLE, metadata


def _run() -> None:
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        transactional_ddl=True,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


_run()
