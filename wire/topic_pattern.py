"""Matching of untrusted topic name patterns, in time linear in the length of the name.

Python's engine backtracks, so that a pattern as short as ``.*.*.*.*.*!`` keeps it busy for minutes. RE2 does not
backtrack. The constructs that it therefore does not support are rejected by name, and so are those that it interprets
differently from `java.util.regex`, for which clients write patterns. The size of the compiled program is limited,
because it also determines the matching time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from ..errors import InvalidPattern, PatternNotSupported

MAX_PROGRAM_STEPS = 500
"""Maximum instructions of a compiled pattern. Most have fewer than a hundred; at the limit a match takes 20 µs."""
MAX_MEMORY_BYTES = 256 * 1024
"""RE2's memory limit for a pattern."""

_NOT_IN_RE2 = (
    (re.compile(r"\(\?<?[=!]"), "lookahead and lookbehind"),
    (re.compile(r"\(\?>"), "atomic groups"),
    (re.compile(r"[*+?}]\+"), "possessive quantifiers"),
    (re.compile(r"\\(?:[1-9]|k<)"), "backreferences"),
    (re.compile(r"\\[hHRvVXGZNue0]"), "some Java escapes"),
    (re.compile(r"\(\?[a-zA-Z]*[dxuU]"), "some Java flags"),
    (re.compile(r"\\[pP]\{(?:java|Is|In|blk|sc|Lower|Upper|ASCII|Alpha|Digit|Alnum|Punct|Graph|Print|Blank|Cntrl|XDig|Space)"),
     "some Java character classes"),
    (re.compile(r"\{\d{4,}|\{\d+,\d{4,}"), "more than 1000 repetitions"),
)  # fmt: skip
# RE2 treats these as literal characters.
_READ_OTHERWISE = re.compile(r"\[(?:[^\]\\]|\\.)*?(?:&&|\[(?!:))")
_ESCAPED = re.compile(r"\\Q.*?(?:\\E|$)|\\[^\w]", re.DOTALL)
_REMEDY = "rewrite the pattern without them"


@lru_cache(maxsize=64)
def compile_pattern(text: str) -> Callable[[str], bool]:
    """Return a predicate that matches whole names against a pattern.

    Raises:
        PatternNotSupported: the pattern is a Java regular expression with an unsupported construct.
        InvalidPattern: the pattern is not a valid regular expression.
    """
    import re2  # imported here, as it takes 3 MB and few processes need it

    bare = _ESCAPED.sub("_", text)
    if _READ_OTHERWISE.search(bare):
        raise PatternNotSupported(f"pattern {text!r}: nested character sets are not supported: {_REMEDY}")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MAX_MEMORY_BYTES
    try:
        program = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        if reason.startswith("pattern too large"):
            raise _too_large(text) from error
        for lacking, what in _NOT_IN_RE2:
            if lacking.search(bare):
                raise PatternNotSupported(
                    f"pattern {text!r}: {what} are not supported ({reason}): {_REMEDY}"
                ) from error
        raise InvalidPattern(f"pattern {text!r} is not a valid regular expression: {reason}") from error
    if program.programsize > MAX_PROGRAM_STEPS:
        raise _too_large(text, f"{program.programsize} steps, the limit is {MAX_PROGRAM_STEPS}")
    fullmatch = program.fullmatch
    return lambda name: fullmatch(name) is not None


def _too_large(text: str, numbers: str = f"more than {MAX_MEMORY_BYTES} bytes") -> PatternNotSupported:
    return PatternNotSupported(f"pattern {text!r} is too large ({numbers}): use fewer repetitions, or several patterns")
