"""Policies whose commands are the same for namespaces and topics, with Pulsar's flags.

Source: Pulsar's `CmdNamespaces`, `CmdTopics` and `CmdTopicPolicies`.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from .policies import bytes_or_no_limit, on_or_off
from .policy_commands import Flags, Policy, number_of, option
from .policy_values import (
    delayed,
    dispatch_rate,
    inactive,
    persistence,
    quota,
)

QUOTA_TYPES = ("destination_storage", "message_age")
QUOTA_POLICIES = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
DELETE_MODES = ("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")


def switch() -> Flags:
    """Return the flags ``--enable`` and ``--disable``."""
    return [
        option("-e", "--enable", is_flag=True, help="Enable it."),
        option("-d", "--disable", is_flag=True, help="Disable it."),
    ]


def _dispatch_flags() -> Flags:
    return [
        option("-md", "--msg-dispatch-rate", "msg", type=int, default=-1, help="Messages per period; -1: unlimited."),
        option(
            "-bd",
            "--byte-dispatch-rate",
            "byte",
            type=bytes_or_no_limit,
            default=-1,
            metavar="SIZE",
            help="Bytes per period; -1: unlimited.",
        ),
        option("-dt", "--dispatch-rate-period", "period", type=int, default=1, help="Length of the period in seconds."),
        option(
            "-rp",
            "--relative-to-publish-rate",
            "relative",
            is_flag=True,
            help="Make the limit relative to the publish rate.",
        ),
    ]


_TYPE = click.Option(
    ["-t", "--type", "backlogQuotaType"], type=click.Choice(QUOTA_TYPES), help="Type of the quota (default: by size)."
)


def common_policies() -> Iterator[Policy]:
    """Yield the policies whose commands are the same for namespaces and topics."""
    yield Policy(
        "persistence",
        "persistence",
        "persistence policy",
        [
            option("-e", "--bookkeeper-ensemble", "ensemble", type=int, default=1, help="Bookies."),
            option(
                "-w", "--bookkeeper-write-quorum", "writes", type=int, default=1, help="Number of writes per entry."
            ),
            option(
                "-a",
                "--bookkeeper-ack-quorum",
                "acks",
                type=int,
                default=1,
                help="Number of acknowledgements per entry.",
            ),
            option(
                "-r",
                "--ml-mark-delete-max-rate",
                "rate",
                type=float,
                default=0.0,
                help="Maximum number of cursor writes per second.",
            ),
        ],
        persistence,
    )
    yield Policy(
        "backlog-quota",
        "backlogQuota",
        "backlog quota",
        [
            option(
                "-l", "--limit", required=False, metavar="SIZE", help="Size in bytes, such as 10M (default: unlimited)."
            ),
            option(
                "-lt",
                "--limitTime",
                "limit_time",
                required=False,
                metavar="DURATION",
                help="Maximum age of the oldest message.",
            ),
            option("-p", "--policy", type=click.Choice(QUOTA_POLICIES), help="Action when the quota is exceeded."),
        ],
        quota,
        remove_flags=[_TYPE],
        shown="backlogQuotaMap",
        get="get-backlog-quotas",
    )
    for word, path in (
        ("dispatch-rate", "dispatchRate"),
        ("subscription-dispatch-rate", "subscriptionDispatchRate"),
        ("replicator-dispatch-rate", "replicatorDispatchRate"),
    ):
        yield Policy(word, path, word.replace("-", " "), _dispatch_flags(), dispatch_rate)
    yield Policy(
        "publish-rate",
        "publishRate",
        "publish rate",
        [
            option("-m", "--msg-publish-rate", "msg", type=int, default=-1, help="Messages per second; -1: unlimited."),
            option(
                "-b",
                "--byte-publish-rate",
                "byte",
                type=bytes_or_no_limit,
                default=-1,
                metavar="SIZE",
                help="Bytes per second; -1: unlimited.",
            ),
        ],
        lambda msg, byte: {"publishThrottlingRateInMsg": msg, "publishThrottlingRateInByte": byte},
    )
    yield Policy(
        "subscribe-rate",
        "subscribeRate",
        "subscribe rate",
        [
            option(
                "-sr",
                "--subscribe-rate",
                "times",
                type=int,
                default=-1,
                help="Subscribe requests per consumer and period; -1: unlimited.",
            ),
            option(
                "-st",
                "--subscribe-rate-period",
                "period",
                type=int,
                default=30,
                help="Length of the period in seconds.",
            ),
        ],
        lambda times, period: {"subscribeThrottlingRatePerConsumer": times, "ratePeriodInSecond": period},
    )
    yield Policy(
        "inactive-topic-policies",
        "inactiveTopicPolicies",
        "inactive topic policy",
        [
            option("-e", "--enable-delete-while-inactive", "enable", is_flag=True, help="Delete inactive topics."),
            option("-d", "--disable-delete-while-inactive", "disable", is_flag=True, help="Keep inactive topics."),
            option(
                "-t",
                "--max-inactive-duration",
                "duration",
                metavar="DURATION",
                help="How long a topic must be inactive before it is deleted.",
            ),
            option(
                "-m",
                "--delete-mode",
                "mode",
                type=click.Choice(DELETE_MODES),
                help="Which topics are considered inactive.",
            ),
        ],
        inactive,
    )
    yield Policy(
        "delayed-delivery",
        "delayedDelivery",
        "delayed delivery policy",
        [
            *switch(),
            option("-t", "--time", default="1s", metavar="DURATION", help="Precision of the delivery time."),
            option(
                "-md", "--maxDelay", "longest", default="0", metavar="DURATION", help="Maximum delay; 0: unlimited."
            ),
        ],
        delayed,
    )
    yield Policy(
        "subscription-types-enabled",
        "subscriptionTypesEnabled",
        "allowed subscription types",
        [
            option(
                "-t", "--types", metavar="TYPE[,TYPE]", help="Comma-separated: Exclusive, Shared, Failover, Key_Shared."
            )
        ],
        lambda types: [kind.strip() for kind in types.split(",")],
    )
    yield Policy(
        "auto-subscription-creation",
        "autoSubscriptionCreation",
        "automatic subscription creation policy",
        switch(),
        lambda enable, disable: {"allowAutoSubscriptionCreation": on_or_off(enable, disable)},
    )
    yield Policy(
        "dispatcher-pause-on-ack-state-persistent",
        "dispatcherPauseOnAckStatePersistent",
        "dispatch pause policy",
        (),
        lambda: None,
    )
    yield number_of(
        "max-consumers-per-subscription",
        "maxConsumersPerSubscription",
        "maximum number of consumers per subscription",
        "-c",
        "--max-consumers-per-subscription",
    )
