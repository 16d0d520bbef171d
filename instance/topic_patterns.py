"""Inputs that are topic patterns: which topics they match, and which they must not match.

When the function is created, it gets a subscription on each existing topic, at its `subscriptionPosition`. Later topics
are read from the start, because all their messages were published since then. So instances subscribe from the start,
which has no effect on existing subscriptions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..client.config import RegexSubscriptionMode
from ..client.consumers.topic_pattern import TopicPattern
from ..errors import InvalidConfig, InvalidTopicName
from ..wire.functions_pb2 import FunctionDetails
from ..wire.topic_name import parse_topic_name
from ..wire.topic_pattern import compile_pattern


def topic_pattern(text: str) -> TopicPattern:
    """Compile a topic pattern whose matching time grows only with the length of names.

    Raises:
        InvalidConfig: the pattern does not match topics in a single namespace.
        MagnetarError: the pattern is invalid, or could take too long to match.
    """
    return TopicPattern(re.compile(text), compile_pattern(text))


def mode_of(pattern: TopicPattern) -> RegexSubscriptionMode:
    """Return which kind of topics a pattern matches, from its domain."""
    return "NonPersistentOnly" if pattern.text.startswith("non-persistent://") else "PersistentOnly"


def patterns_of(details: FunctionDetails) -> Mapping[str, TopicPattern]:
    """Return the compiled patterns among a function's inputs, by pattern string.

    Raises:
        InvalidConfig: a pattern matches a topic that the function writes to.
        MagnetarError: a pattern is invalid, or could take too long to match.
    """
    inputs = details.source.inputSpecs
    patterns = {text: topic_pattern(text) for text, given in inputs.items() if given.isRegexPattern}
    own = {"output": details.sink.topic, "logTopic": details.logTopic}
    own["deadLetterTopic"] = details.retryDetails.deadLetterTopic
    for text, pattern in patterns.items():
        for what, topic in own.items():
            if topic and takes(pattern, topic):
                raise InvalidConfig(
                    f"topicsPattern {text} matches {topic}, the {what} of the function, whose messages would be"
                    " processed again endlessly: change one of the two"
                )
    return patterns


def takes(pattern: TopicPattern, topic: str) -> bool:
    """Return whether a pattern matches a topic, given by any of its names; False for an invalid name."""
    try:
        name = parse_topic_name(topic)
    except InvalidTopicName:
        return False
    is_persistent = mode_of(pattern) == "PersistentOnly"
    return name.is_persistent == is_persistent and pattern.takes(name.text)
