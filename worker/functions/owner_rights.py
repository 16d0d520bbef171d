"""Permission checks at deployment: whether a function's role may use its topics.

The broker makes the final decision at run time. However, the worker prepares inputs and outputs with its own
permissions, from which a deployer without permissions must not benefit. It is also better to reject a function that
could never run than to restart it forever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...config.batch_source import is_batch, task_subscription, task_topic
from ...errors import InvalidConfig, InvalidTopicName, RequestRefused
from ...instance.topic_patterns import topic_pattern
from ...security.authorization.deciding import decide
from ...security.authorization.grants import GrantsReader
from ...security.authorization.operations import NamespaceOperation, Operation, PolicyOperation, TopicOperation
from ...security.authorization.rules import Resource, Rule, Who
from ...security.authorization.settings import AuthorizationSettings
from ...security.roles import Roles
from ...wire.function_letters import LETTERS_SUFFIX
from ...wire.functions_pb2 import FunctionDetails
from ...wire.topic_name import parse_topic_name

_SHOWN_CHARACTERS = 100
_MEANING: dict[Operation, str] = {
    TopicOperation.CONSUME: "consume from",
    TopicOperation.PRODUCE: "produce to",
    TopicOperation.SUBSCRIBE: "create a subscription on",
    NamespaceOperation.GET_TOPICS: "list the topics of the namespace of",
}


class OwnerRights:
    """Permissions of functions' owners on topics."""

    def __init__(self, settings: AuthorizationSettings, grants: GrantsReader) -> None:
        self._settings = settings
        self._grants = grants

    async def check(self, details: FunctionDetails, role: str, subscription: str) -> None:
        """Check that a role has all permissions that a function needs.

        Args:
            details: the function, source or sink.
            role: role that the function will run as.
            subscription: name of the function's subscriptions.

        Raises:
            RequestRefused: 403, a permission is missing, and the message names the topic; 400, an input or output is
                not a valid topic.
            MagnetarError: the grants cannot be read; retry.
        """
        if not self._settings.is_enabled or self._settings.is_super_user(role):
            return
        for use in _uses(details, subscription):
            refusal = await self._judge(role, use)
            if refusal is not None:
                raise RequestRefused(
                    403,
                    f"the function would run as {role[:_SHOWN_CHARACTERS]!r}, which may not {_MEANING[use.operation]}"
                    f" {use.named[:_SHOWN_CHARACTERS]} ({refusal}): grant the permission first",
                )

    async def may(self, role: str | None, topic: str, operation: TopicOperation, subscription: str = "") -> bool:
        """Return whether a role may currently use a topic.

        Raises:
            MagnetarError: the grants cannot be read.
        """
        if not self._settings.is_enabled:
            return True
        resource = Resource.of_topic(parse_topic_name(topic), subscription or None)
        return await self._judge(role, _Use(topic, operation, resource)) is None

    async def may_set_policy(self, role: str, topic: str, policy: str) -> bool:
        """Return whether a role may set a topic policy, given its name in Pulsar's `PolicyName`.

        Raises:
            MagnetarError: the grants cannot be read.
        """
        if not self._settings.is_enabled:
            return True
        rule = Rule(Who.TOPIC_POLICY, PolicyOperation.WRITE, policy)
        return await self._decide(role, rule, Resource.of_topic(parse_topic_name(topic))) is None

    async def may_use_packages(self, role: str | None, namespace: str) -> bool:
        """Return whether a role may use the packages of a namespace."""
        if not self._settings.is_enabled:
            return True
        use = _Use(namespace, NamespaceOperation.PACKAGES, Resource.of_namespace(namespace), Who.PACKAGES)
        return await self._judge(role, use) is None

    async def _judge(self, role: str | None, use: _Use) -> str | None:
        return await self._decide(role, Rule(use.who, use.operation), use.resource)

    async def _decide(self, role: str | None, rule: Rule, resource: Resource) -> str | None:
        # A proxied request was already authorized on arrival, so only one role matters here.
        settings = replace(self._settings, proxy_roles=())
        refusal = await decide(settings, self._grants, Roles(role), rule, resource)
        return None if refusal is None else refusal.why.value


@dataclass(frozen=True, slots=True)
class _Use:
    """An operation of a function on a topic or on the topics of a namespace.

    Attributes:
        named: topic or pattern as written in the config.
        operation: operation to check.
        resource: target of the operation.
        who: kind of authorization rule that applies.
    """

    named: str
    operation: Operation
    resource: Resource
    who: Who = Who.TOPIC


def _uses(details: FunctionDetails, subscription: str) -> Iterator[_Use]:
    """Yield a function's operations on topics.

    Raises:
        RequestRefused: 400, a topic name is invalid.
    """
    try:
        yield from _uses_of_inputs(details, subscription)
        outputs = [details.sink.topic, details.logTopic, details.retryDetails.deadLetterTopic]
        if is_batch(details):
            tasks = parse_topic_name(task_topic(details))
            yield _Use(str(tasks), TopicOperation.CONSUME, Resource.of_topic(tasks, task_subscription(details)))
            outputs.append(str(tasks))
        letters = details.retryDetails.deadLetterTopic
        is_sink = details.componentType == FunctionDetails.SINK  # sinks work without the subscription
        if letters and not is_sink and parse_topic_name(letters).is_persistent:
            # The producer of dead letters creates a subscription, so that the broker retains them.
            kept = f"{details.tenant}/{details.namespace}/{details.name}{LETTERS_SUFFIX}"
            yield _Use(letters, TopicOperation.SUBSCRIBE, Resource.of_topic(parse_topic_name(letters), kept))
        for topic in outputs:
            if topic:
                yield _Use(topic, TopicOperation.PRODUCE, Resource.of_topic(parse_topic_name(topic)))
    except (InvalidTopicName, InvalidConfig) as error:
        raise RequestRefused(400, str(error)) from error


def _uses_of_inputs(details: FunctionDetails, subscription: str) -> Iterator[_Use]:
    for text, given in details.source.inputSpecs.items():
        if not given.isRegexPattern:
            yield _Use(text, TopicOperation.CONSUME, Resource.of_topic(parse_topic_name(text), subscription))
            continue
        # The pattern also matches topics created later, so permission on the whole namespace is required.
        namespace = topic_pattern(text).namespace
        whole = Resource.of_namespace(namespace)
        yield _Use(text, NamespaceOperation.GET_TOPICS, whole, Who.NAMESPACE)
        yield _Use(text, TopicOperation.CONSUME, replace(whole, subscription=subscription))
