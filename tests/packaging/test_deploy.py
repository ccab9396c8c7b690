"""The files in deploy/ are real: their commands run here bare, with their options, URLs and signals."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
import yaml
from psycopg import sql

from sessioncache import SessionCache
from sessioncache.settings import WorkerSettings
from tests.conftest import ROOT, StartPostgreSQL, StartRedis, missing
from tests.servers import PostgreSQLServer, RedisServer
from tests.waiting import wait_until_async

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "sessioncache-worker.service"
DOCKERFILE = DEPLOY / "Dockerfile"
SCRIPTS = Path(sysconfig.get_path("scripts"))
PASSWORDS = {"VALKEY_PASSWORD": "b8f1c0valkey", "POSTGRES_PASSWORD": "77d02apostgres"}


class Deployed(NamedTuple):
    """What a deployment file starts."""

    migrate: list[str]
    worker: list[str]
    environment: dict[str, str]


class _Unit(configparser.RawConfigParser):
    """Unit files are case-sensitive."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def compose() -> dict[str, Any]:
    text = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: PASSWORDS[found[1]], (DEPLOY / "compose.yaml").read_text())
    parsed: dict[str, Any] = yaml.safe_load(text)
    return parsed


def unit() -> dict[str, dict[str, str]]:
    parser = _Unit(interpolation=None)
    parser.read(UNIT)
    return {name: dict(parser[name]) for name in parser.sections()}


def seconds(text: str) -> float:
    assert text.endswith("s")
    return float(text.removesuffix("s"))


def grace(worker: list[str]) -> float:
    return float(worker[worker.index("--grace") + 1]) if "--grace" in worker else WorkerSettings().grace


def by_compose() -> Deployed:
    services = compose()["services"]
    return Deployed(
        services["migrate"]["command"], services["worker"]["command"], dict(services["worker"]["environment"])
    )


def by_systemd() -> Deployed:
    service = unit()["Service"]
    lines = (DEPLOY / "systemd" / "worker.env.example").read_text().splitlines()
    environment = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return Deployed(shlex.split(service["ExecStartPre"]), shlex.split(service["ExecStart"]), environment)


@pytest.fixture
def hot(start_redis: StartRedis) -> RedisServer:
    """A server with exactly the options of the compose file."""
    program, *options = compose()["services"]["valkey"]["command"]
    assert program == "valkey-server"
    names = [name.removeprefix("--").replace("-", "_") for name in options[::2]]
    return start_redis("valkey", tcp=True, **dict(zip(names, options[1::2], strict=True)))


@pytest.fixture
def durable(start_postgresql: StartPostgreSQL) -> PostgreSQLServer:
    """A server with the compose file's user, no superuser here, and database."""
    server = start_postgresql(tcp=True)
    given = compose()["services"]["postgres"]["environment"]
    role, password, database = (given[f"POSTGRES_{name}"] for name in ("USER", "PASSWORD", "DB"))
    names = {"role": sql.Identifier(role), "database": sql.Identifier(database), "password": sql.Literal(password)}
    server.execute(sql.SQL("CREATE ROLE {role} LOGIN PASSWORD {password}").format(**names))
    server.execute(sql.SQL("CREATE DATABASE {database} OWNER {role}").format(**names))
    return server


def here(deployed: Deployed, hot: RedisServer, durable: PostgreSQLServer) -> Deployed:
    """The same commands and URLs, with this machine's scripts, ports and passwords."""
    password = hot.config["requirepass"]
    environment = {
        name: re.sub(r"(valkey|127\.0\.0\.1):6379", f"127.0.0.1:{hot.port}", url)
        .replace("postgres:5432", f"127.0.0.1:{durable.port}")
        .replace("127.0.0.1:5432", f"127.0.0.1:{durable.port}")
        .replace("PASSWORD", password)
        for name, url in deployed.environment.items()
    }
    return Deployed(_local(deployed.migrate), _local(deployed.worker), environment)


def _local(command: list[str]) -> list[str]:
    program = SCRIPTS / Path(command[0]).name
    if not program.exists():
        missing(f"{program.name} is not installed: make lint installs it")
    return [str(program), *command[1:]]


@contextmanager
def running(command: list[str], environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run(command: list[str], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def rows(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT count(*) FROM sessioncache_state").fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.parametrize("source", [by_compose, by_systemd])
async def test_deployed_commands_flush_and_stop(
    source: Any, hot: RedisServer, durable: PostgreSQLServer, tmp_path: Path
) -> None:
    migrate, worker, urls = here(source(), hot, durable)
    environment = {"PATH": os.environ["PATH"], **urls}
    first, later = (run(migrate, environment, tmp_path) for _ in range(2))
    assert (first.returncode, later.returncode) == (0, 0), first.stderr + later.stderr
    with running(worker, environment, tmp_path) as process:
        database = urls["SESSIONCACHE_DATABASE_URL"]
        async with SessionCache.connect(urls["SESSIONCACHE_REDIS_URL"], database, app="deploy") as cache:
            session = await cache.create("ada")
            await session.update({"step": 1, "user:name": "Ada", "app:runs": 1})
            await wait_until_async(lambda: rows(database) == 3, 20, "three keys in SQL")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=grace(worker))
    assert process.returncode == 0, output
    assert not any(password in output + first.stderr for password in PASSWORDS.values())


def test_health_check_tells_good_from_bad(hot: RedisServer, durable: PostgreSQLServer, tmp_path: Path) -> None:
    found = re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    assert found is not None
    migrate, _, urls = here(by_compose(), hot, durable)
    check = _local(yaml.safe_load(found[1]))
    environment = {"PATH": os.environ["PATH"], **urls}
    assert run(check, environment, tmp_path).returncode == 1
    assert run(migrate, environment, tmp_path).returncode == 0
    assert run(check, environment, tmp_path).returncode == 0
    durable.stop()
    assert run(check, environment, tmp_path).returncode == 3


def test_compose_waits_longer_than_the_worker_takes() -> None:
    worker = compose()["services"]["worker"]
    assert seconds(worker["stop_grace_period"]) > grace(worker["command"])
    assert worker["restart"] == "unless-stopped"


def test_compose_starts_the_worker_after_the_schema() -> None:
    services = compose()["services"]
    assert services["worker"]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    assert services["migrate"]["depends_on"]["postgres"] == {"condition": "service_healthy"}


def test_compose_holds_no_password() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    values = re.findall(r"PASSWORD:[ -](.*)", text) + re.findall(r"://\w*:(.*?)@", text)
    assert values
    assert all(value.startswith("${") for value in values)
    example = (DEPLOY / ".env.example").read_text()
    assert re.findall(r"^\w*PASSWORD=(.*)$", example, re.MULTILINE) == ["", ""]


def test_compose_follows_its_schema() -> None:
    checker = shutil.which("check-jsonschema", path=SCRIPTS) or missing("check-jsonschema")
    command = [checker, "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_image_does_not_run_as_root_and_starts_the_worker() -> None:
    last_stage = DOCKERFILE.read_text().split("\nFROM ")[-1]
    assert re.search(r"^USER \d+$", last_stage, re.MULTILINE)
    assert 'CMD ["sessioncache-worker"]' in last_stage
    assert "pip" not in last_stage


def test_image_gets_every_package_of_the_wheel() -> None:
    copied = set(re.findall(r"^COPY (\S+) \./\S+$", DOCKERFILE.read_text(), re.MULTILINE))
    let_through = set(re.findall(r"^!(.*)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE))
    assert {"sessioncache", "workers", "migrations"} <= copied <= let_through


def test_dockerfile_lints() -> None:
    linter = shutil.which("hadolint", path=SCRIPTS) or missing("hadolint")
    done = subprocess.run([linter, str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_unit_waits_longer_than_the_worker_takes() -> None:
    service = unit()["Service"]
    assert seconds(service["TimeoutStopSec"]) > grace(shlex.split(service["ExecStart"]))
    assert (service["Type"], service["KillSignal"], service["Restart"]) == ("exec", "SIGTERM", "always")


def test_unit_verifies(tmp_path: Path) -> None:
    verifier = shutil.which("systemd-analyze") or pytest.skip("systemd-analyze is not installed")
    local = tmp_path / UNIT.name
    local.write_text(UNIT.read_text().replace("/opt/sessioncache/bin", str(SCRIPTS)))
    command = [verifier, "verify", "--man=no", str(local)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
