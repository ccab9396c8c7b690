"""A shell that runs the transcripts of a page, one command after another, as a person at a terminal would."""

from __future__ import annotations

import os
import queue
import re
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self

from tests.docs.pages import Step, agrees

_PROMPTS = re.compile(r"^(?:> )+", re.MULTILINE)


class Shell:
    """One bash in one folder: variables, the folder it is in, and background jobs live on from step to step."""

    def __init__(self, folder: Path, env: Mapping[str, str], *, seconds: float = 60) -> None:
        """`seconds`: what one step may take."""
        self._folder = folder
        self._seconds = seconds
        self._end = f"end-{secrets.token_hex(6)}"
        self._errors = (folder / ".stderr").open("w+")
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)  # with the jobs that the page left running
        self._bash.wait()
        self._reader.join(10)
        self._pipe(self._bash.stdin).close()
        self._errors.close()
        # The pipe is at its end, unless a job left its group and still has it.
        if not self._reader.is_alive():
            self._pipe(self._bash.stdout).close()

    def run(self, step: Step) -> None:
        """Run one step; AssertionError where it fails, or prints something else than the page shows."""
        code, printed = self._run(step)
        told = f"$ {step.command}\n{printed}\n(exit code {code})\n{self._complaints()}"
        assert code == 0, told
        assert agrees(step.printed, printed), f"{told}\nbut the page shows:\n{step.printed}"

    def _run(self, step: Step) -> tuple[int, str]:
        typed = self._folder / ".typed"
        typed.write_text(step.typed)
        script = f"{{ {step.command}\n}} < {shlex.quote(str(typed))}\nprintf '\\n%s %s\\n' {self._end} $?\n"
        pipe = self._pipe(self._bash.stdin)
        pipe.write(script)
        pipe.flush()
        lines: list[str] = []
        ends, code = time.monotonic() + self._seconds, None
        while code is None or (step.command.endswith("&") and not agrees(step.printed, self._told(lines))):
            line = self._next(ends, lines)
            if line.startswith(self._end):
                code = int(line.split()[1])
            else:
                lines.append(line)
        return code, self._told(lines)

    def _next(self, ends: float, lines: list[str]) -> str:
        try:
            return self._lines.get(timeout=max(0, ends - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"not done in {self._seconds} s:\n{self._told(lines)}\n{self._complaints()}") from None

    def _read(self) -> None:
        for line in self._pipe(self._bash.stdout):
            self._lines.put(line.rstrip("\n"))

    def _complaints(self) -> str:
        return (self._folder / ".stderr").read_text()[-3000:]

    @staticmethod
    def _told(lines: list[str]) -> str:
        return _PROMPTS.sub("", "\n".join(lines)).strip("\n")

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def environment(commands: Path = Path(sys.executable).parent, **more: str) -> dict[str, str]:
    """What a page's commands find: those of one environment, no setting of ours, output as it comes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SESSIONCACHE_")}
    path = f"{commands}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return {**kept, "PATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": "100", **more}
