"""The clock of a Redis server, which can be set forward and back while it runs (see clock.c)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Self

_SOURCE = Path(__file__).with_name("clock.c")


class Clock:
    """How far a clock is ahead of the true one, as a file tells the process."""

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self._ahead = 0
        self.env = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(file)}
        self.step(0)

    @classmethod
    def of(cls, folder: Path) -> Self | None:
        """A clock whose files are in a folder; None without Linux and a C compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None or sys.platform != "linux":
            return None
        library = folder / "clock.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, _SOURCE], check=True)
        return cls(library, folder / "clock")

    def step(self, seconds: int) -> None:
        """Set the clock forward, or back."""
        self._ahead += seconds
        new = self._file.with_suffix(".new")
        new.write_text(f"{self._ahead:+d}\n")
        new.rename(self._file)
