"""Suggestions for mistyped words: a known word with similar letters, but never one with the opposite effect."""

from __future__ import annotations

import re
from collections.abc import Iterable

NEAR = 0.5
"""Minimum similarity of commands, flags and keys, which are few and easily distinguished by users."""
NEAR_NAME = 0.75
"""Minimum similarity of user-defined names; high, so that a shared suffix such as `-v2` is not sufficient."""
_VERBS = (
    ("get", "set", "remove", "delete", "clear", "create", "update"),
    ("start", "stop", "restart"),
    ("enable", "disable"),
    ("grant", "revoke"),
    ("pause", "resume"),
    ("upload", "download"),
    ("subscribe", "unsubscribe"),
    ("lock", "unlock"),
    ("produce", "consume"),
    ("put", "query"),
)
"""Groups of verbs with different effects; a verb is never suggested for another one of its group."""
_ROW_OF = {word: row for row in _VERBS for word in row}
_MISSPELT = 0.7


def nearest_word(word: str, known: Iterable[str], likeness: float = NEAR) -> str | None:
    """Return the known word most similar to ``word`` and with the same effect, or None."""
    if word in (known := sorted(set(known))):
        return None
    import difflib  # imported only if a word was mistyped

    close = difflib.get_close_matches(word, known, n=5, cutoff=likeness)
    meant = _verbs(word)
    return next((one for one in close if not _differ(meant, _verbs(one))), None)


def nearest(word: str, known: Iterable[str], likeness: float = NEAR) -> str:
    """Return ``; did you mean X?`` for the known word most similar to ``word``, or an empty string."""
    found = nearest_word(word, known, likeness)
    return f"; did you mean {found}?" if found else ""


def _verbs(name: str) -> set[str]:
    """Return the verbs in a name, with their spelling corrected."""
    import difflib

    words = re.findall(r"[a-z]+|[A-Z][a-z]*", name)
    return {match[0] for one in words if (match := difflib.get_close_matches(one.lower(), _ROW_OF, 1, _MISSPELT))}


def _differ(meant: set[str], offered: set[str]) -> bool:
    """Return whether a suggested word has a different effect than the intended one."""
    return any(verb not in offered and offered.intersection(_ROW_OF[verb]) for verb in meant)
