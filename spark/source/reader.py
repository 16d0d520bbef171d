"""Blocking reader of a topic: a non-durable subscription that the broker drops with its connection."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from ...errors import ConnectionLost, MetadataError
from ...wire import pulsar_api_pb2 as pb
from ...wire.commands import wrap
from ...wire.frames import encode_frame
from ...wire.message_id import MessageId, from_data, signed_64, to_data
from ...wire.position import Position
from .connection import BlockingConnection

CONSUMER_ID = 1
"""Consumer id, constant because each connection has a single consumer."""
NAME_PREFIX = "magnetar-spark"
"""Default prefix of readers' subscription names."""


class ReaderClosed(ConnectionLost):
    """The broker closed the reader but not the connection: the topic was unloaded or deleted, or the reader moved."""

    def __init__(self, topic: str):
        super().__init__(f"the broker closed a reader of {topic}, for example to unload the topic: retry")


class LastMessage(NamedTuple):
    """Response to GET_LAST_MESSAGE_ID.

    Attributes:
        last: newest entry; the entry id is -1 if the topic is empty.
        last_index: batch index of the newest message, or -1 if the message was not batched.
        mark_delete: entry before the subscription's next entry, or None if the broker does not return it.
    """

    last: Position
    last_index: int
    mark_delete: Position | None


class BlockingConsumer:
    """Exclusive consumer of a subscription, for requests about the subscription.

    Attributes:
        connection: connection of the consumer.
    """

    def __init__(self, connection: BlockingConnection, what: str, subscribe: pb.CommandSubscribe):
        """Subscribe.

        Args:
            connection: connection to the topic's broker.
            what: request name for errors.
            subscribe: SUBSCRIBE command without the fields that are common to all consumers here.

        Raises:
            TopicNotFound: the topic does not exist.
            BrokerError, ConnectionLost, OperationTimeout: the subscription is currently unavailable.
        """
        subscribe.subType, subscribe.consumer_id = pb.CommandSubscribe.Exclusive, CONSUMER_ID
        self.connection = connection
        self._topic = subscribe.topic
        self._what = what
        self._subscribe = subscribe
        self.attach()

    def attach(self) -> None:
        """Subscribe; a reader that resubscribes with the same name keeps its position."""
        self.connection.request(self._what, self._subscribe)

    def last_message(self) -> LastMessage:
        """Return the newest entry of the topic and the mark-delete position of the subscription.

        Raises:
            ReaderClosed: the broker closed the consumer.
            ConnectionLost, OperationTimeout: there was no response.
        """
        command = pb.CommandGetLastMessageId(consumer_id=CONSUMER_ID)
        try:
            answer = self.connection.request(f"last message of {self._topic}", command)
        except MetadataError as error:  # "Consumer not found": the unread frames contain its close command
            raise ReaderClosed(self._topic) from error
        last, mark = from_data(answer.last_message_id), None
        if answer.HasField("consumer_mark_delete_position"):
            data = answer.consumer_mark_delete_position
            mark = Position(signed_64(data.ledgerId), signed_64(data.entryId))
        return LastMessage(Position(last.ledger_id, last.entry_id), last.batch_index, mark)

    def acknowledge(self, position: Position) -> None:
        """Acknowledge everything up to an entry; the broker does not confirm it."""
        command = pb.CommandAck(
            consumer_id=CONSUMER_ID, ack_type=pb.CommandAck.Cumulative, message_id=[to_data(MessageId(*position))]
        )
        self.connection.send(encode_frame(wrap(command)))

    def seek_to_id(self, message_id: MessageId) -> None:
        """Move to an entry or the next existing one."""
        place = to_data(MessageId(message_id.ledger_id, message_id.entry_id))
        self._seek(pb.CommandSeek(consumer_id=CONSUMER_ID, message_id=place))

    def _seek(self, command: pb.CommandSeek) -> None:
        self.connection.request(f"seek in {self._topic}", command)
        # When brokers move a subscription, they close its consumers but keep it for the next consumer with the same
        # name. Entries received before belong to the closed consumer.
        self.attach()
        self.connection.forget_frames()

    def close(self) -> None:
        """Close the consumer; the connection stays open."""
        self.connection.request(f"closing {self._topic}", pb.CommandCloseConsumer(consumer_id=CONSUMER_ID))


class BlockingReader(BlockingConsumer):
    """Reads one topic from a start position onwards. Never creates the topic."""

    def __init__(self, connection: BlockingConnection, topic: str, start: MessageId, prefix: str = NAME_PREFIX):
        """Subscribe with a new name that starts with a prefix; raises the same errors as `BlockingConsumer`."""
        name = f"{prefix}-{secrets.token_hex(8)}"
        command = pb.CommandSubscribe(
            topic=topic,
            subscription=name,
            consumer_name=name,
            durable=False,
            start_message_id=to_data(start),
            # Pulsar treats a start after the end as "latest", which does not skip any existing entry.
            initialPosition=pb.CommandSubscribe.Latest,
            force_topic_creation=False,
        )
        super().__init__(connection, f"reading {topic}", command)

    def flow(self, messages: int) -> None:
        """Allow the broker to send a number of additional messages, rounded up to whole entries."""
        self.connection.send(encode_frame(wrap(pb.CommandFlow(consumer_id=CONSUMER_ID, messagePermits=messages))))

    def next_entry(self, deadline: float) -> tuple[Position, bytes] | None:
        """Return the next entry and its payload section, or None if no entry arrives until ``deadline``.

        Raises:
            ReaderClosed: the broker closed the reader.
            ConnectionLost: the connection is closed.
        """
        while (frame := self.connection.next_frame(deadline)) is not None:
            command = frame.command
            if command.type == pb.BaseCommand.MESSAGE:
                id_ = command.message.message_id
                return Position(id_.ledgerId, id_.entryId), frame.payload
            if command.type == pb.BaseCommand.CLOSE_CONSUMER:
                raise ReaderClosed(self._topic)
        return None

    def seek_to_time(self, publish_time_ms: int) -> None:
        """Move to the first entry published at or after a time."""
        self._seek(pb.CommandSeek(consumer_id=CONSUMER_ID, message_publish_time=publish_time_ms))
