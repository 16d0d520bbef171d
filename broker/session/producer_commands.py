"""Handlers for PRODUCER and CLOSE_PRODUCER. `connection` handles SEND.

Source: Pulsar binary protocol, section Producer (creation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import MetadataError, NotAllowed, PersistenceError, ServiceNotReady
from ...wire.pulsar_api_pb2 import CommandCloseProducer, CommandProducer
from ...wire.topic_name import parse_topic_name
from ..schemas.model import from_wire
from ..storage.cursors.names import check_size, is_internal
from ..topics.backlog_quotas import check_admits
from ..topics.gate import must_be_encrypted
from ..topics.producer import Producer
from ..topics.topic_schemas import producer_version
from .authorization import audit_created

if TYPE_CHECKING:
    from .connection import Connection


def producer(connection: Connection, command: CommandProducer) -> None:
    """Create a producer, or confirm an existing one.

    A producer that the broker closed because of a message is rejected once; see `Producer.refuse`.
    """
    id_ = command.producer_id
    existing = connection.producers.get(id_)
    if existing is not None:
        existing.request_id = command.request_id
        existing.succeed(existing.topic.producers.epoch if existing.is_ready else None)
    elif (refusal := connection.closed_producers.take_refusal(id_)) is not None:
        raise refusal
    elif id_ in connection.producers.opening:
        raise ServiceNotReady("Producer is already present on the connection")
    else:
        check_size("producer properties", ((pair.key, pair.value) for pair in command.metadata))
        connection.producers.begin(id_, connection.start(command.request_id, _create(connection, command)))


async def _create(connection: Connection, command: CommandProducer) -> None:
    broker = connection.broker
    name = parse_topic_name(command.topic)
    is_new = connection.roles is not None and not broker.has_topic(name)
    topic = await broker.topic(name)
    if is_new:
        audit_created(connection, name)
    if broker.storage.failure is not None and name.is_persistent:
        # A client that is rejected here backs off. If each SEND were rejected, it would reconnect immediately with all
        # its messages, and never notice the send timeout of the first one.
        raise PersistenceError(str(broker.storage.failure))
    # As in Pulsar, naming one of the broker's own cursors has no effect. Neither has any name on a non-persistent
    # topic, where a subscription ends with its last consumer.
    is_wanted = name.is_persistent and not is_internal(command.initial_subscription_name)
    if command.initial_subscription_name and is_wanted:
        if not broker.namespaces.auto_subscription_creation(name):
            raise NotAllowed(
                f"subscription {command.initial_subscription_name!r} does not exist, and automatic subscription"
                f" creation is disabled in namespace {name.namespace_name}"
            )
        await topic.create_subscription(command.initial_subscription_name, "earliest")
    await check_admits(topic)
    if not command.encrypted and must_be_encrypted(name, topic.policies):
        raise MetadataError(f"Encryption is required in {name.text}")
    schema = from_wire(command.schema, broker.now_ms()) if command.HasField("schema") else None
    version = await producer_version(topic, schema)
    producer_name = command.producer_name or broker.new_producer_name()
    await topic.producers.add(Producer(topic, connection, command, producer_name, version))


def close_producer(connection: Connection, command: CommandCloseProducer) -> None:
    """Close a producer after its last entry is answered. An unknown id counts as closed."""
    leaving = connection.producers.close(command.producer_id)
    if leaving is None or not leaving.pending_entries:
        if leaving is not None:
            leaving.detach()
        connection.succeed(command.request_id)
    else:
        connection.start(command.request_id, _close(connection, leaving, command.request_id))


async def _close(connection: Connection, leaving: Producer, request_id: int) -> None:
    try:
        await leaving.idle()
    finally:
        leaving.detach()
    connection.succeed(request_id)
