"""A hook of mkdocs: pages that stand outside docs/ are part of the site, and links to them lead there."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {
    "README.md": "index.md",
    "deploy/README.md": "deployment.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
"""Where a page stands in the repository -> where in the site."""
_LINK = re.compile(r"\[([^]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Have links lead to where their targets are in the site; what is not part of it is named, not linked."""
    here = page.file.src_uri
    source = next((path for path, at in OUTSIDE.items() if at == here), join("docs", here))

    def moved(link: re.Match[str]) -> str:
        target = normpath(join(dirname(source), link[2]))
        if target in OUTSIDE:
            at = OUTSIDE[target]
        elif target.startswith("docs/"):
            at = target.removeprefix("docs/")
        else:
            return link[1]  # a file of the repository
        return f"[{link[1]}]({relpath(at, dirname(here) or '.')}{link[3] or ''})"

    return _LINK.sub(moved, markdown)
