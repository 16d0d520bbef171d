"""Check the pattern of error messages: what was wrong with what value, then what to do.

A message ends without a full stop and does not tell readers to "give" something: it names the setting or the command
instead. Messages that Apache Pulsar sends in the same words are its contract, and are listed in `OF_PULSAR`.

`make check` runs ``python -m tests.support.error_messages``.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
NOT_THE_PRODUCT = (":!tests", ":!benchmarks", ":!docs", ":!examples", ":!setup.py")
GIVE = re.compile(r"\bgive\b", re.IGNORECASE)
FULL_STOP = re.compile(r"\w\.$")
OF_PULSAR = frozenset(
    {
        "AdminRoles contains whitespace in the beginning or end.",
        "Bookkeeper-Ensemble must be <= {} and > 0.",
        "Broker id '{}' not found in available brokers.",
        "Cluster {} does not exist.",
        "Expire message by timestamp not issued on topic {} for subscription {} due to ongoing message expiration not finished or subscription almost catch  up. If it's performed on a partitioned topic operation might succeeded on other partitions, please check stats of individual partition.",  # noqa: E501
        "Failed to recover Transaction Buffer.",
        "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the limits has a non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. To disable retention both limits must be set to 0.",  # noqa: E501
        "Namespace bundle ({}/0x00000000_0xffffffff) for topic ({}) not served by this instance:{}. Please redo the lookup.",  # noqa: E501
        "Namespace {} does not exist.",
        "Ranges for KeyShared policy must not be empty.",
        "Subscribe limited by subscribe rate limit per consumer.",
        "The offloadPolicies must be specified for namespace offload.",
        "The request entity cannot be empty.",
        "Topic {} is not the partitioned topic.",
        "Topic {} not found.",
        "Unknown SchemaCompatibilityStrategy.",
        "Window length for time and count are set! Please set one or the other.",
        "entryFilterNames can't be empty. To remove entry filters use the remove method.",
        "key '{}' doesn't exist.",
        "{} [defaultNumPartitions] cannot be less than 1 for partition type.",
        "{} [defaultNumPartitions] cannot be null when the type is partitioned.",
        "{} numeric value if there isn't a partitioned topic {} created.",
        "{} request ignored because it is out of date. Please try again.",
    }
)
"""Messages of Apache Pulsar that end with a full stop; a value in them is written as {}."""


class Message(NamedTuple):
    """The message of an error that some line raises; a value in it is written as {}."""

    path: str
    line: int
    text: str

    @property
    def fault(self) -> str:
        """What is wrong with it; empty if nothing is."""
        if GIVE.search(self.text):
            return '"give"'
        if FULL_STOP.search(self.text) and self.text not in OF_PULSAR:
            return "a full stop at the end"
        return ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.fault} in {self.text!r}"


def text_of(node: ast.expr) -> str:
    """Return the text of an expression; {} stands for what is computed."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(value) for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    return "{}"


def messages(path: str, source: str) -> Iterator[Message]:
    """Yield the messages of all errors that a module raises directly."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in [*node.exc.args, *(keyword.value for keyword in node.exc.keywords)]:
                text = text_of(argument)
                if " " in text:
                    yield Message(path, argument.lineno, text)


def main() -> int:
    """Run the check and return the exit code."""
    command = ["git", "ls-files", "-z", "--", "*.py", *NOT_THE_PRODUCT]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [path for path in listed.split("\0") if path and (ROOT / path).is_file()]
    wrong = [one for path in paths for one in messages(path, (ROOT / path).read_text()) if one.fault]
    for one in wrong:
        print(one, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
