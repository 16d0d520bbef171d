"""Determine what a requirements.txt depends on: other files, an index, or only hashes.

Two functions share an installation if it would be identical for both. That is certain if every line names a release
with its hashes. Otherwise another tenant's installation is not reused, because that tenant chose the time and source of
its installation. A line may name files of the package (`./lib`, `-r more/base.txt`, `-e .`); then these files are part
of the requirements.

Source: pip's documentation, "Requirements File Format".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[^\]]*\])?\s*($|[;(=<>!~]|--hash|@\s*https?://)")
"""A release name and what may follow; paths have a slash or a suffix, and so do not match."""
_ARCHIVE = re.compile(r"\.(whl|zip|tar|tar\.\w+|tgz)$", re.IGNORECASE)
_INCLUDES = re.compile(r"(-r|--requirement|-c|--constraint)\s*=?\s*(?P<name>\S+)$")
_OF_INDEXES = (
    "--index-url", "-i", "--extra-index-url", "--no-index", "--pre", "--prefer-binary", "--only-binary", "--no-binary",
    "--require-hashes", "--trusted-host", "--use-feature",
)  # fmt: skip
_COMMENT = re.compile(r"(^|\s)#.*$")


class Origin(Enum):
    """The sources that determine the installed packages."""

    HASHES = "the file alone, because each release has its hashes"
    INDEX = "the file and an index"
    PACKAGE = "the file and files of the package"


def origin_of(requirements: Path) -> Origin:
    """Return the origin of the packages installed by a requirements.txt.

    Args:
        requirements: path of the file; included files in the same directory are considered, too.
    """
    return max((_origin_of(line, requirements.parent) for line in _lines(requirements, set())), key=list(Origin).index,
               default=Origin.HASHES)  # fmt: skip


def _origin_of(line: str, directory: Path) -> Origin:
    if line.startswith(_OF_INDEXES):
        return Origin.HASHES  # an index option alone determines no package
    name = line.split(";")[0].split(" --")[0].strip()
    if not _RELEASE.match(line) or ("@" not in line and _ARCHIVE.search(name)) or (directory / name).exists():
        return Origin.PACKAGE
    return Origin.HASHES if "--hash" in line else Origin.INDEX


def _lines(file: Path, seen: set[Path]) -> Iterator[str]:
    """Yield the lines that pip would read, without comments, including those of included files."""
    seen.add(file)
    text = file.read_text(encoding="utf-8-sig", errors="replace").replace("\\\n", " ").replace("\\\r\n", " ")
    for whole in text.splitlines():
        line = _COMMENT.sub("", whole).strip()
        if not line:
            continue
        included = _INCLUDES.match(line)
        other = file.parent / included["name"] if included else file
        if not included or "/" in included["name"] or other.suffix != ".txt" or not other.is_file():
            yield line
        elif other not in seen:
            yield from _lines(other, seen)
