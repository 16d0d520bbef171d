"""Commands that a client sends to a broker and that take more than naming their fields.

Only commands that are sent a few times per producer or consumer are built here; the bursts (SEND, ACK) have encoders
of their own in `bulk`. The others are made by their sender as they are, and put into their envelope by `wrap`.

Source: Pulsar binary protocol, sections Connection, Lookup, Producer and Consumer.
"""

from __future__ import annotations

from . import pulsar_api_pb2 as pb
from .ack_set import AckSet
from .commands import PROTOCOL_VERSION, wrap
from .message_id import MessageId, to_data
from .pulsar_api_pb2 import BaseCommand


def connect(client_version: str, proxy_to_broker: str | None) -> BaseCommand:
    """Return CONNECT.

    Args:
        client_version: free text, shown in the broker's statistics.
        proxy_to_broker: ``host:port`` of the broker that is meant, where the connection goes to a proxy.
    """
    command = pb.CommandConnect(
        client_version=client_version,
        protocol_version=PROTOCOL_VERSION,
        auth_method_name="none",
        # A broker may put its own metadata before an entry; the payload reader skips it.
        feature_flags=pb.FeatureFlags(supports_broker_entry_metadata=True),
    )
    if proxy_to_broker is not None:
        command.proxy_to_broker_url = proxy_to_broker
    return wrap(command)


def pong() -> BaseCommand:
    """Return PONG."""
    return wrap(pb.CommandPong())


def lookup(request_id: int, topic: str, authoritative: bool) -> BaseCommand:
    """Return LOOKUP, which asks for the broker that owns a topic; ``authoritative`` is copied from a redirect."""
    return wrap(pb.CommandLookupTopic(topic=topic, request_id=request_id, authoritative=authoritative))


def subscribe(command: pb.CommandSubscribe) -> BaseCommand:
    """Return SUBSCRIBE."""
    return wrap(command)


def flow(consumer_id: int, permits: int) -> BaseCommand:
    """Return FLOW, which lets the broker send ``permits`` more messages (at least 1)."""
    return wrap(pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits))


def close_consumer(request_id: int, consumer_id: int) -> BaseCommand:
    """Return CLOSE_CONSUMER."""
    return wrap(pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id))


def seek_to_id(request_id: int, consumer_id: int, message_id: MessageId, ack_set: AckSet) -> BaseCommand:
    """Return SEEK to an entry; ``ack_set`` (empty: all) names the messages of it that are still wanted."""
    data = to_data(MessageId(message_id.ledger_id, message_id.entry_id))
    data.ack_set.extend(ack_set)
    return wrap(pb.CommandSeek(consumer_id=consumer_id, request_id=request_id, message_id=data))


def seek_to_time(request_id: int, consumer_id: int, publish_time_ms: int) -> BaseCommand:
    """Return SEEK to the first message published at or after a time."""
    return wrap(pb.CommandSeek(consumer_id=consumer_id, request_id=request_id, message_publish_time=publish_time_ms))


def last_message_id(request_id: int, consumer_id: int) -> BaseCommand:
    """Return GET_LAST_MESSAGE_ID."""
    return wrap(pb.CommandGetLastMessageId(consumer_id=consumer_id, request_id=request_id))
