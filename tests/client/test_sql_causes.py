"""What stands in the way of PostgreSQL behind TLS is told by its cause."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

import pytest

from sessioncache import DurableTierUnavailableError
from sessioncache.durable.tier import DurableTier
from tests.conftest import StartPostgreSQL
from tests.servers import PostgreSQLServer, make_certificate


@pytest.fixture
def server(start_postgresql: StartPostgreSQL) -> PostgreSQLServer:
    """A server that speaks TLS, with a certificate of its own for localhost."""
    server = start_postgresql(tcp=True)
    key, certificate = make_certificate(server.folder / "data")
    if os.geteuid() == 0:
        os.chown(key, pwd.getpwnam("postgres").pw_uid, -1)
    return server.restart(ssl="on", ssl_cert_file=certificate, ssl_key_file=key)


@pytest.fixture
def trusted(server: PostgreSQLServer, tmp_path: Path) -> Path:
    """A copy of the server's certificate."""
    return Path(shutil.copy(server.folder / "data" / "certificate.pem", tmp_path / "trusted.pem"))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The certificate of somebody else."""
    return make_certificate(tmp_path)[1]


async def failure(url: str) -> str:
    """What a call tells."""
    tier = DurableTier.connect(url)
    try:
        with pytest.raises(DurableTierUnavailableError) as told:
            await tier.clock()
        return str(told.value)
    finally:
        await tier.aclose()


async def test_a_certificate_that_is_not_trusted_is_told_as_such(
    server: PostgreSQLServer, trusted: Path, other: Path
) -> None:
    base = f"127.0.0.1:{server.port}/postgres?sslmode=verify"
    assert "not trusted" in await failure(f"postgresql://postgres@{base}-ca&sslrootcert={other}")
    assert "for another name" in await failure(f"postgresql://postgres@{base}-full&sslrootcert={trusted}")
    assert "sslrootcert) is missing" in await failure(f"postgresql://postgres@{base}-full&sslrootcert=/no/such")
    tier = DurableTier.connect(f"postgresql://postgres@{base}-ca&sslrootcert={trusted}")
    assert await tier.clock() > 0
    await tier.aclose()


async def test_a_server_without_tls_is_told_as_such(start_postgresql: StartPostgreSQL) -> None:
    port = start_postgresql(tcp=True).port
    assert "speaks no TLS" in await failure(f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=require")
