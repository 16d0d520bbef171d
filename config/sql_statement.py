"""The SQL statement of a function without code: view names, and checks that work without Spark.

Only certain errors are reported when the function is created. The statement is not parsed here, because only Spark's
own grammar determines what is valid: a false error would be worse than an error that Spark reports some seconds later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..errors import InvalidConfig
from ..wire.topic_name import parse_topic_name

SQL_CLASS = "sql"
"""Used instead of a class name, and as the name of a built-in package."""
STATEMENT_CHARACTERS_MAX = 65_536
QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
"""First words of a query, apart from parentheses."""
_TOKENS = re.compile(
    r"""
      (?P<space>\s+|--[^\n]*)
    | (?P<comment>/\*)
    | (?P<raw>[rR](?P<raw_quote>['"]))
    | (?P<quote>['"`])
    | (?P<word>\w+)
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARKS = re.compile(r"/\*|\*/")


def view_names(topics: Iterable[str]) -> dict[str, str]:
    """Return the view name of each input, by topic as passed.

    The view name is the last part of the topic name, with underscores for invalid characters. If Spark considers two
    such names equal, they are prefixed with tenant and namespace.

    Raises:
        InvalidConfig: two names are still equal.
    """
    parsed = {text: parse_topic_name(text) for text in sorted(topics)}
    short = {text: _identifier(topic.local) for text, topic in parsed.items()}
    names = {
        text: name if _count(short.values(), name) == 1 else _identifier(f"{topic.tenant}_{topic.namespace}_{name}")
        for (text, topic), name in zip(parsed.items(), short.values(), strict=True)
    }
    seen: dict[str, str] = {}
    for text, name in names.items():
        other = seen.setdefault(name.lower(), text)
        if other != text:
            raise InvalidConfig(
                f"inputs {other} and {text} would have the same view name {name}: remove one of them, or read it in "
                f"another function"
            )
    return names


def _identifier(text: str) -> str:
    return re.sub(r"\W", "_", text)


def _count(names: Iterable[str], wanted: str) -> int:
    return sum(name.lower() == wanted.lower() for name in names)


def check_statement(text: str) -> str:
    """Return a statement without its final semicolon, after checking that it is a single query, in any grammar.

    Raises:
        InvalidConfig: the statement is invalid. The message contains the reason and position.
    """
    if len(text) > STATEMENT_CHARACTERS_MAX:
        raise InvalidConfig(f"sql: {len(text)} characters exceed the limit of {STATEMENT_CHARACTERS_MAX}")
    first, opened, ended = "", list[int](), -1
    for part, at in _significant(text):
        if ended >= 0 and part != ";":
            raise InvalidConfig(f"sql: a second statement starts {_place(text, at)}: a function must be a single query")
        if part == "(":
            opened.append(at)
        elif part == ")":
            if not opened:
                raise InvalidConfig(f"sql: unmatched ) {_place(text, at)}")
            opened.pop()
        elif part == ";":
            ended = ended if ended >= 0 else at
        elif not first:
            first = part
    if not first:
        raise InvalidConfig("sql: the statement is empty: expected one such as SELECT value FROM orders")
    if first.upper() not in QUERY_WORDS:
        raise InvalidConfig(
            f"sql: expected a query that starts with {', '.join(QUERY_WORDS[:-1])} or {QUERY_WORDS[-1]}, not "
            f"{first[:40]!a}"
        )
    if opened:
        raise InvalidConfig(f"sql: unclosed ( {_place(text, opened[-1])}")
    return text if ended < 0 else text[:ended]


def _significant(text: str) -> Iterator[tuple[str, int]]:
    """Yield words and symbols with their positions.

    Quoted strings are represented by their opening quote, and comments are skipped.
    """
    at = 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        assert match is not None  # every character matches
        start, at = at, match.end()
        if match["comment"]:
            at = _end_of_comment(text, start)
        elif quote := match["quote"] or match["raw_quote"]:
            at = _end_of_quote(text, start, at, quote, escapes=match["quote"] is not None and quote != "`")
            yield quote, start
        elif match["space"] is None:
            yield match[0], start


def _end_of_comment(text: str, start: int) -> int:
    """Return the end of a comment, which may contain nested comments."""
    depth = 0
    for mark in _COMMENT_MARKS.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    raise InvalidConfig(f"sql: unclosed comment {_place(text, start)}")


def _end_of_quote(text: str, start: int, at: int, quote: str, *, escapes: bool) -> int:
    while at < len(text):
        if text[at] == "\\" and escapes:
            at += 2
        elif text[at] == quote:
            return at + 1  # after a doubled quote, the next quoted part follows immediately
        else:
            at += 1
    raise InvalidConfig(f"sql: unclosed {quote} {_place(text, start)}")


def _place(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return f"at line {line}, column {column}"
