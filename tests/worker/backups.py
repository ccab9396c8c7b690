"""Databases that can be set back to a backup."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Protocol

import psycopg
from psycopg import sql

from tests.servers import PostgreSQLServer


class Backup(Protocol):
    """A database that can be set back."""

    url: str

    def take(self) -> None:
        """Make the backup."""

    def restore(self) -> None:
        """Set the database back to it."""


class FileBackup:
    """The copy of an SQLite file, made and restored online."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/state.db"
        self._live, self._copy = folder / "state.db", folder / "copy.db"

    def take(self) -> None:
        self._run(self._live, self._copy)

    def restore(self) -> None:
        self._run(self._copy, self._live)

    @staticmethod
    def _run(source: Path, target: Path) -> None:
        with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
            one.backup(other)


class DatabaseBackup:
    """A copy of a PostgreSQL database."""

    def __init__(self, server: PostgreSQLServer) -> None:
        self._server = server
        self.name = server.create_database()
        self._copy = self.name + "_copy"
        self.url = server.url(self.name)

    def take(self) -> None:
        self._run(self.name, self._copy)

    def restore(self) -> None:
        self._run(self._copy, self.name)

    def _run(self, source: str, target: str) -> None:
        one, other = sql.Identifier(source), sql.Identifier(target)
        ended = sql.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}")
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(other))
            connection.execute(ended.format(sql.Literal(source)))
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(other, one))

    def drop(self) -> None:
        """Drop both."""
        for name in (self.name, self._copy):
            self._server.drop_database(name)
