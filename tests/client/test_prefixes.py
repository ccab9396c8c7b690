"""A prefix is a name and no pattern: with characters that mean more in patterns everything finds what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessioncache.hot.layout import Layout, literally
from tests.cli.conftest import Run, run
from tests.client.conftest import small_urls
from tests.helpers import ROOT, Urls, connect, evict, open_worker, raw, stored_values
from tests.helpers import session as session_of

__all__ = ["run", "small_urls"]

PREFIX = "a*b?[c]\\"
LIKE_IT = ["axxbyc", "a*b?c\\", "ab1c\\", "a*b?[c]"]
"""What is like it if it is read as a pattern, or nearly the same."""


@pytest.fixture
def urls(small_urls: Urls) -> Urls:
    """Valkey over SQLite."""
    return small_urls


@pytest.mark.foreign_keys
def test_a_pattern_is_like_the_names_of_its_own_installation_only(valkey_url: str) -> None:
    with raw(valkey_url) as client:
        for prefix in (PREFIX, *LIKE_IT):
            for bucket in (1, 11):
                client.set(Layout(prefix, 16).hash(bucket, "s" * 33), "")
        for prefix in (PREFIX, *LIKE_IT):
            layout = Layout(prefix, 16)
            both = {layout.hash(bucket, "s" * 33) for bucket in (1, 11)}
            assert set(client.scan_iter(layout.hashes())) == both
            assert set(client.scan_iter(layout.hashes(1))) == {layout.hash(1, "s" * 33)}


@pytest.mark.foreign_keys
@pytest.mark.parametrize("name", ["*", "?", "[a-z]", "[^a]", "\\", "\\*", "]", "a^-b", "\u2026*"])
def test_a_name_in_a_pattern_means_itself(name: str, valkey_url: str) -> None:
    with raw(valkey_url) as client:
        client.mset({name: "", "a": "", "b": "", "ab": ""})
        assert set(client.scan_iter(literally(name))) == {name.encode()}


def test_nobody_subscribes_to_patterns() -> None:
    sources = [*(ROOT / "sessioncache").rglob("*.py"), *(ROOT / "workers").rglob("*.py")]
    assert [path for path in sources if "psubscribe" in Path(path).read_text().lower()] == []


async def test_everything_works_with_a_prefix_that_would_be_a_pattern(urls: Urls, run: Run) -> None:
    given = ("--prefix", PREFIX, "--buckets", "16")
    settings: dict[str, Any] = {"prefix": PREFIX, "buckets": 16}
    async with connect(urls, **settings) as cache, open_worker(urls, **settings) as worker:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 2, "app:p": 3})
        await made.namespace("skills").set("k", 4)
        async with made.watch() as changes:
            await made.set("a", 5)
            assert (await anext(changes)).keys == ("a",)
        await worker.flush_once()
        await cache.flush(60)
        assert (await run("flush", "--timeout", "30", *given)).code == 0
        assert (await run("sessions", "list", "--json", *given)).json["sessions"][0]["id"] == "s1"
        assert (await run("sessions", "show", "s1", "--json", *given)).json["session"]["keys"] == 1
        assert (await run("dead", "list", "--json", *given)).json == {"letters": []}
        assert (await run("top", "--json", "--count", "1", *given)).json["dirty_scopes"] == 0
        assert (await run("doctor", "--json", *given)).code in (0, 1)
        restored = await run("db", "restored", "--json", *given)
        assert (restored.code, restored.json["scopes"]) == (0, 4)
        await worker.flush_once()
        report = await cache.erase_user("ada")
        assert (report.sessions, report.entries) == (1, 3)
        await worker.flush_once()
        assert not stored_values(urls.database, session_of("ada", "s1"))
    evict(urls.redis)
