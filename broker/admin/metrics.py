"""``/metrics``: Prometheus text with Pulsar's names. Like Pulsar, every family is called a gauge, totals included."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from .call import Call
from .routing import Routes

TOPICS_PER_TURN = 50
"""Topics that are counted before the loop may do something else."""
_TOPIC = (
    ("pulsar_rate_in", "msgRateIn"),
    ("pulsar_rate_out", "msgRateOut"),
    ("pulsar_throughput_in", "msgThroughputIn"),
    ("pulsar_throughput_out", "msgThroughputOut"),
    ("pulsar_average_msg_size", "averageMsgSize"),
    ("pulsar_in_bytes_total", "bytesInCounter"),
    ("pulsar_in_messages_total", "msgInCounter"),
    ("pulsar_storage_size", "storageSize"),
    ("pulsar_storage_logical_size", "storageSize"),
    ("pulsar_storage_backlog_size", "backlogSize"),
    ("pulsar_storage_backlog_quota_limit", "backlogQuotaLimitSize"),
    ("pulsar_storage_backlog_quota_limit_time", "backlogQuotaLimitTime"),
    ("pulsar_storage_backlog_age_seconds", "oldestBacklogMessageAgeSeconds"),
    ("pulsar_publish_rate_limit_times", "publishRateLimitedTimes"),
    ("pulsar_delayed_message_index_size_bytes", "delayedMessageIndexSizeInBytes"),
)
_SUBSCRIPTION = (
    ("pulsar_subscription_back_log", "msgBacklog"),
    ("pulsar_subscription_back_log_no_delayed", "msgBacklogNoDelayed"),
    ("pulsar_subscription_delayed", "msgDelayed"),
    ("pulsar_subscription_in_replay", "msgInReplay"),
    ("pulsar_subscription_msg_rate_redeliver", "msgRateRedeliver"),
    ("pulsar_subscription_unacked_messages", "unackedMessages"),
    ("pulsar_subscription_blocked_on_unacked_messages", "blockedSubscriptionOnUnackedMsgs"),
    ("pulsar_subscription_msg_rate_out", "msgRateOut"),
    ("pulsar_subscription_msg_ack_rate", "messageAckRate"),
    ("pulsar_subscription_msg_throughput_out", "msgThroughputOut"),
    ("pulsar_subscription_last_expire_timestamp", "lastExpireTimestamp"),
    ("pulsar_subscription_last_acked_timestamp", "lastAckedTimestamp"),
    ("pulsar_subscription_last_consumed_flow_timestamp", "lastConsumedFlowTimestamp"),
    ("pulsar_subscription_last_consumed_timestamp", "lastConsumedTimestamp"),
    ("pulsar_subscription_last_mark_delete_advanced_timestamp", "lastMarkDeleteAdvancedTimestamp"),
    ("pulsar_subscription_msg_rate_expired", "msgRateExpired"),
    ("pulsar_subscription_total_msg_expired", "totalMsgExpired"),
    ("pulsar_out_bytes_total", "bytesOutCounter"),
    ("pulsar_out_messages_total", "msgOutCounter"),
)
_BROKER_SUMS = {
    "pulsar_broker_subscriptions_count": "pulsar_subscriptions_count",
    "pulsar_broker_producers_count": "pulsar_producers_count",
    "pulsar_broker_consumers_count": "pulsar_consumers_count",
    "pulsar_broker_rate_in": "pulsar_rate_in",
    "pulsar_broker_rate_out": "pulsar_rate_out",
    "pulsar_broker_throughput_in": "pulsar_throughput_in",
    "pulsar_broker_throughput_out": "pulsar_throughput_out",
    "pulsar_broker_storage_size": "pulsar_storage_size",
    "pulsar_broker_storage_logical_size": "pulsar_storage_logical_size",
    "pulsar_broker_msg_backlog": "pulsar_msg_backlog",
}


class Exposition:
    """Samples by family, in the order in which families first appeared."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}
        self._sums: dict[str, float] = {}

    def add(self, name: str, labels: str, value: float) -> None:
        """Add one sample; ``labels`` is the text between the braces."""
        number = f"{value:g}" if isinstance(value, float) and not value.is_integer() else str(int(value))
        self._families.setdefault(name, []).append(f"{name}{{{labels}}} {number}")
        self._sums[name] = self._sums.get(name, 0) + value

    def sum(self, name: str) -> float:
        """Return the sum of a family's samples."""
        return self._sums.get(name, 0)

    def text(self) -> str:
        """Return everything in Prometheus' text format."""
        return "".join(f"# TYPE {name} gauge\n" + "\n".join(lines) + "\n" for name, lines in self._families.items())


async def _metrics(call: Call) -> Response:
    out = Exposition()
    cluster = f'cluster="{_escape(call.namespaces.cluster_name)}"'
    for tenant in call.namespaces.tenants():
        for namespace in call.namespaces.namespaces(tenant):
            names = call.broker.topic_names(namespace)
            out.add("pulsar_topics_count", f'{cluster},namespace="{_escape(namespace)}"', len(names))
    for number, topic in enumerate(tuple(call.broker.topics.values())):
        labels = f'{cluster},namespace="{_escape(topic.name.namespace_name)}",topic="{_escape(str(topic.name))}"'
        add_topic(out, labels, topic.stats())
        if number % TOPICS_PER_TURN == TOPICS_PER_TURN - 1:
            await asyncio.sleep(0)
    out.add("pulsar_broker_topics_count", cluster, len(call.broker.topics))
    for name, of in _BROKER_SUMS.items():
        out.add(name, cluster, out.sum(of))
    return Response(out.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def add_topic(out: Exposition, labels: str, stats: Mapping[str, Any]) -> None:
    """Add the samples of one topic and its subscriptions."""
    subscriptions = stats["subscriptions"]
    out.add("pulsar_subscriptions_count", labels, len(subscriptions))
    out.add("pulsar_producers_count", labels, len(stats["publishers"]))
    out.add("pulsar_consumers_count", labels, sum(len(each["consumers"]) for each in subscriptions.values()))
    out.add("pulsar_msg_backlog", labels, sum(each["msgBacklog"] for each in subscriptions.values()))
    for name, field in _TOPIC:
        out.add(name, labels, stats[field])
    for subscription, each in subscriptions.items():
        with_subscription = f'{labels},subscription="{_escape(subscription)}"'
        out.add("pulsar_subscription_consumers_count", with_subscription, len(each["consumers"]))
        for name, field in _SUBSCRIPTION:
            out.add(name, with_subscription, each[field])


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


ROUTES: Routes = (("GET", "/metrics", _metrics),)
