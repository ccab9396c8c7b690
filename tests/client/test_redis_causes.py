"""What stands in the way of Redis is told by its cause, without a password, an argument or a text of the server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessioncache import ConfigurationError, HotTierUnavailableError, SessionCacheError
from sessioncache.hot.client import HotClient
from sessioncache.primitives.deadline import within
from tests.client.conftest import small_urls
from tests.conftest import StartRedis
from tests.helpers import Urls, connect
from tests.servers import RedisKind, RedisServer, free_port, make_certificate

__all__ = ["small_urls"]

_SECRET = "hunter2"


@pytest.fixture(params=["redis", "valkey"])
def server(request: pytest.FixtureRequest, start_redis: StartRedis) -> RedisServer:
    """A server with a password."""
    kind: RedisKind = request.param
    return start_redis(kind, tcp=True, requirepass="s3cret")


@pytest.fixture
def tls(start_redis: StartRedis, tmp_path: Path) -> tuple[int, Path]:
    """A port where TLS is spoken, and the certificate, which is for localhost."""
    key, certificate = make_certificate(tmp_path)
    files: dict[str, Any] = {"tls_cert_file": certificate, "tls_key_file": key, "tls_ca_cert_file": certificate}
    port = free_port()
    start_redis("redis", tls_port=port, tls_auth_clients="no", **files)
    return port, certificate


@pytest.fixture
def deaf() -> Iterator[int]:
    """A port where somebody listens, and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def failure(url: str, seconds: float = 20) -> SessionCacheError:
    """The error of a command to a URL."""
    link = HotClient.from_url(url, connect_timeout=60)
    try:
        with within(seconds), pytest.raises(SessionCacheError) as told:
            await link.command(b"PING")
    finally:
        await link.aclose()
    assert _SECRET not in repr(told.value)
    return told.value


async def test_a_missing_and_a_wrong_password_are_told_apart(server: RedisServer) -> None:
    for place in (f"redis://{{}}127.0.0.1:{server.port}/0", f"unix://{{}}{server.socket}"):
        for login, cause in (("", "asks for a password"), (f":{_SECRET}@", "user name or password")):
            error = await failure(place.format(login))
            assert type(error) is ConfigurationError
            assert cause in str(error)


async def test_a_database_that_the_server_does_not_have(server: RedisServer) -> None:
    for url in (f"redis://:s3cret@127.0.0.1:{server.port}/99", f"unix://:s3cret@{server.socket}?db=99"):
        error = await failure(url)
        assert type(error) is ConfigurationError
        assert "names a database" in str(error)


async def test_what_the_user_may_not_run_is_named(server: RedisServer) -> None:
    with server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "bob", "on", f">{_SECRET}", "~x:*", "+hello", "+client", "+get", "+eval"
        )
    url = f"redis://bob:{_SECRET}@127.0.0.1:{server.port}"
    error = await failure(url + "/1")
    assert (type(error), "the command SELECT" in str(error)) == (ConfigurationError, True)
    link = HotClient.from_url(url)
    for command, cause in (
        ((b"PING",), "the command PING"),
        ((b"GET", b"secret"), "one of the keys"),
        ((b"EVAL", b"return redis.call('get', 'secret')", 0), "one of the keys"),
        ((b"EVAL", b"return redis.call('set', KEYS[1], 1)", 1, b"x:secret"), "SET|a command that our scripts use"),
        ((b"EVAL", b"return redis.call('publish', 'secret', 1)", 0), "PUBLISH|channels|a command"),
    ):
        with pytest.raises(HotTierUnavailableError, match=f"NOPERM: the Redis user may not .*({cause})") as told:
            await link.command(*command)
        assert "secret" not in str(told.value)
    await link.aclose()


async def test_nobody_listens_and_no_such_host() -> None:
    for url in (f"redis://127.0.0.1:{free_port()}/0", "unix:///tmp/no-such-folder/socket"):
        assert "nobody listens there" in str(await failure(url))
    error = await failure("redis://no-such-host.invalid/0")
    assert (type(error), "host name cannot be resolved" in str(error)) == (HotTierUnavailableError, True)


async def test_a_server_that_says_nothing(deaf: int) -> None:
    assert "no answer in time" in str(await failure(f"redis://127.0.0.1:{deaf}/0", 0.2))
    assert "rediss://" in str(await failure(f"rediss://127.0.0.1:{deaf}/0", 0.2))


async def test_certificates(tls: tuple[int, Path]) -> None:
    port, certificate = tls
    assert "certificate is not trusted" in str(await failure(f"rediss://localhost:{port}/0"))
    assert "certificate is not trusted" in str(await failure(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}"))
    assert "file of certificates is missing" in str(await failure(f"rediss://localhost:{port}/0?ssl_ca_certs=/no/such"))
    assert "ask for TLS" in str(await failure(f"redis://127.0.0.1:{port}/0"))


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("redis://localhost/zero", "by a number"),
        ("redis://localhost/0/1", "by a number"),
        ("redis://localhost/-1", "by a number"),
        ("redis://localhost/?db=zero", "by a number"),
        ("unix:///tmp/socket?db=zero", "by a number"),
        ("unix://", "no socket"),
        ("redis://localhost:port/0", "host or port"),
        ("redis://localhost:99999/0", "host or port"),
        ("redis://localhost:0/0", "port"),
        (f"redis://:{_SECRET}#more@localhost/0", "%23"),
        (f"redis://ada:{_SECRET}/more@localhost/0", "/ is %2F"),
        (f"redis://{_SECRET}:1/more@localhost/0", "/ is %2F"),
        (f"redis://{_SECRET}:1?more@localhost/0", "%3F"),
        ("http://localhost", "begin with"),
        ("localhost:6379", "begin with"),
        ("redis://localhost/0?socket_timeout=long", "option"),
        ("redis://localhost/0?colour=red", "option"),
    ],
)
def test_urls_that_cannot_be_meant_are_refused(url: str, cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause) as told:
        HotClient.from_url(url)
    assert _SECRET not in str(told.value)


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_a_redis_in_cluster_mode_is_refused(kind: RedisKind, start_redis: StartRedis, small_urls: Urls) -> None:
    server = start_redis(kind, cluster_enabled="yes")
    with pytest.raises(ConfigurationError, match="cluster mode"):
        await connect(Urls(server.url, small_urls.database))
