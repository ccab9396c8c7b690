"""What a user or role may not do is told by its cause, with what to grant, by ``doctor`` and by what meets it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sessioncache.cli.main import main
from tests.cli.test_doctor import Say, amiss, doctor, set_up
from tests.helpers import Urls, execute, raw

__all__ = ["doctor"]

ROLE = "sessioncache_unread"


@pytest.fixture
def urls(valkey_url: str, postgresql_url: str) -> Urls:
    """Both tiers, set up."""
    made = Urls(valkey_url, postgresql_url)
    asyncio.run(set_up(made))
    execute(postgresql_url, f"DROP ROLE IF EXISTS {ROLE}")
    execute(postgresql_url, f"CREATE ROLE {ROLE} LOGIN")
    return made


@pytest.fixture
def limited(urls: Urls) -> Iterator[Urls]:
    """The same for a Redis user without channels, to whom more may be denied."""
    with raw(urls.redis) as client:
        client.acl_setuser("limited", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all"])
    yield Urls(urls.redis.replace("unix://", "unix://limited:pw@"), urls.database)
    with raw(urls.redis) as client:
        client.acl_deluser("limited")


@pytest.mark.parametrize("grant", ["", "GRANT USAGE ON SCHEMA public TO "])
def test_a_role_that_may_read_nothing_is_told_what_it_lacks(urls: Urls, doctor: Say, grant: str) -> None:
    execute(urls.database, "REVOKE USAGE ON SCHEMA public FROM PUBLIC")
    if grant:
        execute(urls.database, grant + ROLE)
    code, found = doctor(Urls(urls.redis, urls.database.replace("postgres@", f"{ROLE}@")))
    assert found["database"]["level"] == "good"
    wanted = "SELECT on sessioncache_alembic_version, " if grant else "USAGE on schema public"
    assert wanted in found["rights"]["found"]
    assert found["schema"]["found"] == "the role of the URL may not read it"
    assert "sessioncache doctor" not in str(found)
    assert code == 1


def test_a_database_that_there_is_not_is_not_told_to_be_started(urls: Urls, doctor: Say) -> None:
    elsewhere = urls.database.replace("/test_", "/no_test_")
    code, found = doctor(Urls(urls.redis, elsewhere))
    assert found["database"]["advice"].startswith("create the database or role, or see that")
    assert code == 3


def test_channels_that_are_denied_are_told(limited: Urls, urls: Urls, doctor: Say) -> None:
    assert "channels" not in doctor(urls)[1]
    code, found = doctor(limited)
    assert amiss(found)["channels"] == "warning"
    assert found["channels"]["advice"] == "ACL SETUSER … &sessioncache:*"
    assert code == 0


def test_what_an_access_list_denies_is_no_outage(limited: Urls, urls: Urls, capsys: pytest.CaptureFixture[str]) -> None:
    with raw(urls.redis) as client:
        client.execute_command("ACL", "SETUSER", "limited", "-evalsha")  # type: ignore[no-untyped-call]
    tiers = ["--redis", limited.redis, "--database", limited.database]
    code = main(["sessions", "show", "s", "--app", "a", "--user", "u", *tiers])
    said = capsys.readouterr().err
    assert "NOPERM: the Redis user may not run the command EVALSHA" in said
    assert "&sessioncache:* +@all -@admin -@dangerous +info" in said
    assert "see that the server runs" not in said
    assert code == 3
