"""The two functions of ``magnetar demo``, as a user would write them, independent of the demo.

`Identifiers` extracts the identifiers from a line of Python, `Count` counts them in its state.
"""

from __future__ import annotations

import keyword
import re

from magnetar import Context, Function, SerDe

TOKEN = re.compile(
    r"""(?:(?<!\w)[rbuf]{1,2})?(?P<quote>'{3}|"{3})"""  # a multi-line string may start here
    r"""|(?:(?<!\w)[rbuf]{1,2})?(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""  # a string on a single line
    r"""|\#.*"""
    r"""|(?P<name>[^\W\d]\w*)""",
    re.IGNORECASE,
)
KEYWORDS = frozenset(keyword.kwlist)


class Utf8(SerDe):
    """SerDe for plain text. With the default SerDe, a function would receive the line ``42`` as a number."""

    def serialize(self, input: str) -> bytes:  # noqa: A002  name required by the interface
        """Encode a string."""
        return input.encode()

    def deserialize(self, input_bytes: bytes) -> str:
        """Decode bytes; invalid UTF-8 is replaced."""
        return input_bytes.decode(errors="replace")


class Identifiers(Function):
    """Finds identifiers, ignoring strings and comments; a message's key is its file name."""

    def __init__(self) -> None:
        self.open_quotes: dict[str, str] = {}

    def process(self, input: str, context: Context) -> str | None:  # noqa: A002
        """Return the identifiers of a line, separated by spaces, or None for no output."""
        file = context.get_message_key()
        names, quote = names_on(input, self.open_quotes.pop(file, ""))
        if quote:
            self.open_quotes[file] = quote
        return " ".join(names) or None


def names_on(line: str, quote: str) -> tuple[list[str], str]:
    """Return the names in a line, and the quotes of a string that is still open at its end.

    Args:
        line: the line without its line end.
        quote: the triple quotes of a string that an earlier line opened, or empty.
    """
    names: list[str] = []
    place = 0
    while True:
        if quote:
            end = line.find(quote, place)
            if end < 0:
                return names, quote
            place, quote = end + 3, ""
        found = TOKEN.search(line, place)
        while found is not None:
            place = found.end()
            name, quote = found["name"], found["quote"] or ""
            if quote:
                break
            if name is not None and name not in KEYWORDS:
                names.append(name)
            found = TOKEN.search(line, place)
        else:
            return names, ""


class Count(Function):
    """Counts words; ``magnetar functions querystate`` shows how often one occurred."""

    def process(self, input: str, context: Context) -> None:  # noqa: A002
        """Add each word of a message to its counter."""
        for word in input.split():
            context.incr_counter(word, 1)
