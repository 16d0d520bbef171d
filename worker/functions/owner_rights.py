"""Whether the role of a function may use its topics: looked at when the function is deployed.

The broker decides at run time, whatever is said here. But the worker prepares inputs and outputs with rights of its
own, which must not serve somebody who has none, and a function that could never run is better refused than restarted.
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
            RequestRefused: 403, it may not, and names the topic; 400, an input or output is none.
            MagnetarError: what is granted cannot be read; ask again.
        """
        if not self._settings.is_enabled or self._settings.is_super_user(role):
            return
        for use in _uses(details, subscription):
            refusal = await self._judge(role, use)
            if refusal is not None:
                raise RequestRefused(
                    403,
                    f"the function would run as {role[:_SHOWN_CHARACTERS]!r}, which may not {_MEANING[use.operation]}"
                    f" {use.named[:_SHOWN_CHARACTERS]} ({refusal}); grant it there first",
                )

    async def may(self, role: str | None, topic: str, operation: TopicOperation, subscription: str = "") -> bool:
        """Return whether a role may use a topic now.

        Raises:
            MagnetarError: what is granted cannot be read.
        """
        if not self._settings.is_enabled:
            return True
        resource = Resource.of_topic(parse_topic_name(topic), subscription or None)
        return await self._judge(role, _Use(topic, operation, resource)) is None

    async def may_set_policy(self, role: str, topic: str, policy: str) -> bool:
        """Return whether a role may set a policy of a topic, by its name in Pulsar's `PolicyName`.

        Raises:
            MagnetarError: what is granted cannot be read.
        """
        if not self._settings.is_enabled:
            return True
        rule = Rule(Who.TOPIC_POLICY, PolicyOperation.WRITE, policy)
        return await self._decide(role, rule, Resource.of_topic(parse_topic_name(topic))) is None

    async def may_use_packages(self, role: str | None, namespace: str) -> bool:
        """Return whether a role may take packages of a namespace."""
        if not self._settings.is_enabled:
            return True
        use = _Use(namespace, NamespaceOperation.PACKAGES, Resource.of_namespace(namespace), Who.PACKAGES)
        return await self._judge(role, use) is None

    async def _judge(self, role: str | None, use: _Use) -> str | None:
        return await self._decide(role, Rule(use.who, use.operation), use.resource)

    async def _decide(self, role: str | None, rule: Rule, resource: Resource) -> str | None:
        # Whether a proxy brought the request was judged with it; what is done here is done for one role.
        settings = replace(self._settings, proxy_roles=())
        refusal = await decide(settings, self._grants, Roles(role), rule, resource)
        return None if refusal is None else refusal.why.value


@dataclass(frozen=True, slots=True)
class _Use:
    """What a function does to a topic, or to those of a namespace.

    Attributes:
        named: as the config has it.
        operation: what it does.
        resource: to what.
        who: the kind of rule by which that is decided.
    """

    named: str
    operation: Operation
    resource: Resource
    who: Who = Who.TOPIC


def _uses(details: FunctionDetails, subscription: str) -> Iterator[_Use]:
    """Yield what a function does to topics.

    Raises:
        RequestRefused: 400, one of them is no topic.
    """
    try:
        yield from _uses_of_inputs(details, subscription)
        outputs = [details.sink.topic, details.logTopic, details.retryDetails.deadLetterTopic]
        if is_batch(details):
            tasks = parse_topic_name(task_topic(details))
            yield _Use(str(tasks), TopicOperation.CONSUME, Resource.of_topic(tasks, task_subscription(details)))
            outputs.append(str(tasks))
        letters = details.retryDetails.deadLetterTopic
        if letters and parse_topic_name(letters).is_persistent:
            # The producer of letters creates a subscription, so that the broker keeps them.
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
        # Topics that come later count, too, so nothing less than the namespace will do.
        namespace = topic_pattern(text).namespace
        whole = Resource.of_namespace(namespace)
        yield _Use(text, NamespaceOperation.GET_TOPICS, whole, Who.NAMESPACE)
        yield _Use(text, TopicOperation.CONSUME, replace(whole, subscription=subscription))
