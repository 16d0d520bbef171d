"""The demo's corpus, all lines of Python's standard library, and the direct count that its result must match."""

from __future__ import annotations

import contextlib
import stat
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .demo_functions import names_on

NOT_STANDARD = {"site-packages", "dist-packages", "__pycache__"}


@dataclass(frozen=True)
class SourceFile:
    """One file of the corpus.

    Attributes:
        name: its path below the standard library; becomes the key of its messages.
        lines: its lines without their ends.
    """

    name: str
    lines: tuple[bytes, ...]


class Corpus:
    """The source files of a directory; each iteration reads them again.

    Like the file source, this treats symbolic and hard links to the same file as one file.

    Attributes:
        root: the directory.
        paths: the files, sorted.
    """

    def __init__(self, root: Path, limit: int | None = None) -> None:
        self.root = root
        found = sorted(path for path in root.rglob("*.py") if not NOT_STANDARD.intersection(path.parts))
        self.paths = _without_links(found)[:limit]

    def __iter__(self) -> Iterator[SourceFile]:
        for path in self.paths:
            content = path.read_bytes()
            lines = content.removesuffix(b"\n").split(b"\n") if content else []
            yield SourceFile(str(path.relative_to(self.root)), tuple(lines))

    def count_lines(self) -> int:
        """Return the total number of lines in the corpus."""
        return sum(len(file.lines) for file in self)

    def count_directly(self) -> Counter[str]:
        """Count the identifiers with a plain loop, without topics and functions."""
        totals: Counter[str] = Counter()
        for file in self:
            quote = ""
            for line in file.lines:
                names, quote = names_on(line.decode(errors="replace"), quote)
                totals.update(names)
        return totals


def _without_links(paths: Sequence[Path]) -> list[Path]:
    """Return one path for each regular file, preferring real files to symbolic links."""
    by_file: dict[tuple[int, int], Path] = {}
    for path in sorted(paths, key=Path.is_symlink):
        with contextlib.suppress(OSError):  # a broken link
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                by_file.setdefault((status.st_dev, status.st_ino), path)
    return sorted(by_file.values())


def standard_library() -> Path:
    """Return the directory of the running Python's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])
