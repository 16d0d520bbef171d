"""Detection of copies of growing files, such as rotated logs, so that no content is read twice.

A copy is recognised by the digest of its first bytes. Files shorter than `HEAD_BYTES` provide few bytes, and an
unrelated file may well start the same, such as a log with the same first line. A short copy must therefore also fit the
state of the original:

- A compressed file is a copy if the original was removed, or if both have the same length.
- A plain file is a copy if the original was truncated after the copy was written.
- A plain file of the same length and with a similar name (``app.log.1`` or ``app-1.log`` next to ``app.log``) may be a
  copy of an original that is about to be truncated. It is rechecked until it is `UNDECIDED_S` old, and then counts as a
  separate file.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from .file_text import HEAD_BYTES, FileText, Place

UNDECIDED_S = 30.0


class Copies:
    """Compares new files with files already read, and updates the known positions."""

    def __init__(self, known: dict[str, Place], is_tail: bool) -> None:
        """Create a comparison.

        Args:
            known: positions by file key. The key of a truncated text is the file's key, ``~`` and the digest.
            is_tail: whether files grow.
        """
        self._known = known
        self._is_tail = is_tail
        self._cut_s: dict[str, float] = {}  # time when a truncation was detected, in seconds since 1970
        self._opened_s = time.time()

    def cut(self, key: str) -> None:
        """Record that a file was truncated."""
        place = self._known.pop(key)
        if self._is_tail:
            name = f"{key}~{place.head}"
            self._known[name] = place
            self._cut_s[name] = time.time()

    def read_of(self, text: FileText, present: Mapping[str, str]) -> int | None:
        """Return how far a text was already read in another file, 0 if unread, or None if this cannot be decided yet.

        Args:
            text: the text of an unread file.
            present: names of the existing files, by key.
        """
        is_undecided = False
        for key, place in reversed(self._known.items()):
            if key.partition("~")[0] == text.key or not text.begins_like(place):
                continue
            if place.offset < HEAD_BYTES:
                fits = self._fits(text, key, place, present)
                is_undecided |= fits is None
                if not fits:
                    continue
            if (offset := text.find(place, is_copy=True)) is not None:
                return offset
        return None if is_undecided else 0

    def _fits(self, text: FileText, key: str, place: Place, present: Mapping[str, str]) -> bool | None:
        """Return whether a short text can be a copy of another, or None if this cannot be decided yet."""
        if "~" in key:
            return text.is_compressed or text.status.st_mtime <= self._cut_s.get(key, self._opened_s)
        if text.is_compressed and key not in present:
            return True
        if not text.has_length(place.offset):
            return False
        if text.is_compressed:
            return True
        stem = present.get(key, "\0").lstrip(".").partition(".")[0]
        is_recent = time.time() - text.status.st_mtime < UNDECIDED_S
        return None if is_recent and text.path.name.lstrip(".").startswith(stem) else False
