"""Runs the blocks of a page in an empty folder: files are written, Python is run, transcripts are compared."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import contextvars
import inspect
import io
import json
import linecache
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from sessioncache.embedded import folder as data_folder
from tests.docs.pages import NOT_CODE, Block, Step, steps
from tests.docs.shell import Shell
from tests.embedded_helpers import wait_closed
from tests.servers import short_folder


class Folders:
    """Empty folders; the servers of their data folders, which linger for a moment, are waited for all at once."""

    def __init__(self) -> None:
        self._made: list[Path] = []

    @contextlib.contextmanager
    def empty(self) -> Iterator[Path]:
        """A folder that is current within the block."""
        self._made.append(short_folder())
        with contextlib.chdir(self._made[-1]):
            yield self._made[-1]

    def close(self) -> None:
        """Wait until what was begun in the folders has ended, and remove them."""
        for path in self._made:
            if (path / ".sessioncache" / data_folder.KEEPER_LOCK).exists():
                wait_closed(path / ".sessioncache")
        for path in self._made:
            shutil.rmtree(path, ignore_errors=True)


class PageRun:
    """One page being followed: its blocks share a folder, the names of its Python, and a shell."""

    def __init__(
        self, folder: Path, env: Mapping[str, str], instead: Mapping[str, str] | None = None, *, seconds: float = 60
    ) -> None:
        """`instead`: texts of commands that stand for something of the reader's (URLs), and what is taken here.

        `seconds`: what one step may take.
        """
        self._folder = folder
        self._instead = dict(instead or {})
        self._names: dict[str, Any] = {"__name__": "__page__"}
        self._runner = asyncio.Runner()
        self._context = contextvars.copy_context()
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(self._runner)
        self._shell = self._stack.enter_context(Shell(folder, env, seconds=seconds))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def follow(self, block: Block) -> None:
        """Do what a reader does with a block."""
        if block.reason or block.language in NOT_CODE:
            return
        if block.title:
            (self._folder / block.title).write_text(block.text)
            return
        run = getattr(self, f"_{block.language}", None)
        assert run is not None, f"{block}: nobody knows how to run {block.language!r}"
        run(block)

    def _python(self, block: Block) -> None:
        """Top-level `await` works as in ``python -m asyncio``."""
        name = str(block)
        linecache.cache[name] = len(block.text), None, block.text.splitlines(keepends=True), name
        code = compile(block.text, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(io.StringIO()):
            if code.co_flags & inspect.CO_COROUTINE:
                self._runner.run(eval(code, self._names), context=self._context)
            else:
                self._context.run(exec, code, self._names)

    def _console(self, block: Block) -> None:
        for step in steps(block.text):
            self._shell.run(self._replaced(step))

    def _bash(self, block: Block) -> None:
        self._shell.run(self._replaced(Step(f"set -e\n{block.text}\nset +e", "", "…")))

    def _json(self, block: Block) -> None:
        json.loads(block.text)

    def _toml(self, block: Block) -> None:
        tomllib.loads(block.text)

    def _yaml(self, block: Block) -> None:
        yaml.safe_load(block.text)

    def _replaced(self, step: Step) -> Step:
        command = step.command
        for shown, here in self._instead.items():
            command = command.replace(shown, here)
        return Step(command, step.typed, step.printed)
