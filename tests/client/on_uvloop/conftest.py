"""The event loop of the tests in this folder."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], AbstractEventLoop]]:
    """Each test here runs on uvloop."""
    return {"uvloop": uvloop.new_event_loop}
