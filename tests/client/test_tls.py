"""Redis behind TLS: connections are taken over as they are, large values and many calls at once included."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartRedis, missing
from tests.helpers import Urls, connect, drain, fetch, upgrade
from tests.servers import free_port


@pytest.fixture
def tls_url(start_redis: StartRedis, tmp_path: Path) -> str:
    """The URL of a Redis that speaks TLS, with a certificate of its own."""
    if shutil.which("openssl") is None:
        missing("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=127.0.0.1 -addext"
    made = [*command.split(), "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True, timeout=20)
    port = free_port()
    files: dict[str, Any] = {"tls_cert_file": certificate, "tls_key_file": key, "tls_ca_cert_file": certificate}
    start_redis("redis", tls_port=port, tls_auth_clients="no", **files)
    return f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}"


async def test_everything_works_over_tls(tls_url: str, sqlite_url: str) -> None:
    urls = Urls(tls_url, sqlite_url)
    await upgrade(sqlite_url)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"large": "x" * 900_000})
        async with made.watch() as changes:
            await asyncio.gather(*(made.set(f"k{n}", n) for n in range(100)))
            assert (await anext(changes)).scope == "session"
        found = await cache.get("ada", "s1")
        assert found.state["large"] == "x" * 900_000
        assert [found.state[f"k{n}"] for n in range(100)] == list(range(100))
        await drain(urls)
        await made.flush(60)
    assert fetch(sqlite_url, "SELECT count(*) FROM sessioncache_state WHERE NOT deleted") == [(101,)]
