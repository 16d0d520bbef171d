"""Limits on connections, producers, consumers, subscriptions and topics, with Pulsar's error messages.

Counts are checked right before an object is created, with no await between the two. A limit of 0 means unlimited.
Topics whose local names start with two underscores, which Pulsar reserves, are exempt.

Source: Pulsar's `broker.conf`, and the error messages of Apache Pulsar 4.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import ConsumerBusy, NotAllowed, ProducerBusy
from ...wire.pulsar_api_pb2 import CommandSubscribe

if TYPE_CHECKING:
    from ...wire.topic_name import TopicName
    from ..config import BrokerConfig
    from ..policies.effective import EffectivePolicies

TOO_MANY_TOPICS = "Exceed maximum number of topics in namespace."
TOO_MANY_TENANTS = "Exceed the maximum number of tenants"
TOO_MANY_CONNECTIONS = "Reached the maximum number of connections"


def is_limited(name: TopicName) -> bool:
    """Return whether limits apply to a topic."""
    return not name.local.startswith("__")


def check_producers(policies: EffectivePolicies, name: TopicName, present: int) -> None:
    """Raise ProducerBusy if a topic with ``present`` producers is full (`maxProducersPerTopic`)."""
    if 0 < policies.max_producers <= present and is_limited(name):
        raise ProducerBusy(f"Topic '{name}' reached max producers limit")


def check_consumers(
    policies: EffectivePolicies, name: TopicName, count_on_topic: Callable[[], int], on_subscription: int
) -> None:
    """Raise ConsumerBusy if `maxConsumersPerTopic` or `maxConsumersPerSubscription` is reached.

    A topic may have thousands of subscriptions, like the topic for instance locks, so its consumers are only counted if
    their number is limited.
    """
    if not is_limited(name):
        return
    if policies.max_consumers > 0 and policies.max_consumers <= count_on_topic():
        raise ConsumerBusy("Topic reached max consumers limit")
    if 0 < policies.max_consumers_per_subscription <= on_subscription:
        raise ConsumerBusy("Subscription reached max consumers limit")


def check_subscriptions(policies: EffectivePolicies, name: TopicName, present: int) -> None:
    """Raise NotAllowed if a topic with ``present`` subscriptions is full (`maxSubscriptionsPerTopic`)."""
    if 0 < policies.max_subscriptions <= present and is_limited(name):
        raise NotAllowed(f"Exceed the maximum number of subscriptions of the topic: {name}")


def check_type(policies: EffectivePolicies, name: TopicName, kind: int) -> None:
    """Raise NotAllowed if a subscription type is disabled (`subscriptionTypesEnabled`)."""
    word = CommandSubscribe.SubType.Name(kind)
    if word not in policies.subscription_types and is_limited(name):
        raise NotAllowed(f"Topic[{{{name}}}] doesn't support {word} sub type!")


def connection_refusal(config: BrokerConfig, present: int, from_there: int, address: str) -> str | None:
    """Return the reason for rejecting a connection, or None; both counts include the connection.

    Source: Pulsar's settings `brokerMaxConnections` and `brokerMaxConnectionsPerIp`.
    """
    if 0 < config.max_connections < present:
        return TOO_MANY_CONNECTIONS
    if 0 < config.max_connections_per_ip < from_there:
        return f"{TOO_MANY_CONNECTIONS} on address{address}"
    return None
