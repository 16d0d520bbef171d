"""``/metrics``: Prometheus metrics with Pulsar's names. As in Pulsar, every family is a gauge, including totals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from starlette.responses import Response

from ...tasks import Slices
from ...web.answers import in_parts
from ...web.call import caller_of
from ...web.exposition import CONTENT_TYPE, render
from .call import Call
from .topics.stats import sliced_stats

_SAMPLES_PER_STEP = 200
"""Samples rendered per step, which takes about two milliseconds."""
_LABELS = ("cluster", "namespace", "topic", "subscription", "reason")
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
THROTTLED = "pulsar_subscription_dispatch_throttled_{}_events"
_REASONS = ("subscription", "topic", "broker")
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


class Gauges:
    """Metric families as Prometheus text, in the order in which they were first added.

    Samples are rendered a few at a time: a million sample objects would keep the garbage collector busy.
    """

    def __init__(self) -> None:
        self._families: dict[str, GaugeMetricFamily] = {}
        self._texts: dict[str, list[bytes]] = {}
        self._sums: dict[str, float] = {}

    def add(self, name: str, labels: tuple[str, ...], value: float, help_text: str) -> None:
        """Add one sample. ``labels`` are values for the first names in `_LABELS`, equally many in all of a family."""
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = GaugeMetricFamily(name, help_text, labels=_LABELS[: len(labels)])
            self._texts[name] = []
        family.add_metric(labels, value)
        self._sums[name] = self._sums.get(name, 0) + value
        if len(family.samples) >= _SAMPLES_PER_STEP:
            self._write(name, family)

    def sum(self, name: str) -> float:
        """Return the sum of a family's samples."""
        return self._sums.get(name, 0)

    def _write(self, name: str, family: GaugeMetricFamily) -> None:
        lines = render((family,))
        if texts := self._texts[name]:  # only the first part has the comments
            lines = b"\n".join(line for line in lines.split(b"\n") if not line.startswith(b"#"))
        texts.append(lines)
        family.samples = []

    async def text(self, slices: Slices) -> list[bytes]:
        """Return the text of all families, in parts."""
        parts: list[bytes] = []
        for name, family in self._families.items():
            if family.samples:
                self._write(name, family)
            parts += self._texts[name]
            await slices.pause()
        return parts


async def metrics(call: Call) -> Response:
    """Return the metrics of namespaces, topics and subscriptions, and the broker's totals."""
    async with call.broker.reports.turn(caller_of(call.request.scope)):
        return in_parts(await _text(call, Slices()), CONTENT_TYPE)


async def _text(call: Call, slices: Slices) -> list[bytes]:
    out = Gauges()
    cluster = (call.namespaces.cluster_name,)
    for tenant in call.namespaces.tenants():
        for namespace in call.namespaces.namespaces(tenant):
            names = [*call.broker.topic_names(namespace), *call.broker.non_persistent_names(namespace)]
            labels = (*cluster, namespace)
            out.add("pulsar_topics_count", labels, len(names), "Topics in a namespace.")
            fitting, others = call.broker.schemas.compatible[namespace], call.broker.schemas.incompatible[namespace]
            out.add("pulsar_schema_compatible_total", labels, fitting, "Compatible new schemas.")
            out.add("pulsar_schema_incompatible_total", labels, others, "Incompatible schemas rejected.")
            await slices.pause()
    for topic in tuple(call.broker.topics.values()):
        of_topic = (*cluster, topic.name.namespace_name, str(topic.name))
        stats = await sliced_stats(topic, slices)
        add_topic(out, of_topic, stats)
        for subscription, each in stats["subscriptions"].items():
            add_subscription(out, (*of_topic, subscription), each)
            await slices.pause()
        await slices.pause()
    out.add("pulsar_broker_topics_count", cluster, len(call.broker.topics), "Loaded topics.")
    for name, of in _BROKER_SUMS.items():
        out.add(name, cluster, out.sum(of), f"Sum of {of}.")
    return await out.text(slices)


def add_topic(out: Gauges, labels: tuple[str, ...], stats: Mapping[str, Any]) -> None:
    """Add the samples of one topic."""
    subscriptions = stats["subscriptions"]
    out.add("pulsar_subscriptions_count", labels, len(subscriptions), "Subscriptions of a topic.")
    out.add("pulsar_producers_count", labels, len(stats["publishers"]), "Producers of a topic.")
    consumers = sum(len(each["consumers"]) for each in subscriptions.values())
    out.add("pulsar_consumers_count", labels, consumers, "Consumers of a topic.")
    backlog = sum(each["msgBacklog"] for each in subscriptions.values())
    out.add("pulsar_msg_backlog", labels, backlog, "Total backlog of a topic's subscriptions.")
    for name, field in _TOPIC:
        out.add(name, labels, stats[field], field)


def add_subscription(out: Gauges, labels: tuple[str, ...], stats: Mapping[str, Any]) -> None:
    """Add the samples of one subscription. The last label is its name."""
    out.add("pulsar_subscription_consumers_count", labels, len(stats["consumers"]), "Consumers of a subscription.")
    for name, field in _SUBSCRIPTION:
        out.add(name, labels, stats[field], field)
    dropped = stats.get("msgDropRate", 0.0)  # only non-persistent topics drop messages
    out.add("pulsar_subscription_msg_drop_rate", labels, dropped, "msgDropRate")
    for what, word in (("Msg", "msg"), ("Bytes", "bytes")):
        for reason in _REASONS:
            times = stats.get(f"dispatchThrottled{what}EventsBy{reason.title()}Limit", 0)
            out.add(THROTTLED.format(word), (*labels, reason), times, "Dispatches delayed by a rate limit.")
