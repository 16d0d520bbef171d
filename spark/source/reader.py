"""A blocking reader of one topic: a non-durable subscription that the broker drops with its connection."""

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
"""Each connection has a single consumer."""
NAME_PREFIX = "magnetar-spark"
"""Default prefix of readers' subscription names."""


class ReaderClosed(ConnectionLost):
    """The broker closed the reader, not the connection: the topic was unloaded or deleted, or SEEK moved the reader."""

    def __init__(self, topic: str):
        super().__init__(f"the broker closed a reader of {topic}, as when the topic is unloaded; try again")


class LastMessage(NamedTuple):
    """The broker's answer to GET_LAST_MESSAGE_ID.

    Attributes:
        last: the newest entry; its entry id is -1 if the topic is empty.
        last_index: batch index of the newest message, -1 if it was not batched.
        mark_delete: the entry before the subscription's next one, None if the broker does not return it.
    """

    last: Position
    last_index: int
    mark_delete: Position | None


class BlockingConsumer:
    """The exclusive consumer of one subscription, for requests about it.

    Attributes:
        connection: its connection.
    """

    def __init__(self, connection: BlockingConnection, what: str, subscribe: pb.CommandSubscribe):
        """Subscribe.

        Args:
            connection: to the topic's broker.
            what: request name for errors.
            subscribe: the command, without the fields common to all consumers here.

        Raises:
            TopicNotFound: the topic does not exist.
            BrokerError, ConnectionLost, OperationTimeout: it is not available now.
        """
        subscribe.subType, subscribe.consumer_id = pb.CommandSubscribe.Exclusive, CONSUMER_ID
        self.connection = connection
        self._topic = subscribe.topic
        self._what = what
        self._subscribe = subscribe
        self.attach()

    def attach(self) -> None:
        """Subscribe; when repeated under the same name, a reader keeps its position."""
        self.connection.request(self._what, self._subscribe)

    def last_message(self) -> LastMessage:
        """Return the newest entry of the topic and the mark-delete position of the subscription.

        Raises:
            ReaderClosed: the broker closed the consumer.
            ConnectionLost, OperationTimeout: there was no answer.
        """
        command = pb.CommandGetLastMessageId(consumer_id=CONSUMER_ID)
        try:
            answer = self.connection.request(f"last message of {self._topic}", command)
        except MetadataError as error:  # "Consumer not found": its close is among the unread frames
            raise ReaderClosed(self._topic) from error
        last, mark = from_data(answer.last_message_id), None
        if answer.HasField("consumer_mark_delete_position"):
            data = answer.consumer_mark_delete_position
            mark = Position(signed_64(data.ledgerId), signed_64(data.entryId))
        return LastMessage(Position(last.ledger_id, last.entry_id), last.batch_index, mark)

    def acknowledge(self, position: Position) -> None:
        """Acknowledge everything up to an entry; the broker does not answer."""
        command = pb.CommandAck(
            consumer_id=CONSUMER_ID, ack_type=pb.CommandAck.Cumulative, message_id=[to_data(MessageId(*position))]
        )
        self.connection.send(encode_frame(wrap(command)))

    def seek_to_id(self, message_id: MessageId) -> None:
        """Move to an entry, or to the next existing one."""
        place = to_data(MessageId(message_id.ledger_id, message_id.entry_id))
        self._seek(pb.CommandSeek(consumer_id=CONSUMER_ID, message_id=place))

    def _seek(self, command: pb.CommandSeek) -> None:
        self.connection.request(f"seek in {self._topic}", command)
        # When brokers move a subscription they close its consumers, but keep it for the next one of that name. Entries
        # received before belong to the closed one.
        self.attach()
        self.connection.forget_frames()

    def close(self) -> None:
        """Close the consumer; the connection stays open."""
        self.connection.request(f"closing {self._topic}", pb.CommandCloseConsumer(consumer_id=CONSUMER_ID))


class BlockingReader(BlockingConsumer):
    """Reads one topic from a start position on. It never creates the topic."""

    def __init__(self, connection: BlockingConnection, topic: str, start: MessageId, prefix: str = NAME_PREFIX):
        """Subscribe, under a new name with this prefix; raises as `BlockingConsumer`."""
        name = f"{prefix}-{secrets.token_hex(8)}"
        command = pb.CommandSubscribe(
            topic=topic,
            subscription=name,
            consumer_name=name,
            durable=False,
            start_message_id=to_data(start),
            # Pulsar treats a start after the end as "latest"; nothing that existed before is lost by that.
            initialPosition=pb.CommandSubscribe.Latest,
            force_topic_creation=False,
        )
        super().__init__(connection, f"reading {topic}", command)

    def flow(self, messages: int) -> None:
        """Allow the broker to send this many more messages; it rounds up to whole entries."""
        self.connection.send(encode_frame(wrap(pb.CommandFlow(consumer_id=CONSUMER_ID, messagePermits=messages))))

    def next_entry(self, deadline: float) -> tuple[Position, bytes] | None:
        """Return the next entry and its payload section, None if none arrives until ``deadline``.

        Raises:
            ReaderClosed: the broker closed the reader.
            ConnectionLost: the connection has ended.
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
        """Move to the first entry published at a time or later."""
        self._seek(pb.CommandSeek(consumer_id=CONSUMER_ID, message_publish_time=publish_time_ms))
