"""The two functions of ``magnetar demo``, as a user would write them; nothing here knows of the demo.

`identifiers` turns a line of Python into the identifiers on it, `count` turns identifiers into counts.
"""

from __future__ import annotations

import json
import keyword
import re
from collections import Counter

from magnetar import SerDe

IDENTIFIER = re.compile(r"[^\W\d]\w*")
KEYWORDS = frozenset(keyword.kwlist)


class Utf8(SerDe):
    """Text as it is: without a SerDe of its own a function is given the line ``42`` as a number."""

    def serialize(self, input: str) -> bytes:  # noqa: A002  the name that the contract gives
        """Return the bytes of a text."""
        return input.encode()

    def deserialize(self, input_bytes: bytes) -> str:
        """Return the text of bytes; what is not UTF-8 is replaced."""
        return input_bytes.decode(errors="replace")


def identifiers(line: str) -> str | None:
    """Return the identifiers of a line, one space between two; None, no output at all, for a line without."""
    found = [word for word in IDENTIFIER.findall(line) if word not in KEYWORDS]
    return " ".join(found) or None


def count(words: str) -> str:
    """Return how often each word occurs, as JSON."""
    return json.dumps(Counter(words.split()))
