"""Commands for topic policies, which apply to all partitions of a topic.

Pulsar has them twice: as ``topics set-…`` and as ``topicPolicies set-…``.
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
    """Return which of the two flags was given.

    Raises:
        Failure: both flags were given, or neither.
    """
    if enable == disable:
        raise Failure("give either --enable or --disable")
    return enable


@rest_command(None, "set-deduplication")
@topic_argument
@enable_option
@disable_option
def set_deduplication(rest: Admin, topic: str, enable: bool, disable: bool) -> str:
    """Set deduplication of a topic; it overrides the namespace."""
    is_on = on_or_off(enable, disable)
    rest.post(f"{topic_path(topic)}/deduplicationEnabled", is_on)
    return f"Deduplication of {topic} is {'on' if is_on else 'off'}"


def bytes_or_no_limit(value: str | int) -> int:
    """Parse a size in bytes; -1 means unlimited. Used as an option type, so defaults may be numbers."""
    return value if isinstance(value, int) else parse_bytes(value, smallest=-1)


def parse_bytes(text: str, bare_unit: int = 1, smallest: int = 0) -> int:
    """Parse a size with `parse_size`, and return bytes.

    Raises:
        click.BadParameter: the text is not a size, or the size is too small.
    """
    try:
        size = parse_size(text, bare_unit)
    except ValueError:
        size = None
    if size is None or size < smallest:
        raise click.BadParameter(f"size {text!r} must be {EXPECTED}")
    return size


def whole_megabytes(text: str, bare_unit: int = 1) -> int:
    """Parse a size in megabytes; -1 means unlimited.

    Raises:
        click.BadParameter: the text is not a size, or not a whole number of megabytes.
    """
    size = parse_bytes(text, bare_unit, smallest=-1)
    if size > 0 and size % MIB:
        raise click.BadParameter(f"size {text!r} must be whole megabytes, such as 500M or 10G")
    return size // MIB if size > 0 else size


threshold_option = click.option(
    "-t", "--threshold", required=True, metavar="SIZE", help="Such as 100000 or 10M; 0 compacts on request only."
)


@rest_command(None, "set-compaction-threshold")
@topic_argument
@threshold_option
def set_compaction_threshold(rest: Admin, topic: str, threshold: str) -> str:
    """Set the compaction threshold of a topic; it overrides the namespace."""
    size = parse_bytes(threshold)
    rest.post(f"{topic_path(topic)}/compactionThreshold", size)
    return f"{topic} is compacted {when(size)}"


def when(threshold_bytes: int) -> str:
    """Describe a threshold in words."""
    return f"once more than {threshold_bytes} bytes wait" if threshold_bytes else "on request only"


STRATEGIES = (
    "UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
)  # fmt: skip
"""Schema compatibility strategies."""


@rest_command(None, "set-schema-compatibility-strategy")
@topic_argument
@click.option("-s", "--strategy", required=True, type=click.Choice(STRATEGIES), help="See docs/broker.md.")
def set_schema_strategy(rest: Admin, topic: str, strategy: str) -> str:
    """Set what a new schema of a topic must be able to do; it overrides the namespace."""
    rest.put(f"{topic_path(topic)}/schemaCompatibilityStrategy", strategy)
    return f"New schemas of {topic} must be {strategy}"


@rest_command(None, "set-schema-validation-enforce")
@topic_argument
@enable_option
@disable_option
def set_schema_validation(rest: Admin, topic: str, enable: bool, disable: bool) -> str:
    """Refuse producers without a schema where the topic has one, or let them in; it overrides the namespace."""
    is_on = on_or_off(enable, disable)
    rest.post(f"{topic_path(topic)}/schemaValidationEnforced", is_on)
    return f"Validation of schemas of {topic} is {'enforced' if is_on else 'not enforced'}"


COMMANDS = (
    set_deduplication,
    set_compaction_threshold,
    set_schema_strategy,
    set_schema_validation,
    *Subject(topic_path, [topic_argument]).commands(
        None,
        Call(
            "get-deduplication", "GET", "/deduplicationEnabled",
            "Show a topic's setting for deduplication; nothing if it has none of its own.",
            show=Setting, flags=[APPLIED],
        ),
        Call(
            "remove-deduplication", "DELETE", "/deduplicationEnabled",
            "Remove a topic's setting for deduplication; the namespace's applies.",
            "Deduplication of {topic} is up to its namespace",
        ),
        Call(
            "get-compaction-threshold", "GET", "/compactionThreshold",
            "Show a topic's compaction threshold; nothing if it has none of its own.",
            show=Setting, flags=[APPLIED],
        ),
        Call(
            "remove-compaction-threshold", "DELETE", "/compactionThreshold",
            "Remove a topic's compaction threshold; the namespace's applies.",
            "Its namespace says when {topic} is compacted",
        ),
        Call(
            "get-schema-compatibility-strategy", "GET", "/schemaCompatibilityStrategy",
            "Show what a new schema of a topic must be able to do; nothing if it has no setting of its own.",
            show=Setting, flags=[APPLIED],
        ),
        Call(
            "remove-schema-compatibility-strategy", "DELETE", "/schemaCompatibilityStrategy",
            "Remove a topic's strategy for schemas; the namespace's applies.",
            "What new schemas of {topic} must be able to do is up to its namespace",
        ),
        Call(
            "get-schema-validation-enforce", "GET", "/schemaValidationEnforced",
            "Show whether producers without a schema are refused where the topic has one.",
            show=Setting, flags=[APPLIED],
        ),
    ),
)  # fmt: skip
