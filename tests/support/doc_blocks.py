"""Code blocks of the documentation, and how a reader uses them.

The language of a block's fence determines its use:

- `sh`: commands, which are run in page order.
- `output`: output of the preceding `sh` block. `…` matches anything, and lines may be omitted between those shown.
- `python`: run, unless the page tells the reader to save it.
- `text`: a diagram or a listing. If it looks like commands, such as a synopsis, it must be marked as not run.
- others (`yaml`, `toml`, `json`, `sql`): data.

A paragraph that ends with "as `NAME`:" tells the reader to save the next block in the file NAME. A comment
`<!-- not run: REASON -->` on the line before a block prevents it from being run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import magnetar

ROOT = Path(magnetar.__file__).parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"\bas\s+`([\w./-]+)`:\s*\Z")
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*\Z")
COMMAND = re.compile(r"^\s*(?:[A-Z_]+=\S+ )?(?:magnetar|curl|git|pip|pytest|python3?|openssl)\s| --[a-z]", re.MULTILINE)
"""Pattern of commands."""
CHANGES_THE_MACHINE = re.compile(r"\b(?:apt(?:-get)?|git clone|make|npm|pip install|sudo|useradd)\b")
"""Commands that no test runs: they install software, access a registry, or require root."""
OUTSIDE = re.compile(r"(?<![\w.:/}*])/(?!tmp/|dev/|admin/)\w")
"""Pattern of paths that are neither relative nor below /tmp."""


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: file of the page.
        line: line number of the first line of code.
        language: language of the fence, or empty.
        code: content of the block.
        file_name: file that the reader is told to save the block in, or empty.
        not_run: why the block is not run; empty if it is run.
    """

    page: Path
    line: int
    language: str
    code: str
    file_name: str = ""
    not_run: str = ""

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    text = page.read_text()
    for match in FENCE.finditer(text):
        before = text[: match.start()]
        not_run = NOT_RUN.search(before)
        saved = SAVED.search(before)
        yield Block(
            page,
            before.count("\n") + 2,
            match[2],
            re.sub(f"^{match[1]}", "", match[3], flags=re.MULTILINE),
            saved[1] if saved else "",
            not_run[1] if not_run else "",
        )


def commands_of(block: Block) -> Iterator[tuple[int, str]]:
    """Yield each command of an `sh` block with its line number, including here-documents and continuation lines."""
    lines: list[str] = []
    for offset, line in enumerate(block.code.splitlines()):
        if not lines and (not line.strip() or line.lstrip().startswith("#")):
            continue
        lines.append(line)
        if line.endswith("\\") or is_open("\n".join(lines)):
            continue
        yield block.line + offset - len(lines) + 1, "\n".join(lines)
        lines = []
    if lines:
        yield block.line + len(block.code.splitlines()) - len(lines), "\n".join(lines)


def is_open(text: str) -> bool:
    """Return whether a string ends inside a quote or a here-document."""
    here = re.search(r"<<-?\s*['\"]?(\w+)", text)
    if here and not re.search(rf"^\s*{here[1]}$", text, re.MULTILINE):
        return True
    bare = re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|(?:^|\s)#.*", "", text)
    return not here and ("'" in bare or '"' in bare)
