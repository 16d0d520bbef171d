"""Policies of namespaces and topics: common ones, those with different flags, and those of one level only.

Source: Pulsar's `CmdNamespaces`, `CmdTopics` and `CmdTopicPolicies`.
"""

from __future__ import annotations

import click

from ...security.authorization.grants import SUBSCRIPTION_AUTH_MODES
from .policies import parse_bytes
from .policy_commands import Policy, number_of, option
from .policy_tables import common_policies, switch
from .policy_values import auto_topics, number, retention, seconds, word

_TTL = {"metavar": "DURATION", "help": "Duration such as 90, 10m or 2h; 0: unlimited."}
_INTERVAL = option("-i", "--interval", "value", type=int, help="Seconds.")

NAMESPACE_POLICIES: tuple[Policy, ...] = (
    *common_policies(),
    Policy("message-ttl", "messageTTL", "message TTL", [option("-ttl", "--messageTTL", "text", **_TTL)], seconds),
    Policy(
        "subscription-expiration-time",
        "subscriptionExpirationTime",
        "subscription expiration time",
        [option("-t", "--time", "value", type=int, help="Minutes; 0: never.")],
        number,
    ),
    Policy(
        "deduplication-snapshot-interval",
        "deduplicationSnapshotInterval",
        "deduplication snapshot interval",
        [_INTERVAL],
        number,
        remove=None,
    ),
    Policy(
        "auto-topic-creation",
        "autoTopicCreation",
        "automatic topic creation policy",
        [
            *switch(),
            option(
                "-t",
                "--type",
                "kind",
                type=click.Choice(("partitioned", "non-partitioned")),
                default="non-partitioned",
                help="Type of the created topics.",
            ),
            option(
                "-n",
                "--num-partitions",
                "partitions",
                type=int,
                required=False,
                help="Number of partitions of created partitioned topics.",
            ),
        ],
        auto_topics,
    ),
    number_of(
        "max-producers-per-topic",
        "maxProducersPerTopic",
        "maximum number of producers",
        "-p",
        "--max-producers-per-topic",
    ),
    number_of(
        "max-consumers-per-topic",
        "maxConsumersPerTopic",
        "maximum number of consumers",
        "-c",
        "--max-consumers-per-topic",
    ),
    number_of(
        "max-unacked-messages-per-consumer",
        "maxUnackedMessagesPerConsumer",
        "maximum number of unacknowledged messages",
        "-c",
        "--max-unacked-messages-per-topic",
        "--max-unacked-messages-per-consumer",
    ),
    number_of(
        "max-unacked-messages-per-subscription",
        "maxUnackedMessagesPerSubscription",
        "maximum number of unacknowledged messages per subscription",
        "-c",
        "--max-unacked-messages-per-subscription",
    ),
    number_of(
        "max-subscriptions-per-topic",
        "maxSubscriptionsPerTopic",
        "maximum number of subscriptions",
        "-m",
        "--max-subscriptions-per-topic",
    ),
    number_of(
        "max-topics-per-namespace",
        "maxTopicsPerNamespace",
        "maximum number of topics",
        "-t",
        "--max-topics-per-namespace",
    ),
    Policy(
        "subscription-auth-mode",
        "subscriptionAuthMode",
        "subscription authorization mode",
        [
            option(
                "-m",
                "--subscription-auth-mode",
                "value",
                type=click.Choice(SUBSCRIPTION_AUTH_MODES),
                help="Prefix: subscription names must start with the role; applies if authorization is enabled.",
            )
        ],
        word,
        remove=None,
    ),
)
"""Policies of namespaces, in addition to those in `cli.cluster.namespaces`."""

TOPIC_POLICIES: tuple[Policy, ...] = (
    *common_policies(),
    Policy(
        "message-ttl", "messageTTL", "message TTL", [option("-t", "--ttl", "text", **_TTL)], seconds, query="messageTTL"
    ),
    Policy(
        "retention",
        "retention",
        "retention policy",
        [
            option("-t", "--time", metavar="DURATION", help="Duration such as 3h; 0: no retention, -1: forever."),
            option("-s", "--size", metavar="SIZE", help="Size such as 500M or 10G; 0: no retention, -1: unlimited."),
        ],
        retention,
    ),
    Policy(
        "deduplication-snapshot-interval",
        "deduplicationSnapshotInterval",
        "deduplication snapshot interval",
        [_INTERVAL],
        number,
    ),
    number_of("max-producers", "maxProducers", "maximum number of producers", "-p", "--max-producers"),
    number_of("max-consumers", "maxConsumers", "maximum number of consumers", "-c", "--max-consumers"),
    number_of(
        "max-unacked-messages-per-consumer",
        "maxUnackedMessagesOnConsumer",
        "maximum number of unacknowledged messages",
        "-m",
        "--maxNum",
    ),
    number_of(
        "max-unacked-messages-per-subscription",
        "maxUnackedMessagesOnSubscription",
        "maximum number of unacknowledged messages per subscription",
        "-m",
        "--maxNum",
    ),
    Policy(
        "max-message-size",
        "maxMessageSize",
        "maximum message size",
        [
            option(
                "-m",
                "--max-message-size",
                "text",
                metavar="SIZE",
                help="Size in bytes, such as 1000 or 1M; 0: the broker's limit.",
            )
        ],
        parse_bytes,
    ),
    Policy(
        "replication-clusters",
        "replication",
        "replication clusters",
        [option("-c", "--clusters", metavar="NAME[,NAME]", help="Names of the clusters.")],
        lambda clusters: clusters.split(","),
    ),
)
_SUBSCRIPTIONS = ("maxSubscriptionsPerTopic", "maximum number of subscriptions")
ONLY_TOPIC_POLICIES = (
    number_of("max-subscriptions-per-topic", *_SUBSCRIPTIONS, "-s", "--max-subscriptions-per-topic"),
)
"""Additional policies of ``topicPolicies``."""
ONLY_TOPICS = (number_of("max-subscriptions", *_SUBSCRIPTIONS, "-m", "--max-subscriptions-per-topic"),)
"""Additional policies of ``topics``."""
