"""Commands for topic policies, which apply to all partitions.

As in Pulsar, they exist twice: as ``topics set-…`` and as ``topicPolicies set-…``.
"""

from __future__ import annotations

import click

from ...config.sizes import EXPECTED, MIB, parse_size
from ..failure import Failure
from ..rest import Admin, Call, Setting, Subject, rest_command
from .subscriptions import topic_argument, topic_path

enable_option = click.option("-e", "--enable", is_flag=True, help="Enable it.")
disable_option = click.option("-d", "--disable", is_flag=True, help="Disable it.")
APPLIED = click.Option(
    ["-ap", "--applied"], is_flag=True, help="Show the effective value, from topic, namespace or broker."
)


def on_or_off(enable: bool, disable: bool) -> bool:
    """Return whether ``--enable`` rather than ``--disable`` was given.

    Raises:
        Failure: both flags were given, or neither was.
    """
    if enable == disable:
        raise Failure("use either --enable or --disable")
    return enable


@rest_command(None, "set-deduplication")
@topic_argument
@enable_option
@disable_option
def set_deduplication(rest: Admin, topic: str, enable: bool, disable: bool) -> str:
    """Enable or disable deduplication of a topic, overriding the namespace."""
    is_on = on_or_off(enable, disable)
    rest.post(f"{topic_path(topic)}/deduplicationEnabled", is_on)
    return f"Deduplication of {topic} is {'on' if is_on else 'off'}"


def bytes_or_no_limit(value: str | int) -> int:
    """Parse a size in bytes; -1 means unlimited. Used as an option type, so defaults may be numbers."""
    return value if isinstance(value, int) else parse_bytes(value, smallest=-1)


def parse_bytes(text: str, bare_unit: int = 1, smallest: int = 0) -> int:
    """Parse a size, such as 10M, and return bytes.

    Raises:
        click.BadParameter: the value is not a size, or the size is too small.
    """
    try:
        size = parse_size(text, bare_unit)
    except ValueError:
        size = None
    if size is None or size < smallest:
        raise click.BadParameter(f"invalid size {text!r}: expected {EXPECTED}")
    return size


def whole_megabytes(text: str, bare_unit: int = 1) -> int:
    """Parse a size in megabytes; -1 means unlimited.

    Raises:
        click.BadParameter: the value is not a size, or not a whole number of megabytes.
    """
    size = parse_bytes(text, bare_unit, smallest=-1)
    if size > 0 and size % MIB:
        raise click.BadParameter(f"invalid size {text!r}: expected whole megabytes, such as 500M or 10G")
    return size // MIB if size > 0 else size


threshold_option = click.option(
    "-t", "--threshold", required=True, metavar="SIZE", help="Size such as 100000 or 10M; 0: compact only on request."
)


@rest_command(None, "set-compaction-threshold")
@topic_argument
@threshold_option
def set_compaction_threshold(rest: Admin, topic: str, threshold: str) -> str:
    """Set the compaction threshold of a topic, overriding the namespace."""
    size = parse_bytes(threshold)
    rest.post(f"{topic_path(topic)}/compactionThreshold", size)
    return f"{topic} is compacted {when(size)}"


def when(threshold_bytes: int) -> str:
    """Describe a threshold in words."""
    return f"once more than {threshold_bytes} uncompacted bytes accumulate" if threshold_bytes else "only on request"


STRATEGIES = (
    "UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
)  # fmt: skip
"""Schema compatibility strategies."""


@rest_command(None, "set-schema-compatibility-strategy")
@topic_argument
@click.option(
    "-s",
    "--strategy",
    required=True,
    type=click.Choice(STRATEGIES),
    help="Compatibility strategy (see docs/broker.md).",
)
def set_schema_strategy(rest: Admin, topic: str, strategy: str) -> str:
    """Set the schema compatibility strategy of a topic, overriding the namespace."""
    rest.put(f"{topic_path(topic)}/schemaCompatibilityStrategy", strategy)
    return f"The schema compatibility strategy of {topic} is {strategy}"


@rest_command(None, "set-schema-validation-enforce")
@topic_argument
@enable_option
@disable_option
def set_schema_validation(rest: Admin, topic: str, enable: bool, disable: bool) -> str:
    """Set whether a topic with a schema rejects producers without one, overriding the namespace."""
    is_on = on_or_off(enable, disable)
    rest.post(f"{topic_path(topic)}/schemaValidationEnforced", is_on)
    return f"Schema validation of {topic} is {'enforced' if is_on else 'not enforced'}"


COMMANDS = (
    set_deduplication,
    set_compaction_threshold,
    set_schema_strategy,
    set_schema_validation,
    *Subject(topic_path, [topic_argument]).commands(
        None,
        Call(
            "get-deduplication", "GET", "/deduplicationEnabled",
            "Show a topic's deduplication setting, if set.",
            show=Setting, flags=[APPLIED],
        ),
        Call(
            "remove-deduplication", "DELETE", "/deduplicationEnabled",
            "Remove a topic's deduplication setting; the namespace's applies.",
            "Deduplication of {topic} now follows its namespace",
        ),
        Call(
            "get-compaction-threshold", "GET", "/compactionThreshold",
            "Show a topic's compaction threshold, if set.",
            show=Setting, flags=[APPLIED],
        ),
        Call(
            "remove-compaction-threshold", "DELETE", "/compactionThreshold",
            "Remove a topic's compaction threshold; the namespace's applies.",
            "Compaction of {topic} now follows its namespace",
        ),
        Call(
            "get-schema-compatibility-strategy", "GET", "/schemaCompatibilityStrategy",
            "Show a topic's schema compatibility strategy, if set.",
            show=Setting, flags=[APPLIED],
        ),
        Call(
            "remove-schema-compatibility-strategy", "DELETE", "/schemaCompatibilityStrategy",
            "Remove a topic's schema compatibility strategy; the namespace's applies.",
            "The schema compatibility strategy of {topic} now follows its namespace",
        ),
        Call(
            "get-schema-validation-enforce", "GET", "/schemaValidationEnforced",
            "Show whether a topic with a schema rejects producers without one.",
            show=Setting, flags=[APPLIED],
        ),
    ),
)  # fmt: skip
