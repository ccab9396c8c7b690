"""A copy of the checkout in a folder of its own, in which a mutation can be made and tests can be run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lupa import LuaRuntime

from tests.mutants.mutation import Mutation

ROOT = Path(__file__).resolve().parents[2]
_COPIED = ("sessioncache", "workers", "migrations", "tests", "pyproject.toml")
_PACKAGES = ("sessioncache", "sessioncache_worker", "sessioncache_migrations")
_SHOW = "import importlib, sys; print(*(importlib.import_module(name).__file__ for name in sys.argv[1:]), sep='\\n')"


class StaleMutationError(Exception):
    """The mutation cannot be made."""


class Tree:
    """One copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to import the copy, its children too: an editable install points to the checkout."""
        paths = (self.folder, self.folder / "workers", self.folder / "migrations")
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}

    def command(self, *arguments: str) -> list[str]:
        """A Python that does not look into its working folder first."""
        return [sys.executable, "-P", *arguments]

    def check_imports(self) -> None:
        """Raise RuntimeError unless Python imports the copy's packages and no others."""
        shown = subprocess.run(
            self.command("-c", _SHOW, *_PACKAGES),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        strange = [line for line in shown.stdout.splitlines() if not Path(line).is_relative_to(self.folder)]
        if strange:
            raise RuntimeError(f"not of the copy in {self.folder}: {', '.join(strange)}")

    def mutate(self, mutation: Mutation) -> None:
        """Make a mutation; StaleMutationError where its text is not there exactly once or makes no program."""
        path = self.folder / mutation.file
        text = path.read_text("utf-8")
        if text.count(mutation.find) != 1:
            raise StaleMutationError(f"{mutation.file} has the text {text.count(mutation.find)} times")
        changed = text.replace(mutation.find, mutation.replace)
        _compile(path, changed)
        path.write_text(changed, "utf-8")


def _compile(path: Path, text: str) -> None:
    """A mutant that is no program would be noticed by every test, and show nothing."""
    try:
        if path.suffix == ".lua":
            LuaRuntime().compile(text.split("\n", 1)[1] if text.startswith("#!") else text)
        else:
            compile(text, str(path), "exec")
    except Exception as error:
        raise StaleMutationError(f"{path.name} does not compile: {error}") from None


@contextmanager
def copy_of(root: Path = ROOT) -> Iterator[Tree]:
    """A fresh copy of a checkout, or of another copy; removed at the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="sc-mutant-")).resolve()
    try:
        for name in _COPIED:
            source = root / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
            else:
                shutil.copy2(source, folder / name)
        yield Tree(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
