"""The known word that somebody probably meant: near in its letters, and never one that does the opposite."""

from __future__ import annotations

import re
from collections.abc import Iterable

NEAR = 0.5
"""Least likeness of a command, flag or key, of which there are few and all are known to the reader's eye."""
NEAR_NAME = 0.75
"""Least likeness of a name that a user gave: another function's is not offered because it, too, ends in `-v2`."""
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
"""Words of which none may stand for another of its row: whoever says one does not want another one done."""
_ROW_OF = {word: row for row in _VERBS for word in row}
_MISSPELT = 0.7


def nearest_word(word: str, known: Iterable[str], likeness: float = NEAR) -> str | None:
    """Return the known word most like ``word``; None when none is like it or the like ones do something else."""
    if word in (known := sorted(set(known))):
        return None
    import difflib  # only for who mistypes

    close = difflib.get_close_matches(word, known, n=5, cutoff=likeness)
    meant = _verbs(word)
    return next((one for one in close if not _differ(meant, _verbs(one))), None)


def nearest(word: str, known: Iterable[str], likeness: float = NEAR) -> str:
    """Return ``; did you mean X?`` for the known word most like ``word``, or nothing when there is none."""
    found = nearest_word(word, known, likeness)
    return f"; did you mean {found}?" if found else ""


def _verbs(name: str) -> set[str]:
    """Return the verbs in a name, as they should be spelt."""
    import difflib

    words = re.findall(r"[a-z]+|[A-Z][a-z]*", name)
    return {match[0] for one in words if (match := difflib.get_close_matches(one.lower(), _ROW_OF, 1, _MISSPELT))}


def _differ(meant: set[str], offered: set[str]) -> bool:
    """Return whether a word offered does something else than the one meant."""
    return any(verb not in offered and offered.intersection(_ROW_OF[verb]) for verb in meant)
