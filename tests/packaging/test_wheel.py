"""The wheel as a user installs it: all files in it, and both commands run from a fresh environment."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT, missing

pytestmark = pytest.mark.timeout(900)

PACKAGES = {
    "sessioncache": ROOT,
    "sessioncache_worker": ROOT / "workers",
    "sessioncache_migrations": ROOT / "migrations",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)])
    (built,) = folder.glob("sessioncache-*.whl")
    return built


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of a new environment that holds the wheel and two extras, nothing of the checkout."""
    try:
        import ensurepip  # noqa: F401 - Debian leaves it out
    except ImportError:
        missing("venv cannot make environments (Debian: apt-get install python3-venv)")
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True)
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    run([*install, f"{wheel}[embedded,sqlite]"])
    return folder / "bin"


def run(command: list[str], folder: Path | None = None) -> str:
    """Standard output of a command that must succeed; no setting of this process reaches it but pip's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SESSIONCACHE_"))}
    done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def in_checkout() -> set[str]:
    """Every file of the packages, by its name in the wheel."""
    return {
        str(path.relative_to(folder))
        for package, folder in PACKAGES.items()
        for path in (folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == in_checkout()


@pytest.mark.parametrize("pattern", ["sessioncache/hot/lua/*.lua", "sessioncache_migrations/versions/*.py"])
def test_wheel_holds_scripts_and_migrations(wheel: Path, pattern: str) -> None:
    assert any(Path(name).match(pattern) for name in zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_wheel_is_typed(wheel: Path, package: str) -> None:
    assert f"{package}/py.typed" in zipfile.ZipFile(wheel).namelist()


@pytest.mark.parametrize("command", ["sessioncache", "sessioncache-worker"])
def test_command_says_how_it_is_used(fresh: Path, tmp_path: Path, command: str) -> None:
    assert "usage" in run([str(fresh / command), "--help"], tmp_path).lower()


def test_demo_ends_verified(fresh: Path, tmp_path: Path) -> None:
    last = run([str(fresh / "sessioncache"), "demo"], tmp_path).strip().splitlines()[-1].lower()
    assert "verified" in last
    assert "not verified" not in last


def test_checkout_is_out_of_reach(fresh: Path, tmp_path: Path) -> None:
    where = run([str(fresh / "python"), "-c", "import sessioncache; print(sessioncache.__file__)"], tmp_path)
    assert Path(where.strip()).is_relative_to(fresh.parent)
