"""Takes pictures of the commands for people: SVG of what they show on a terminal of a fixed size.

``python docs/pictures.py`` fills a data folder, runs the commands on it while an agent works, and writes the pictures.
"""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from contextlib import suppress
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "workers")]

from sessioncache import Session, SessionCache  # noqa: E402 - found by the line above where nothing is installed

FOLDER = ROOT / "docs" / "pictures"
COLUMNS, ROWS = 100, 30
_SECONDS = 60
"""What a command may take."""

PICTURES = {
    "sessions": "sessions list --app trips",
    "show": "sessions show trip-1 --app trips",
    "doctor": "doctor",
    "top": "top --interval 0.5 --count 8",
}
"""Name of the picture, and what is run for it."""

_TITLES = (
    "My name is Ada. I want to go to Lisbon.",
    "Which documents does a Canadian need for Vietnam?",
    "Please change my seat on flight 302",
    "旅程をもう一度見せてください",
    "Is there a train from Porto to Vigo?",
    "What will the weather be in Oslo on Friday?",
)
_USERS = ("ada", "bob", "chi")
_FRAME = re.compile(r"\x1b\[(?:\d+;\d+)?[Hf]|\x1b\[2J|(?:\x1b\[1A\x1b\[2K)+|\x1b\[\?1049[hl]")
"""Where a live view begins to draw anew, or gives the screen back."""
_NO_COLOUR = re.compile(r"\x1b\[[\d;?]*[A-Za-ln-z]|\x1b[=>]|\r")
"""Control sequences other than colours."""

_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Without fonts from elsewhere: a picture looks the same offline."""


async def main() -> None:
    """Take all pictures, or those that are named."""
    wanted = sys.argv[1:] or list(PICTURES)
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sc-", ignore_cleanup_errors=True) as folder:
        async with SessionCache.connect(app="trips", data_dir=folder) as cache:
            sessions = [await _fill(cache, number) for number in range(len(_TITLES))]
            await cache.flush()  # then the folder has its worker
            working = asyncio.create_task(_work(sessions))
            for name in wanted:
                printed = await asyncio.to_thread(printed_by, PICTURES[name], folder)
                printed = printed.replace(f"{folder}/", ".sessioncache/")
                (FOLDER / f"{name}.svg").write_text(picture(PICTURES[name], printed, name))
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            await cache.flush()


async def _fill(cache: SessionCache, number: int) -> Session:
    """A conversation of some turns."""
    session = await cache.create(_USERS[number % len(_USERS)], session_id=f"trip-{number + 1}", state={"turns": 0})
    await session.update({"city": "Lisbon", "legs": ["YYZ-LIS", "LIS-YYZ"], "user:language": "en"})
    await session.namespace("skills").update({"fares": "watch", "trains": "off"})
    await session.touch(messages=2 * number + 2, tokens=640 * (number + 1), first_message=_TITLES[number])
    return session


async def _work(sessions: list[Session]) -> None:
    """An agent that goes on meanwhile, so that there is something to see."""
    while True:
        await asyncio.gather(*(session.increment("turns") for session in sessions))
        await asyncio.sleep(0.02)


def printed_by(command: str, folder: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {name: value for name, value in os.environ.items() if not name.startswith("SESSIONCACHE_")}
    env |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "SESSIONCACHE_DATA_DIR": folder}
    run = [sys.executable, "-c", "import sys; from sessioncache.cli import main; sys.exit(main())", *command.split()]
    process = subprocess.Popen(run, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=ROOT)
    os.close(theirs)
    try:
        return _read_all(ours)
    finally:
        os.close(ours)
        if process.wait(_SECONDS) > 1:
            raise SystemExit(f"sessioncache {command} ended with {process.returncode}")


def _read_all(terminal: int) -> str:
    parts = []
    with suppress(OSError):  # how Linux says that nobody has the other end open any more
        while part := os.read(terminal, 65_536):
            parts.append(part)
    return b"".join(parts).decode()


def last_frame(printed: str) -> str:
    """What stands on the screen at the end: all of it, or the last frame of a live view."""
    frames = [_NO_COLOUR.sub("", frame) for frame in _FRAME.split(printed)]
    lines = [frame for frame in frames if Text.from_ansi(frame).plain.strip()][-1].splitlines()
    while not Text.from_ansi(lines[-1]).plain.strip():
        lines.pop()
    return "\n".join(lines)


def picture(command: str, printed: str, name: str) -> str:
    """An SVG of a terminal in which a command has been run."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ sessioncache {command}", style="bold"))
    console.print(Text.from_ansi(last_frame(printed)), no_wrap=True, crop=True)
    unique = f"sessioncache-{name}"
    return console.export_svg(title="sessioncache", theme=MONOKAI, code_format=_FORMAT, unique_id=unique)


if __name__ == "__main__":
    asyncio.run(main())
