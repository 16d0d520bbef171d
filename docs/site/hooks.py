"""Hooks of MkDocs: the README becomes the first page, and the site holds what pages link to outside of `docs/`.

Pages of the repository link to each other by paths that work where the files lie. A site has `docs/` alone, so links
that leave it lead to copies below `repository/`: pages of text as pages, other files as they are.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
OUTSIDE = "repository"
"""Folder of the site for what lies outside of `docs/`."""
_LINK = re.compile(r"(?<=\]\()([^)\s#]*)(#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)


def uri_of(path: Path) -> str:
    """Return where a file of the repository stands in the site; a folder is its README.

    Raises:
        ValueError: it is not of the repository, or there is nothing to show of it.
    """
    path = path.resolve()
    if path.is_dir():
        path /= "README.md"
    if not path.is_file():
        raise ValueError(f"{path} does not exist")
    if path == README:
        return "index.md"
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"{OUTSIDE}/{path.relative_to(ROOT).as_posix()}"


def rewritten(text: str, origin: Path) -> tuple[str, set[Path]]:
    """Return a page with links that work in the site, and the files that it links to.

    Args:
        text: the page in Markdown.
        origin: the file that it is of.

    Raises:
        ValueError: a link leads nowhere.
    """
    found: set[Path] = set()
    here = os.path.dirname(uri_of(origin))

    def link(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        path = (origin.parent / target).resolve()
        found.add(path / "README.md" if path.is_dir() else path)
        return os.path.relpath(uri_of(path), here or ".") + anchor

    parts = _FENCE.split(text)  # every second one is a block of code
    return "".join(part if number % 2 else _LINK.sub(link, part) for number, part in enumerate(parts)), found


def pages() -> dict[str, Path]:
    """Return every file of the site that `docs/` does not have, by its place in the site."""
    outside: dict[str, Path] = {}
    waiting = [README, *sorted(DOCS.rglob("*.md"))]
    while waiting:
        origin = waiting.pop()
        _, targets = rewritten(origin.read_text(), origin)
        for target in sorted(targets):
            uri = uri_of(target)
            if not target.is_relative_to(DOCS) and target != README and uri not in outside:
                outside[uri] = target
                if target.suffix == ".md":
                    waiting.append(target)
    return {"index.md": README, **outside}


def on_files(files: Any, config: Any) -> Any:
    """Add what lies outside of `docs/`; called by MkDocs."""
    from mkdocs.structure.files import File

    for uri, path in pages().items():
        if path.suffix == ".md":
            files.append(File.generated(config, uri, content=path.read_text()))
        else:
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let the links of a page work in the site; called by MkDocs."""
    origins = pages()
    uri = page.file.src_uri
    return rewritten(markdown, origins.get(uri, DOCS / uri))[0]
