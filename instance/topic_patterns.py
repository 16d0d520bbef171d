"""Inputs of functions that are patterns of topics: which topics they take, and what must not be among them.

A subscription is made on every topic that is there when the function is created, at its `subscriptionPosition`. What
comes later is read from its beginning: all of it was published since then. So instances subscribe from the beginning,
which has no meaning for the topics whose subscription is there.
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
    """Compile a pattern whose matching time grows only with the length of names.

    Raises:
        InvalidConfig: it does not match topics in a single namespace.
        MagnetarError: it is not a valid pattern, or would take too long.
    """
    return TopicPattern(re.compile(text), compile_pattern(text))


def mode_of(pattern: TopicPattern) -> RegexSubscriptionMode:
    """Return of which topics it is; its domain says it."""
    return "NonPersistentOnly" if pattern.text.startswith("non-persistent://") else "PersistentOnly"


def patterns_of(details: FunctionDetails) -> Mapping[str, TopicPattern]:
    """Return the patterns among the inputs of a function, by their texts.

    Raises:
        InvalidConfig: one of them takes a topic that the function writes to itself.
        MagnetarError: as `topic_pattern`.
    """
    inputs = details.source.inputSpecs
    patterns = {text: topic_pattern(text) for text, given in inputs.items() if given.isRegexPattern}
    own = {"output": details.sink.topic, "logTopic": details.logTopic}
    own["deadLetterTopic"] = details.retryDetails.deadLetterTopic
    for text, pattern in patterns.items():
        for what, topic in own.items():
            if topic and takes(pattern, topic):
                raise InvalidConfig(
                    f"topicsPattern {text} takes {topic}, the {what} of the function, whose messages would come in"
                    " again without end; change one of the two"
                )
    return patterns


def takes(pattern: TopicPattern, topic: str) -> bool:
    """Return whether a pattern matches a topic given by any of its names; False for an invalid name."""
    try:
        name = parse_topic_name(topic)
    except InvalidTopicName:
        return False
    is_persistent = mode_of(pattern) == "PersistentOnly"
    return name.is_persistent == is_persistent and pattern.takes(name.text)
