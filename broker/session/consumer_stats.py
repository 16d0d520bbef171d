"""The answer to CONSUMER_STATS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...wire.pulsar_api_pb2 import CommandConsumerStatsResponse
from ..topics.subscription_types import kind_name

if TYPE_CHECKING:
    from ..topics.consumer import Consumer


def consumer_stats_response(consumer: Consumer, request_id: int) -> CommandConsumerStatsResponse:
    """Return what a consumer's client is told about it; rates are averages over the last period."""
    subscription = consumer.subscription
    messages, bytes_, redelivered, acked = consumer.meter.rates
    return CommandConsumerStatsResponse(
        request_id=request_id,
        msgRateOut=messages,
        msgThroughputOut=bytes_,
        msgRateRedeliver=redelivered,
        consumerName=consumer.name,
        availablePermits=consumer.permits & (1 << 64) - 1,
        unackedMessages=consumer.unacked_messages,
        blockedConsumerOnUnackedMsgs=consumer.is_blocked,
        address=consumer.connection.address,
        connectedSince=consumer.connected_since,
        type=kind_name(subscription.kind),
        msgRateExpired=0.0,
        msgBacklog=subscription.cursor.backlog_entries,
        messageAckRate=acked,
    )
