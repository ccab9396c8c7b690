"""Revisions are compared as numbers, whatever order the server's locale gives to letters."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessioncache.hot.client import HotClient
from sessioncache.primitives.entries import Entry
from sessioncache.primitives.revisions import decode_revision, encode_revision
from tests.conftest import StartRedis, missing
from tests.scripts.bench import Bench, Clock, add, put
from tests.servers import RedisKind

LOCALE = "en_US.UTF-8"
BEFORE, AFTER = b"TZZZZZZZZ", b"Ta-------"
"""Two revisions that stand in one order as numbers, and in the other by the locale."""


@pytest.fixture(scope="session")
def collating(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a locale in which small letters come before great ones."""
    folder = tmp_path_factory.mktemp("locales")
    localedef = shutil.which("localedef")
    if localedef is None or not Path("/usr/share/i18n/locales/en_US").exists():
        missing("localedef and the source of a locale (Debian: apt-get install locales)")
    subprocess.run([localedef, "--no-archive", "-i", "en_US", "-f", "UTF-8", folder / LOCALE], check=True)
    return {"LOCPATH": str(folder), "LC_ALL": LOCALE}


@pytest.fixture(params=["valkey", "redis"])
async def real(
    request: pytest.FixtureRequest,
    start_redis: StartRedis,
    collating: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Bench]:
    """A hot tier of a real server under that locale."""
    kind: RedisKind = request.param
    for name, value in collating.items():
        monkeypatch.setitem(os.environ, name, value)
    server = start_redis(kind)
    bench = Bench(Clock(), HotClient.from_url(server.url), server.client())
    await bench.register()
    yield bench
    await bench.link.aclose()
    bench.raw.close()


async def test_the_server_orders_text_by_its_locale(real: Bench) -> None:
    assert BEFORE < AFTER
    assert real.ask("EVAL", "return {ARGV[1] < ARGV[2]}", 0, AFTER, BEFORE) == [1]


async def test_the_next_revision_is_above_the_largest(real: Bench) -> None:
    known = decode_revision(BEFORE)
    await real.install(real.user(), known=known)
    for number in range(1, 70):
        written = await real.write(real.user(), put("k", "1"))
        assert decode_revision(written.revision) == known + number


async def test_an_entry_above_last_cleared_is_living(real: Bench) -> None:
    cleared, living = decode_revision(BEFORE), decode_revision(AFTER)
    await real.install(real.user(), [Entry("k", living, b"5")], known=living, cleared=cleared)
    assert (await real.write(real.user(), add("k", "1"))).parts[0].results == [b"6"]
    assert [entry.text for entry in (await real.dirt(real.user())).entries] == [b"6"]


async def test_an_entry_below_last_cleared_is_dead(real: Bench) -> None:
    cleared, dead = decode_revision(AFTER), decode_revision(BEFORE)
    await real.install(real.user(), known=cleared, cleared=cleared)
    real.ask("HSET", real.user().hash, "=k", encode_revision(dead) + b"5")
    assert (await real.write(real.user(), add("k", "1"))).parts[0].results == [b"1"]


async def test_flushed_through_grows_from_before_to_after(real: Bench) -> None:
    place = real.user()
    await real.install(place, known=decode_revision(BEFORE) - 1)
    await real.write(place, put("k", "1"))
    await real.flush(place)
    assert real.field(place, "f") == BEFORE
    real.ask("HSET", place.hash, "r", encode_revision(decode_revision(AFTER) - 1))
    await real.write(place, put("k", "2"))
    await real.flush(place)
    assert real.field(place, "f") == AFTER


async def test_the_scripts_write_every_digit_as_the_client_does(real: Bench) -> None:
    base = 2**52
    await real.install(real.user(), known=base)
    for number in range(1, 65):
        written = await real.write(real.user(), put("k", "1"))
        assert written.revision == encode_revision(base + number)
