"""Whether the role of a function may use its topics: looked at when the function is deployed.

The broker decides at run time, whatever is said here. But the worker prepares inputs and outputs with rights of its
own, which must not serve somebody who has none, and a function that could never run is better refused than restarted.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import InvalidTopicName, RequestRefused
from ...security.authorization.deciding import decide
from ...security.authorization.grants import GrantsReader
from ...security.authorization.operations import NamespaceOperation, Operation, TopicOperation
from ...security.authorization.rules import Resource, Rule, Who
from ...security.authorization.settings import AuthorizationSettings
from ...security.roles import Roles
from ...wire.functions_pb2 import FunctionDetails
from ...wire.topic_name import parse_topic_name

_SHOWN_CHARACTERS = 100
_MEANING: dict[Operation, str] = {
    TopicOperation.CONSUME: "consume from",
    TopicOperation.PRODUCE: "produce to",
    NamespaceOperation.GET_TOPICS: "list the topics of the namespace of",
}


class OwnerRights:
    """What the owners of functions may do with topics."""

    def __init__(self, settings: AuthorizationSettings, grants: GrantsReader) -> None:
        self._settings = settings
        self._grants = grants

    async def check(self, details: FunctionDetails, role: str, subscription: str) -> None:
        """Make sure that a role may do what a function will do in its name.

        Args:
            details: the function, source or sink.
            role: as which it is to run.
            subscription: the name of its subscriptions.

        Raises:
            RequestRefused: 403, it may not; names the topic.
            MagnetarError: what is granted cannot be read; ask again.
        """
        if not self._settings.is_enabled or self._settings.is_super_user(role):
            return
        for topic, operation, name in _uses(details, subscription):
            try:
                parsed = parse_topic_name(topic)
            except InvalidTopicName:
                continue  # a pattern whose namespace is none; the broker has the last word
            if operation is NamespaceOperation.GET_TOPICS:
                rule, resource = Rule(Who.NAMESPACE, operation), Resource.of_namespace(parsed.namespace_name)
            else:
                rule, resource = Rule(Who.TOPIC, operation), Resource.of_topic(parsed, name)
            # Whether a proxy brought the request was judged with it; the function runs as one role.
            refusal = await decide(self._settings, self._grants, Roles(role), rule, resource)
            if refusal is not None:
                raise RequestRefused(
                    403,
                    f"the function would run as {role[:_SHOWN_CHARACTERS]!r}, which may not {_MEANING[operation]}"
                    f" {topic[:_SHOWN_CHARACTERS]} ({refusal.why.value}); grant it there first",
                )


def _uses(details: FunctionDetails, subscription: str) -> Iterator[tuple[str, Operation, str | None]]:
    """Yield the topics of a function with what it does to them, and by which subscription."""
    for topic, consumer in details.source.inputSpecs.items():
        if consumer.isRegexPattern:
            yield topic, NamespaceOperation.GET_TOPICS, None
        else:
            yield topic, TopicOperation.CONSUME, subscription
    outputs = (details.sink.topic, details.logTopic, details.retryDetails.deadLetterTopic)
    yield from ((topic, TopicOperation.PRODUCE, None) for topic in outputs if topic)
