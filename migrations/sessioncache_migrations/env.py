"""Alembic's environment: migrates over the connection that was put into the configuration's attributes.

The connection is in a transaction already, which holds the lock against other upgrades; its owner commits.
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
    )
    with context.begin_transaction():
        context.run_migrations()


_run()
