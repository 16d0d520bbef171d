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
    """Return the flags that enable or disable something."""
    return [
        option("-e", "--enable", is_flag=True, help="Enable it."),
        option("-d", "--disable", is_flag=True, help="Disable it."),
    ]


def _dispatch_flags() -> Flags:
    return [
        option(
            "-md", "--msg-dispatch-rate", "msg", type=int, default=-1, help="Messages in a period, -1 for no limit."
        ),
        option(
            "-bd",
            "--byte-dispatch-rate",
            "byte",
            type=bytes_or_no_limit,
            default=-1,
            metavar="SIZE",
            help="Bytes in a period, -1 for no limit.",
        ),
        option("-dt", "--dispatch-rate-period", "period", type=int, default=1, help="Seconds of a period."),
        option("-rp", "--relative-to-publish-rate", "relative", is_flag=True, help="On top of what is published."),
    ]


_TYPE = click.Option(
    ["-t", "--type", "backlogQuotaType"], type=click.Choice(QUOTA_TYPES), help="Of which type; by size unless given."
)


def common_policies() -> Iterator[Policy]:
    """Yield the policies whose commands are the same for namespaces and topics."""
    yield Policy(
        "persistence",
        "persistence",
        "how often entries are kept",
        [
            option("-e", "--bookkeeper-ensemble", "ensemble", type=int, default=1, help="Bookies."),
            option("-w", "--bookkeeper-write-quorum", "writes", type=int, default=1, help="Writes of each entry."),
            option("-a", "--bookkeeper-ack-quorum", "acks", type=int, default=1, help="Acknowledged ones."),
            option(
                "-r",
                "--ml-mark-delete-max-rate",
                "rate",
                type=float,
                default=0.0,
                help="Writes of a cursor in a second.",
            ),
        ],
        persistence,
    )
    yield Policy(
        "backlog-quota",
        "backlogQuota",
        "backlog quota",
        [
            option("-l", "--limit", required=False, metavar="SIZE", help="Bytes, such as 10M; none unless given."),
            option(
                "-lt",
                "--limitTime",
                "limit_time",
                required=False,
                metavar="DURATION",
                help="Age of the oldest message.",
            ),
            option("-p", "--policy", type=click.Choice(QUOTA_POLICIES), help="What happens above it."),
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
            option(
                "-m", "--msg-publish-rate", "msg", type=int, default=-1, help="Messages in a second, -1 for no limit."
            ),
            option(
                "-b",
                "--byte-publish-rate",
                "byte",
                type=bytes_or_no_limit,
                default=-1,
                metavar="SIZE",
                help="Bytes in a second, -1 for no limit.",
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
                "-sr", "--subscribe-rate", "times", type=int, default=-1, help="Of a consumer in a period, -1 for any."
            ),
            option("-st", "--subscribe-rate-period", "period", type=int, default=30, help="Seconds of a period."),
        ],
        lambda times, period: {"subscribeThrottlingRatePerConsumer": times, "ratePeriodInSecond": period},
    )
    yield Policy(
        "inactive-topic-policies",
        "inactiveTopicPolicies",
        "deletion of inactive topics",
        [
            option("-e", "--enable-delete-while-inactive", "enable", is_flag=True, help="Delete them."),
            option("-d", "--disable-delete-while-inactive", "disable", is_flag=True, help="Keep them."),
            option(
                "-t", "--max-inactive-duration", "duration", metavar="DURATION", help="How long they must be unused."
            ),
            option("-m", "--delete-mode", "mode", type=click.Choice(DELETE_MODES), help="Which count as unused."),
        ],
        inactive,
    )
    yield Policy(
        "delayed-delivery",
        "delayedDelivery",
        "delayed delivery",
        [
            *switch(),
            option("-t", "--time", default="1s", metavar="DURATION", help="What is due within it goes out together."),
            option("-md", "--maxDelay", "longest", default="0", metavar="DURATION", help="Longest delay, 0 for any."),
        ],
        delayed,
    )
    yield Policy(
        "subscription-types-enabled",
        "subscriptionTypesEnabled",
        "types of subscriptions",
        [option("-t", "--types", metavar="TYPE[,TYPE]", help="Exclusive, Shared, Failover, Key_Shared.")],
        lambda types: [kind.strip() for kind in types.split(",")],
    )
    yield Policy(
        "auto-subscription-creation",
        "autoSubscriptionCreation",
        "creation of subscriptions on first use",
        switch(),
        lambda enable, disable: {"allowAutoSubscriptionCreation": on_or_off(enable, disable)},
    )
    yield Policy(
        "dispatcher-pause-on-ack-state-persistent",
        "dispatcherPauseOnAckStatePersistent",
        "pause while acknowledgements cannot be kept",
        (),
        lambda: None,
    )
    yield number_of(
        "max-consumers-per-subscription",
        "maxConsumersPerSubscription",
        "maximum of consumers of a subscription",
        "-c",
        "--max-consumers-per-subscription",
    )
