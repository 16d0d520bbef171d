"""The policies of namespaces and of topics: common ones, those with different flags, and those of one level only.

Source: Pulsar's `CmdNamespaces`, `CmdTopics` and `CmdTopicPolicies`.
"""

from __future__ import annotations

import click

from ...security.authorization.grants import SUBSCRIPTION_AUTH_MODES
from .policies import parse_bytes
from .policy_commands import Policy, number_of, option
from .policy_tables import common_policies, switch
from .policy_values import auto_topics, number, retention, seconds, word

_TTL = {"metavar": "DURATION", "help": "Such as 90, 10m or 2h; 0 for ever."}
_INTERVAL = option("-i", "--interval", "value", type=int, help="Seconds.")

NAMESPACE_POLICIES: tuple[Policy, ...] = (
    *common_policies(),
    Policy("message-ttl", "messageTTL", "message TTL", [option("-ttl", "--messageTTL", "text", **_TTL)], seconds),
    Policy(
        "subscription-expiration-time",
        "subscriptionExpirationTime",
        "expiration of subscriptions",
        [option("-t", "--time", "value", type=int, help="Minutes; 0 for never.")],
        number,
    ),
    Policy(
        "deduplication-snapshot-interval",
        "deduplicationSnapshotInterval",
        "snapshot interval of deduplication",
        [_INTERVAL],
        number,
        remove=None,
    ),
    Policy(
        "auto-topic-creation",
        "autoTopicCreation",
        "creation of topics on first use",
        [
            *switch(),
            option(
                "-t",
                "--type",
                "kind",
                type=click.Choice(("partitioned", "non-partitioned")),
                default="non-partitioned",
                help="Of the topics.",
            ),
            option("-n", "--num-partitions", "partitions", type=int, required=False, help="Of a partitioned topic."),
        ],
        auto_topics,
    ),
    number_of(
        "max-producers-per-topic", "maxProducersPerTopic", "maximum of producers", "-p", "--max-producers-per-topic"
    ),
    number_of(
        "max-consumers-per-topic", "maxConsumersPerTopic", "maximum of consumers", "-c", "--max-consumers-per-topic"
    ),
    number_of(
        "max-unacked-messages-per-consumer",
        "maxUnackedMessagesPerConsumer",
        "maximum of unacknowledged messages",
        "-c",
        "--max-unacked-messages-per-topic",
        "--max-unacked-messages-per-consumer",
    ),
    number_of(
        "max-unacked-messages-per-subscription",
        "maxUnackedMessagesPerSubscription",
        "maximum of unacknowledged messages of a subscription",
        "-c",
        "--max-unacked-messages-per-subscription",
    ),
    number_of(
        "max-subscriptions-per-topic",
        "maxSubscriptionsPerTopic",
        "maximum of subscriptions",
        "-m",
        "--max-subscriptions-per-topic",
    ),
    number_of(
        "max-topics-per-namespace", "maxTopicsPerNamespace", "maximum of topics", "-t", "--max-topics-per-namespace"
    ),
    Policy(
        "subscription-auth-mode",
        "subscriptionAuthMode",
        "rule for names of subscriptions",
        [
            option(
                "-m",
                "--subscription-auth-mode",
                "value",
                type=click.Choice(SUBSCRIPTION_AUTH_MODES),
                help="Prefix: they begin with the role; counts while authorization is on.",
            )
        ],
        word,
        remove=None,
    ),
)
"""In addition to those in `cli.cluster.namespaces`."""

TOPIC_POLICIES: tuple[Policy, ...] = (
    *common_policies(),
    Policy(
        "message-ttl", "messageTTL", "message TTL", [option("-t", "--ttl", "text", **_TTL)], seconds, query="messageTTL"
    ),
    Policy(
        "retention",
        "retention",
        "retention of acknowledged messages",
        [
            option("-t", "--time", metavar="DURATION", help="Such as 3h; 0 none, -1 for ever."),
            option("-s", "--size", metavar="SIZE", help="Such as 500M or 10G; 0 none, -1 without limit."),
        ],
        retention,
    ),
    Policy(
        "deduplication-snapshot-interval",
        "deduplicationSnapshotInterval",
        "snapshot interval of deduplication",
        [_INTERVAL],
        number,
    ),
    number_of("max-producers", "maxProducers", "maximum of producers", "-p", "--max-producers"),
    number_of("max-consumers", "maxConsumers", "maximum of consumers", "-c", "--max-consumers"),
    number_of(
        "max-unacked-messages-per-consumer",
        "maxUnackedMessagesOnConsumer",
        "maximum of unacknowledged messages",
        "-m",
        "--maxNum",
    ),
    number_of(
        "max-unacked-messages-per-subscription",
        "maxUnackedMessagesOnSubscription",
        "maximum of unacknowledged messages of a subscription",
        "-m",
        "--maxNum",
    ),
    Policy(
        "max-message-size",
        "maxMessageSize",
        "largest message",
        [
            option(
                "-m",
                "--max-message-size",
                "text",
                metavar="SIZE",
                help="Bytes, such as 1000 or 1M; 0 for the broker's.",
            )
        ],
        parse_bytes,
    ),
    Policy(
        "replication-clusters",
        "replication",
        "clusters that have the topic",
        [option("-c", "--clusters", metavar="NAME[,NAME]", help="Their names.")],
        lambda clusters: clusters.split(","),
    ),
)
_SUBSCRIPTIONS = ("maxSubscriptionsPerTopic", "maximum of subscriptions")
ONLY_TOPIC_POLICIES = (
    number_of("max-subscriptions-per-topic", *_SUBSCRIPTIONS, "-s", "--max-subscriptions-per-topic"),
)
"""Additional policies of ``topicPolicies``."""
ONLY_TOPICS = (number_of("max-subscriptions", *_SUBSCRIPTIONS, "-m", "--max-subscriptions-per-topic"),)
"""Additional policies of ``topics``."""
