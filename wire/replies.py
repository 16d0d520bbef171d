"""Commands that a broker sends to a client, one constructor each.

Receipts and messages come in bursts and have encoders of their own in `bulk`. What a success must leave unset
(``error``, ``message``) is left unset here: clients decide by presence.

Source: Pulsar binary protocol, sections Connection, Lookup, Producer and Consumer.
"""

from __future__ import annotations

from collections.abc import Iterable

from .pulsar_api_pb2 import (
    BaseCommand,
    CommandAckResponse,
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandConnected,
    CommandConsumerStatsResponse,
    CommandError,
    CommandGetLastMessageIdResponse,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchemaResponse,
    CommandGetTopicsOfNamespaceResponse,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    CommandPing,
    CommandPong,
    CommandProducerSuccess,
    CommandReachedEndOfTopic,
    CommandSendError,
    CommandSuccess,
    FeatureFlags,
    MessageIdData,
)

PROTOCOL_VERSION = 21
"""Highest version of the protocol that the broker knows."""
NO_REQUEST = (1 << 64) - 1
"""Request id of what no request asked for: -1 as the unsigned number of the wire."""

_U64 = NO_REQUEST


def connected(server_version: str, client_protocol_version: int, max_message_bytes: int) -> BaseCommand:
    """Return CONNECTED; the two sides speak the lower of their versions."""
    command = CommandConnected(
        server_version=server_version,
        protocol_version=min(client_protocol_version, PROTOCOL_VERSION),
        max_message_size=max_message_bytes,
        feature_flags=FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True),
    )
    return BaseCommand(type=BaseCommand.CONNECTED, connected=command)


def ping() -> BaseCommand:
    """Return PING."""
    return BaseCommand(type=BaseCommand.PING, ping=CommandPing())


def pong() -> BaseCommand:
    """Return PONG."""
    return BaseCommand(type=BaseCommand.PONG, pong=CommandPong())


def success(request_id: int) -> BaseCommand:
    """Return SUCCESS."""
    return BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=request_id))


def error(request_id: int, code: int, message: str) -> BaseCommand:
    """Return ERROR; ``code`` is a ServerError."""
    command = CommandError(request_id=request_id, error=code, message=message)  # type: ignore[arg-type]
    return BaseCommand(type=BaseCommand.ERROR, error=command)


def partitioned_metadata(request_id: int, partitions: int) -> BaseCommand:
    """Return the number of partitions of a topic, 0 for a topic without."""
    command = CommandPartitionedTopicMetadataResponse(
        request_id=request_id, partitions=partitions, response=CommandPartitionedTopicMetadataResponse.Success
    )
    return BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=command)


def partitioned_metadata_failed(request_id: int, code: int, message: str) -> BaseCommand:
    """Return that the number of partitions cannot be told."""
    command = CommandPartitionedTopicMetadataResponse(
        request_id=request_id,
        response=CommandPartitionedTopicMetadataResponse.Failed,
        error=code,  # type: ignore[arg-type]
        message=message,
    )
    return BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=command)


def lookup_connect(request_id: int, service_url: str, through_proxy: bool) -> BaseCommand:
    """Return that this broker serves the topic."""
    command = CommandLookupTopicResponse(
        brokerServiceUrl=service_url,
        response=CommandLookupTopicResponse.Connect,
        request_id=request_id,
        authoritative=True,
        proxy_through_service_url=through_proxy,
    )
    return BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=command)


def lookup_failed(request_id: int, code: int, message: str) -> BaseCommand:
    """Return that the topic has no broker."""
    command = CommandLookupTopicResponse(
        response=CommandLookupTopicResponse.Failed,
        request_id=request_id,
        error=code,  # type: ignore[arg-type]
        message=message,
    )
    return BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=command)


def topics_of_namespace(
    request_id: int, topics: Iterable[str], topics_hash: str, *, filtered: bool, changed: bool
) -> BaseCommand:
    """Return names of topics, partitions by their full names."""
    command = CommandGetTopicsOfNamespaceResponse(
        request_id=request_id, topics=topics, filtered=filtered, topics_hash=topics_hash, changed=changed
    )
    return BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=command)


def producer_success(
    request_id: int, name: str, *, last_sequence_id: int, topic_epoch: int | None, is_ready: bool
) -> BaseCommand:
    """Return PRODUCER_SUCCESS; a producer that is not ready waits for exclusive access."""
    command = CommandProducerSuccess(
        request_id=request_id,
        producer_name=name,
        last_sequence_id=last_sequence_id,
        schema_version=b"",
        producer_ready=is_ready,
    )
    if topic_epoch is not None:
        command.topic_epoch = topic_epoch
    return BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=command)


def send_error(producer_id: int, sequence_id: int, code: int, message: str) -> BaseCommand:
    """Return that one SEND failed."""
    command = CommandSendError(
        producer_id=producer_id,
        sequence_id=sequence_id,
        error=code,  # type: ignore[arg-type]
        message=message,
    )
    return BaseCommand(type=BaseCommand.SEND_ERROR, send_error=command)


def close_producer(producer_id: int) -> BaseCommand:
    """Return that the broker closes a producer; no answer is expected."""
    command = CommandCloseProducer(producer_id=producer_id, request_id=NO_REQUEST)
    return BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=command)


def close_consumer(consumer_id: int) -> BaseCommand:
    """Return that the broker closes a consumer; no answer is expected."""
    command = CommandCloseConsumer(consumer_id=consumer_id, request_id=NO_REQUEST)
    return BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=command)


def ack_response(consumer_id: int, request_id: int, failure: tuple[int, str] | None = None) -> BaseCommand:
    """Return that an acknowledgement took effect, or the code and text of why not."""
    command = CommandAckResponse(consumer_id=consumer_id, request_id=request_id)
    if failure is not None:
        command.error = failure[0]  # type: ignore[assignment]
        command.message = failure[1]
    return BaseCommand(type=BaseCommand.ACK_RESPONSE, ackResponse=command)


def active_consumer_change(consumer_id: int, is_active: bool) -> BaseCommand:
    """Return to a failover consumer whether it is the active one now."""
    command = CommandActiveConsumerChange(consumer_id=consumer_id, is_active=is_active)
    return BaseCommand(type=BaseCommand.ACTIVE_CONSUMER_CHANGE, active_consumer_change=command)


def reached_end_of_topic(consumer_id: int) -> BaseCommand:
    """Return that a terminated topic holds nothing more; only Java clients know this command."""
    command = CommandReachedEndOfTopic(consumer_id=consumer_id)
    return BaseCommand(type=BaseCommand.REACHED_END_OF_TOPIC, reachedEndOfTopic=command)


def last_message_id(
    request_id: int, last: tuple[int, int], partition: int, batch_index: int, mark_delete: tuple[int, int]
) -> BaseCommand:
    """Return the last message of a topic and the consumer's mark-delete position, each as ledger and entry."""
    command = CommandGetLastMessageIdResponse(
        last_message_id=MessageIdData(
            ledgerId=last[0] & _U64, entryId=last[1] & _U64, partition=partition, batch_index=batch_index
        ),
        request_id=request_id,
        consumer_mark_delete_position=MessageIdData(ledgerId=mark_delete[0] & _U64, entryId=mark_delete[1] & _U64),
    )
    return BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=command)


def consumer_stats(command: CommandConsumerStatsResponse) -> BaseCommand:
    """Return CONSUMER_STATS_RESPONSE."""
    return BaseCommand(type=BaseCommand.CONSUMER_STATS_RESPONSE, consumerStatsResponse=command)


def schema_failed(request_id: int, code: int, message: str) -> BaseCommand:
    """Return that a schema cannot be given."""
    command = CommandGetSchemaResponse(
        request_id=request_id,
        error_code=code,  # type: ignore[arg-type]
        error_message=message,
    )
    return BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=command)


def schema_creation_failed(request_id: int, code: int, message: str) -> BaseCommand:
    """Return that a schema was not stored."""
    command = CommandGetOrCreateSchemaResponse(
        request_id=request_id,
        error_code=code,  # type: ignore[arg-type]
        error_message=message,
    )
    return BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, getOrCreateSchemaResponse=command)
