"""Views of ``top``: a screen that is drawn anew, or a line a sample."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from sessioncache.cli.samples import as_json, as_line
from sessioncache.cli.screen import render
from sessioncache.hot.metrics import Sample

Show = Callable[[Sequence[Sample], str], None]
"""Shows the samples so far, and why Redis could not be read this time (empty: it could)."""


@contextmanager
def open_view(*, json: bool, quitting: asyncio.Event) -> Iterator[Show]:
    """The view that standard output is good for; `quitting` is set once the user has had enough."""
    console = Console()
    if json or not console.is_terminal or console.is_dumb_terminal:
        line = as_json if json else as_line
        yield lambda pulses, away: print(line(pulses, away), flush=True)
        return
    with _keys(quitting), Live(console=console, screen=True, auto_refresh=False) as live:
        yield lambda pulses, away: live.update(render(pulses, away=away), refresh=True)


@contextmanager
def _keys(quitting: asyncio.Event) -> Iterator[None]:
    """Read single keys meanwhile, where there is a keyboard."""
    if not sys.stdin.isatty():
        yield
        return
    keyboard, loop = sys.stdin.fileno(), asyncio.get_running_loop()

    def pressed() -> None:
        keys = os.read(keyboard, 64)
        if not keys or b"q" in keys.lower():
            quitting.set()

    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, pressed)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
