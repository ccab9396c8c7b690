"""Pictures of terminals: what of the output of a command gets into them."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from docs.pictures import FOLDER, PICTURES, last_frame, picture
from tests.conftest import ROOT

COLOURED = "\x1b[1mname\x1b[0m  \x1b[32mgood\x1b[0m\r\n"
LIVE = "\x1b[?1049h\x1b[?25l\x1b[Hfirst\r\n\x1b[Hsecond\r\nline\r\n     \r\n\x1b[?25h\x1b[?1049l"
REDRAWN = "one\r\n\x1b[1A\x1b[2Ktwo\r\n\x1b[1A\x1b[2Kthree\r\n"


def test_a_picture_shows_the_last_frame_of_a_live_view() -> None:
    assert last_frame(LIVE) == "second\nline"
    assert last_frame(REDRAWN) == "three"
    assert last_frame(COLOURED) == "\x1b[1mname\x1b[0m  \x1b[32mgood\x1b[0m"


def test_a_picture_is_the_same_each_time_and_needs_nothing_from_elsewhere() -> None:
    made = picture("doctor", COLOURED, "doctor")
    assert made == picture("doctor", COLOURED, "doctor")
    assert [word for word in ("@font-face", "url(http", "href") if word in made] == []
    shown = "".join(ET.fromstring(made).itertext()).replace("\xa0", " ")
    assert "$ sessioncache doctor" in shown
    assert "good" in shown


def test_every_picture_that_is_shown_is_there_and_every_one_there_is_made() -> None:
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    there = {path.stem for path in FOLDER.glob("*.svg")}
    assert there <= set(PICTURES)
    assert {name for name in PICTURES if f"pictures/{name}.svg" in pages} <= there
