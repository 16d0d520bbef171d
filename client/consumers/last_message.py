"""Asks for the newest message of a topic, and where a subscription stands."""

from __future__ import annotations

from ...wire.message_id import MessageId, from_data
from ...wire.pulsar_api_pb2 import CommandGetLastMessageId, CommandGetLastMessageIdResponse
from ..connections.connection import Connection


async def ask_last(
    connection: Connection, consumer_id: int, topic: str, partition: int
) -> tuple[MessageId, MessageId | None]:
    """Return the newest message's id, and where the consumer's subscription stands if the broker says so.

    Cancellation: safe.
    """
    answer: CommandGetLastMessageIdResponse = await connection.request(
        f"last message id of {topic}", CommandGetLastMessageId(consumer_id=consumer_id)
    )
    last = from_data(answer.last_message_id)
    if last.batch_index >= 0:
        last = last._replace(batch_size=last.batch_index + 1)
    last = last._replace(partition=partition)
    if not answer.HasField("consumer_mark_delete_position"):
        return last, None
    return last, from_data(answer.consumer_mark_delete_position)
