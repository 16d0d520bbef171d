"""The answer to "which topics does this namespace have", without I/O.

Source: Pulsar binary protocol, section GET_TOPICS_OF_NAMESPACE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import google_crc32c

from ..errors import MetadataError
from ..wire import replies
from ..wire.pulsar_api_pb2 import BaseCommand, CommandGetTopicsOfNamespace
from ..wire.topic_name import parse_topic_name

MAX_PATTERN_CHARS = 50
"""`subscriptionPatternMaxLength`: longer patterns are left to the client."""

_NAMESPACE = re.compile(r"[-=:.\w]+/[-=:.\w]+", re.ASCII)
_SYSTEM = re.compile(
    r"/__change_events(-partition-\d+)?$|/__transaction_\w+|__transaction_pending_ack$|/transaction_coordinator_\w+"
)
# Python's engine backtracks, and one pattern with a repeated group can keep the loop busy for minutes.
_REPEATED_GROUP = re.compile(r"\)[*+?{]|[*+}][*+{]")


def is_namespace_name(text: str) -> bool:
    """Return whether ``text`` is ``tenant/namespace``."""
    return _NAMESPACE.fullmatch(text) is not None


def list_answer(names: Iterable[str], command: CommandGetTopicsOfNamespace) -> BaseCommand:
    """Return the response to a request about a namespace that has the topics ``names``.

    Raises:
        MetadataError: the pattern is not a regular expression.
    """
    topics = sorted(name for name in names if not _SYSTEM.search(name) and _in_mode(name, command.mode))
    pattern = command.topics_pattern
    filtered = bool(pattern) and len(pattern) <= MAX_PATTERN_CHARS and not _REPEATED_GROUP.search(pattern)
    if filtered:
        topics = _matching(topics, pattern)
    digest = topics_hash(topics)
    changed = command.topics_hash != digest
    return replies.topics_of_namespace(
        command.request_id, topics if changed else (), digest, filtered=filtered, changed=changed
    )


def _in_mode(name: str, mode: int) -> bool:
    if mode == CommandGetTopicsOfNamespace.ALL:
        return True
    return name.startswith("persistent://") == (mode == CommandGetTopicsOfNamespace.PERSISTENT)


def _matching(topics: Iterable[str], pattern: str) -> list[str]:
    """Return the topics whose name without domain and partition suffix matches as a whole."""
    try:
        compiled = re.compile(pattern.split("://", 1)[-1])
    except re.error as error:
        raise MetadataError(f"java.util.regex.PatternSyntaxException: {error} in {pattern!r}") from error
    return [topic for topic in topics if compiled.fullmatch(str(parse_topic_name(topic).base).split("://", 1)[1])]


def topics_hash(topics: Iterable[str]) -> str:
    """Return the hash by which a client tells that a list is still the same; ``topics`` are sorted."""
    value = int(google_crc32c.value(",".join(topics).encode()))
    return value.to_bytes(4, "little").hex()
