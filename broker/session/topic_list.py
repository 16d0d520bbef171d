"""The answer to "which topics does this namespace have", without I/O.

Source: Pulsar binary protocol, section GET_TOPICS_OF_NAMESPACE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import google_crc32c

from ...errors import InvalidPattern, MetadataError, PatternNotSupported
from ...wire import replies
from ...wire.pulsar_api_pb2 import BaseCommand, CommandGetTopicsOfNamespace
from ...wire.topic_name import parse_topic_name
from ...wire.topic_pattern import TopicPattern, compile_pattern

MAX_PATTERN_CHARS = 50
"""`subscriptionPatternMaxLength`: longer patterns are left to the client."""

_NAMESPACE = re.compile(r"[-=:.\w]+/[-=:.\w]+", re.ASCII)
_SYSTEM = re.compile(
    r"/__change_events(-partition-\d+)?$|/__transaction_\w+|__transaction_pending_ack$|/transaction_coordinator_\w+"
)


def is_namespace_name(text: str) -> bool:
    """Return whether ``text`` is ``tenant/namespace``."""
    return _NAMESPACE.fullmatch(text) is not None


def list_answer(names: Iterable[str], command: CommandGetTopicsOfNamespace) -> BaseCommand:
    """Return the response to a request about a namespace that has the topics ``names``.

    A pattern that is too long, or that only Java's engine understands, is left to the client, which is told that the
    names are not filtered.

    Raises:
        MetadataError: the pattern is not a regular expression.
    """
    topics = sorted(name for name in names if not _SYSTEM.search(name) and _in_mode(name, command.mode))
    pattern = command.topics_pattern
    compiled = _compiled(pattern) if 0 < len(pattern) <= MAX_PATTERN_CHARS else None
    if compiled is not None:
        topics = _matching(topics, compiled)
    digest = topics_hash(topics)
    changed = command.topics_hash != digest
    return replies.topics_of_namespace(
        command.request_id, topics if changed else (), digest, filtered=compiled is not None, changed=changed
    )


def _in_mode(name: str, mode: int) -> bool:
    if mode == CommandGetTopicsOfNamespace.ALL:
        return True
    return name.startswith("persistent://") == (mode == CommandGetTopicsOfNamespace.PERSISTENT)


def _compiled(pattern: str) -> TopicPattern | None:
    try:
        return compile_pattern(pattern.split("://", 1)[-1])
    except PatternNotSupported:
        return None
    except InvalidPattern as error:
        raise MetadataError(f"java.util.regex.PatternSyntaxException: {error}") from error


def _matching(topics: Iterable[str], pattern: TopicPattern) -> list[str]:
    """Return the topics whose name without domain and partition suffix matches as a whole."""
    return [topic for topic in topics if pattern.matches(str(parse_topic_name(topic).base).split("://", 1)[1])]


def topics_hash(topics: Iterable[str]) -> str:
    """Return the hash by which a client tells that a list is still the same; ``topics`` are sorted."""
    value = int(google_crc32c.value(",".join(topics).encode()))
    return value.to_bytes(4, "little").hex()
