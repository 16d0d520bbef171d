"""Limit the words that make prose read like a translation, per top-level folder.

Each of the words is fine now and then, but not by the hundred. `.ci/prose.json` has the allowed counts by folder, with
"." for files in the root. `make check` runs `python -m tests.support.prose`, which fails if a count differs from the
allowed one. If it is higher, reword the text. If it is lower, `--update` lowers the allowed count; it never raises one.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = Path(".ci/prose.json")
WORDS = re.compile(r"\b(?:nobody|somebody|whoever|anew|told)\b|\bis (?!(?-i:None\b))(?:none|no)\b", re.IGNORECASE)
"""`is None` is allowed, because it is Python."""
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


class Finding(NamedTuple):
    """An occurrence of a flagged word."""

    path: str
    line: int
    word: str

    @property
    def folder(self) -> str:
        """The top-level folder, or "." for a file in the root."""
        return self.path.partition("/")[0] if "/" in self.path else "."

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r}"


def in_text(path: str, text: str) -> list[Finding]:
    """Return all findings in a file, in order."""
    lines = enumerate(text.splitlines(), start=1)
    return [Finding(path, number, match[0]) for number, line in lines for match in WORDS.finditer(line)]


def in_repository(root: Path) -> list[Finding]:
    """Return all findings in the text files that git tracks, except those below tests/."""
    found: list[Finding] = []
    for path in _git(root, "ls-files", "-z", "--", ":!tests").split("\0"):
        file = root / path
        if path and file.is_file():
            try:
                found += in_text(path, file.read_text())
            except UnicodeDecodeError:
                continue  # not text
    return found


def changed_lines(root: Path) -> set[tuple[str, int]]:
    """Return path and number of each line that changed since the last commit of the allowed counts."""
    base = _git(root, "log", "-1", "--format=%H", "--", ALLOWED.as_posix()).strip()
    changed: set[tuple[str, int]] = set()
    path = ""
    for line in _git(root, "diff", "--unified=0", "--no-color", "--no-ext-diff", base or "HEAD").splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif hunk := _HUNK.match(line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            changed.update((path, number) for number in range(first, first + count))
    return changed


def problems(
    found: Sequence[Finding], allowed: Mapping[str, int], changed: set[tuple[str, int]] | None = None
) -> list[str]:
    """Return an error message for each folder whose count differs from the allowed one.

    Args:
        found: all findings.
        allowed: allowed counts by folder, 0 if a folder is missing.
        changed: path and number of changed lines. Messages list only findings in these lines, or all findings in the
            folder if there are none.
    """
    counts = Counter(one.folder for one in found)
    said: list[str] = []
    for folder in sorted({*counts, *allowed}):
        count, limit = counts[folder], allowed.get(folder, 0)
        if count > limit:
            here = [one for one in found if one.folder == folder]
            named = [one for one in here if changed and (one.path, one.line) in changed] or here
            places = "".join(f"\n  {one}" for one in named)
            said.append(f"{folder}: {count} words that read like a translation, {limit} allowed: reword{places}")
        elif count < limit:
            said.append(f"{folder}: {count} words, {limit} allowed: run python -m tests.support.prose --update")
    return said


def lowered(found: Sequence[Finding], allowed: Mapping[str, int]) -> dict[str, int]:
    """Return the allowed counts, lowered to the number of findings; folders without findings are omitted."""
    counts = Counter(one.folder for one in found)
    lower = {folder: min(limit, counts[folder]) for folder, limit in sorted(allowed.items())}
    return {folder: limit for folder, limit in lower.items() if limit}


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the check and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.prose", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--update", action="store_true", help="lower the allowed counts to the current ones")
    options = parser.parse_args(arguments)
    file = root / ALLOWED
    allowed: dict[str, int] = json.loads(file.read_text())
    found = in_repository(root)
    if options.update:
        allowed = lowered(found, allowed)
        file.write_text(json.dumps(allowed, indent=2) + "\n")
    said = problems(found, allowed, changed_lines(root))
    for one in said:
        print(one, file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
