"""A backup that is restored as docs/howto/backup.md says, while Redis knows more than the backup."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT, missing
from tests.docs.pages import Block, blocks, steps
from tests.docs.shell import Shell, environment
from tests.helpers import Urls, connect, drain, evict, session, stored_values, upgrade

PAGE = ROOT / "docs" / "howto" / "backup.md"
WANTED = {"old": {"a": 1}, "changed": {"a": 2}, "new": {"a": 3}}


def the_block_with(word: str) -> Block:
    (found,) = [block for block in blocks(PAGE) if block.language in ("console", "python") and word in block.text]
    return found


def follow(folder: Path, urls: Urls, word: str) -> None:
    """Run the transcript of the page that has a word in it, whatever its commands print."""
    env = environment(SESSIONCACHE_REDIS_URL=urls.redis, SESSIONCACHE_DATABASE_URL=urls.database)
    with Shell(folder, env) as shell:
        for step in steps(the_block_with(word).text):
            command = step.command.replace(".sessioncache/sessioncache.db", "state.db")
            shell.run(replace(step, command=command, printed="…"))


async def write(urls: Urls, session_id: str, value: int) -> None:
    async with connect(urls) as cache:
        found, _ = await cache.get_or_create("ada", session_id)
        await found.set("a", value)
    await drain(urls)


async def back_up_and_restore(folder: Path, urls: Urls, backup: str, restore: str) -> None:
    """All of it is hot, all of it is flushed, and the backup is older than a part of it."""
    await upgrade(urls.database)
    await write(urls, "old", 1)
    await write(urls, "changed", 1)
    follow(folder, urls, backup)
    await write(urls, "changed", 2)
    await write(urls, "new", 3)
    follow(folder, urls, restore)


async def check_that_nothing_is_missing(urls: Urls) -> None:
    assert {name: stored_values(urls.database, session("ada", name)) for name in WANTED} == WANTED
    evict(urls.redis)
    async with connect(urls) as cache:
        assert {name: dict((await cache.get("ada", name)).state) for name in WANTED} == WANTED


async def test_a_backup_of_sqlite_is_restored_and_what_is_hot_comes_back(
    valkey_url: str, sqlite_url: str, tmp_path: Path
) -> None:
    urls = Urls(valkey_url, sqlite_url)
    (tmp_path / "backup.py").write_text(the_block_with("source.backup(").text)
    await back_up_and_restore(tmp_path, urls, "$ python backup.py", "$ rm -f state.db")
    await check_that_nothing_is_missing(urls)


async def test_a_backup_of_postgresql_is_restored_and_what_is_hot_comes_back(
    valkey_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    if not (shutil.which("pg_dump") and shutil.which("pg_restore")):
        missing("pg_dump and pg_restore are not in PATH (Debian: apt-get install postgresql-client)")
    urls = Urls(valkey_url, postgresql_url)
    await back_up_and_restore(tmp_path, urls, "$ pg_dump", "$ pg_restore")
    await check_that_nothing_is_missing(urls)


async def test_without_telling_redis_what_is_newer_than_the_backup_stays_out_of_sql(
    valkey_url: str, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says not to skip the step: this is why."""
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text().replace("$ sessioncache db restored\n", ""))
    monkeypatch.setattr("tests.docs.test_backups.PAGE", page)
    (tmp_path / "backup.py").write_text(the_block_with("source.backup(").text)
    urls = Urls(valkey_url, sqlite_url)
    await back_up_and_restore(tmp_path, urls, "$ python backup.py", "$ rm -f state.db")
    assert stored_values(sqlite_url, session("ada", "changed")) == {"a": 1}
    assert stored_values(sqlite_url, session("ada", "new")) is None
