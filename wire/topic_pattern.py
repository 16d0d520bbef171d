"""Untrusted topic name patterns, matched in time linear in the length of the name.

Python's engine backtracks, so that a pattern as short as ``.*.*.*.*.*!`` keeps it busy for minutes. RE2 does not; the
constructs that it therefore does not support, and those that it interprets differently from Java's `java.util.regex`,
for which clients write patterns, are rejected by name. The size of the compiled program is limited, as it also
determines the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from ..errors import InvalidPattern, PatternNotSupported

MAX_PROGRAM_STEPS = 500
"""Limit of instructions of a compiled pattern. Usual ones have less than a hundred; at the limit a name takes 20 us."""
MAX_MEMORY_BYTES = 256 * 1024
"""RE2's memory limit for a pattern."""

_NOT_IN_RE2 = (
    (re.compile(r"\(\?<?[=!]"), "look-ahead and look-behind"),
    (re.compile(r"\(\?>"), "atomic groups"),
    (re.compile(r"[*+?}]\+"), "possessive quantifiers"),
    (re.compile(r"\\(?:[1-9]|k<)"), "back references"),
    (re.compile(r"\\[hHRvVXGZNue0]"), "this escape of Java's"),
    (re.compile(r"\(\?[a-zA-Z]*[dxuU]"), "this flag of Java's"),
    (re.compile(r"\\[pP]\{(?:java|Is|In|blk|sc|Lower|Upper|ASCII|Alpha|Digit|Alnum|Punct|Graph|Print|Blank|Cntrl|XDig|Space)"),
     "this class of characters of Java's"),
    (re.compile(r"\{\d{4,}|\{\d+,\d{4,}"), "more than 1000 repetitions"),
)  # fmt: skip
# RE2 treats these as literal characters.
_READ_OTHERWISE = re.compile(r"\[(?:[^\]\\]|\\.)*?(?:&&|\[(?!:))")
_ESCAPED = re.compile(r"\\Q.*?(?:\\E|$)|\\[^\w]", re.DOTALL)
_REMEDY = "write the pattern without"


@lru_cache(maxsize=64)
def compile_pattern(text: str) -> Callable[[str], bool]:
    """Return a function that returns whether a whole name matches a pattern.

    Raises:
        PatternNotSupported: the pattern is a Java regular expression with an unsupported construct.
        InvalidPattern: the pattern is not a valid regular expression.
    """
    import re2  # imported here, as it takes 3 MB and few processes need it

    bare = _ESCAPED.sub("_", text)
    if _READ_OTHERWISE.search(bare):
        raise PatternNotSupported(f"pattern {text!r}: sets inside of sets are not supported; {_REMEDY}")
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
                    f"pattern {text!r}: {what} are not supported ({reason}); {_REMEDY}"
                ) from error
        raise InvalidPattern(f"pattern {text!r} is not a valid regular expression: {reason}") from error
    if program.programsize > MAX_PROGRAM_STEPS:
        raise _too_large(text, f"{program.programsize} steps, {MAX_PROGRAM_STEPS} are allowed")
    fullmatch = program.fullmatch
    return lambda name: fullmatch(name) is not None


def _too_large(text: str, numbers: str = f"more than {MAX_MEMORY_BYTES} bytes") -> PatternNotSupported:
    return PatternNotSupported(f"pattern {text!r} is too large ({numbers}); repeat less, or use several patterns")
