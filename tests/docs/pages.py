"""The code blocks of a page of the documentation.

Every fence names its language.  Beside the fences there are two comments that readers do not see:

- ``<!-- not run: REASON -->`` before a block that cannot be run;
- ``<!-- hidden`` … ``-->``: Python that is run at its place, to set up or to check what the blocks around it show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

SERVERS = "redis://localhost:6379/0", "postgresql://localhost/sessioncache"
"""What pages call the servers of the reader's own."""

NOT_CODE = frozenset({"text", "mermaid"})
"""Languages of blocks that nobody takes for something to run."""

_PART = re.compile(
    r"^```(?P<info>.*)\n(?P<text>(?:.*\n)*?)```$"
    r"|^<!-- not run: (?P<reason>[^>]+?) -->$"
    r"|^<!-- hidden\n(?P<hidden>(?:.*\n)*?)-->$",
    re.MULTILINE,
)
_TITLE = re.compile(r'title="([^"/]+)"')


@dataclass(frozen=True)
class Block:
    """One block of a page, in the order of the page."""

    page: Path
    line: int
    language: str
    text: str
    title: str = ""
    """The file that the block is the content of."""
    reason: str = ""
    """Why it is not run."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """All pages whose blocks are run."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, hidden ones included."""
    return list(_blocks(page, page.read_text()))


def _blocks(page: Path, text: str) -> Iterator[Block]:
    reason = ""
    for part in _PART.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        if part["reason"]:
            reason = part["reason"]
        elif part["hidden"]:
            yield Block(page, line, "python", part["hidden"])
        else:
            language, _, rest = part["info"].strip().partition(" ")
            title = _TITLE.search(rest)
            yield Block(page, line, language, part["text"], title[1] if title else "", reason)
            reason = ""


@dataclass(frozen=True)
class Step:
    """A command of a transcript, what is typed into it, and what it prints."""

    command: str
    typed: str
    printed: str


def steps(transcript: str) -> list[Step]:
    """The commands of a ``console`` block: ``$ `` before a command, ``> `` before what a person types into it."""
    made: list[Step] = []
    for part in re.split(r"^\$ ", transcript, flags=re.MULTILINE)[1:]:
        command, *lines = part.splitlines()
        while command.endswith("\\"):
            command = command[:-1] + lines.pop(0)
        typed = "".join(f"{line[2:]}\n" for line in lines if line.startswith("> "))
        printed = "".join(f"{line}\n" for line in lines if not line.startswith("> ")).rstrip("\n")
        made.append(Step(command.split("  # ")[0].rstrip(), typed, printed))
    return made


def agrees(shown: str, printed: str) -> bool:
    """Whether a command printed what the page shows.

    On the page ``…`` stands for any text within a line, and on a line of its own for any number of lines.  How wide
    a gap is does not matter.
    """
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*?") + r"\n" for line in _lines(shown)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(printed))) is not None


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]
