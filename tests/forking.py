"""Forked children of the test's own process, bounded in time."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable
from typing import Any, NoReturn

PATIENCE = 40.0


class Child:
    """A fork of this process that runs `work` and ends; its result, or the name and text of its error, is JSON."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._pipe, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _run(work, theirs)
        os.close(theirs)

    def answer(self) -> Any:
        """Wait for the result, and for the end of the child."""
        try:
            ready, _, _ = select.select([self._pipe], [], [], PATIENCE)
            if not ready:
                os.kill(self.pid, signal.SIGKILL)
                raise TimeoutError("the child hangs")
            with os.fdopen(os.dup(self._pipe), "rb") as pipe:
                return json.loads(pipe.read())
        finally:
            os.close(self._pipe)
            os.waitpid(self.pid, 0)


def _run(work: Callable[[], Any], pipe: int) -> NoReturn:
    try:
        answer = work()
    except BaseException as error:
        answer = [type(error).__name__, str(error)]
    os.write(pipe, json.dumps(answer).encode())
    os._exit(0)


def in_child(work: Callable[[], Any]) -> Any:
    """What `work` returns in a forked child."""
    return Child(work).answer()
