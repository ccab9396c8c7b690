"""What the guides to limits and installation say of numbers and extras is what the code has."""

from __future__ import annotations

import re
import tomllib

import pytest

from sessioncache import lease, settings, watch
from sessioncache.batch import batch
from sessioncache.durable import engine, transactions
from sessioncache.hot import dead_letters, subscriptions
from sessioncache.operations import erase_user, touch
from sessioncache.primitives import names, titles, values
from tests.conftest import ROOT

_MIB = 1024 * 1024
_CACHE, _WORKER = settings.CacheSettings(), settings.WorkerSettings()
_SAID = [
    f"at most {names.MAX_NAME_BYTES} bytes of UTF-8",
    f"at most {touch.MAX_TITLE_BYTES:,} bytes of UTF-8",
    f"at most {titles.MAX_TITLE_LENGTH} code points",
    f"{settings.MAX_VALUE_BYTES // _MIB} MiB as JSON",
    f"{values.MAX_DEPTH} levels",
    f"integers of {values.MAX_INTEGER_DIGITS:,} digits",
    f"{settings.MAX_SCOPE_KEYS:,} keys |",
    f"{settings.MAX_SCOPE_BYTES // _MIB} MiB of values",
    f"{settings.MAX_CALL_KEYS:,} keys changed",
    f"{settings.MAX_CALL_BYTES // _MIB} MiB of values written",
    f"{settings.MAX_REPLACED_BYTES // _MIB} MiB of values of one scope",
    f"at most {settings.MAX_FORK_NAMESPACES} namespaces",
    f"`timeout`: {_CACHE.timeout:g} s, at most {settings.OPERATION_ID_LIFETIME // 2} s",
    f"{batch._AT_ONCE} are under way",
    f"a watch: {watch.MOST_PENDING:,} changes, or {watch.MOST_NAMED:,} names",
    f"more than {subscriptions.MOST_TOLD:,} keys",
    f"{settings.IDLE_TTL / 3_600:g} h after its last use",
    f"{_CACHE.temp_ttl / 3_600:g} h after their last use",
    f"{_WORKER.flush_delay:g} s after the first change",
    f"| {_WORKER.lease:g} s | `--lease`",
    f"to {lease.MAX_TTL / 3_600:g} h (`ttl`",
    f"until {erase_user.GRACE / 60:g} minute after",
    f"{settings.TOMBSTONE_RETENTION // 86_400} days after the delete was flushed",
    f"at least {settings.OPERATION_ID_LIFETIME // 60} minutes",
    f"after {dead_letters._FIRST_RETRY // 60_000_000} minutes",
    f"{_CACHE.max_dirty:,} scopes wait",
    f"`buckets`: {_CACHE.buckets}, at most 16,384",
    f"up to {engine._POOL_SIZE['postgresql']} to PostgreSQL ({engine._POOL_SIZE['sqlite']} to SQLite)",
    f"above {transactions.VACUUM_BYTES // _MIB} MiB",
]


@pytest.mark.parametrize("said", _SAID)
def test_the_guide_to_limits_says_what_the_code_has(said: str) -> None:
    assert said in (ROOT / "docs" / "limits.md").read_text()


def test_the_guide_to_installing_names_every_extra_for_users_and_every_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "install.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == {*project["optional-dependencies"]} - {
        "bench",
        "dev",
        "docs",
    }
    pythons = [
        one.removeprefix("Programming Language :: Python :: ") for one in project["classifiers"] if ":: 3." in one
    ]
    assert [one for one in pythons if one not in page] == []
