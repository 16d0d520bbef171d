"""Handlers for ACK and REDELIVER_UNACKNOWLEDGED_MESSAGES.

Both contain message ids, which are applied in batches, yielding to the event loop after each.

Source: Pulsar binary protocol, sections ACK and Redelivery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...errors import NotAllowed, ServiceNotReady
from ...wire.message_id import signed_64
from ...wire.position import Position
from ...wire.pulsar_api_pb2 import (
    CommandAck,
    CommandAckResponse,
    CommandRedeliverUnacknowledgedMessages,
    MessageIdData,
)
from ..dispatch.shared import SharedDispatcher
from ..errors import error_code
from ..storage.port import Ack, Done

if TYPE_CHECKING:
    from ..topics.subscription import Subscription
    from .connection import Connection

log = logging.getLogger(__name__)

IDS_PER_BATCH = 5_000
"""Number of message ids of a command to apply before yielding to the event loop. Clients send up to 1,000."""


def ack(connection: Connection, command: CommandAck) -> None:
    """Acknowledge messages. If the client requests a response, send it once the acknowledgement is on disk."""
    id_ = command.consumer_id
    consumer = connection.consumers.get(id_)
    if consumer is None:
        return
    done = partial(_answer, connection, id_, command.request_id) if command.HasField("request_id") else None
    if command.HasField("txnid_least_bits"):
        if done is not None:
            done(NotAllowed("transactions are not supported by this broker"))
        return
    ids = command.message_id
    inside_batches = connection.config.acknowledge_inside_batches
    if command.ack_type == CommandAck.Individual:
        _apply_in_batches(
            connection,
            consumer.subscription,
            ids,
            lambda batch, batch_done: consumer.subscription.acknowledge(
                consumer, _acks(batch, inside_batches), batch_done
            ),
            done,
        )
    elif len(ids) == 1:
        if inside_batches or not ids[0].ack_set:
            consumer.subscription.acknowledge_up_to(consumer, position_of(ids[0]), ids[0].ack_set or None, done)
        elif done is not None:
            done(None)
    else:
        log.warning("%r: ignored a cumulative acknowledgement of %d message ids: expected 1", consumer, len(ids))
        if done is not None:
            done(None)


def position_of(data: MessageIdData) -> Position:
    """Return the entry position of a message id in wire format."""
    return Position(signed_64(data.ledgerId), signed_64(data.entryId))


def _acks(ids: Sequence[MessageIdData], inside_batches: bool) -> list[Ack]:
    # The ack set is not copied: the cursor truncates it to the size of the entry's batch.
    acks: list[Ack] = []
    for data in ids:
        words = data.ack_set
        if not words:
            acks.append((Position(data.ledgerId, data.entryId), None))
        elif inside_batches:
            acks.append((Position(data.ledgerId, data.entryId), words))
    return acks


def _answer(connection: Connection, consumer_id: int, request_id: int, error: Exception | None) -> None:
    response = CommandAckResponse(consumer_id=consumer_id, request_id=request_id)
    if error is not None:
        response.error, response.message = error_code(error)
    connection.reply(response)


def redeliver(connection: Connection, command: CommandRedeliverUnacknowledgedMessages) -> None:
    """Redeliver the listed entries of a consumer, or all that it has not acknowledged."""
    consumer = connection.consumers.get(command.consumer_id)
    if consumer is None or consumer.subscription.dispatcher is None:
        return
    dispatcher = consumer.subscription.dispatcher
    epoch = command.consumer_epoch if command.HasField("consumer_epoch") else None
    if not command.message_ids or not isinstance(dispatcher, SharedDispatcher):
        dispatcher.redeliver(consumer, None, epoch)
        return

    def apply(batch: Sequence[MessageIdData], _: Done | None) -> None:
        dispatcher.redeliver(consumer, [Position(data.ledgerId, data.entryId) for data in batch], epoch)

    _apply_in_batches(connection, consumer.subscription, command.message_ids, apply)


def _apply_in_batches(
    connection: Connection,
    subscription: Subscription,
    ids: Sequence[MessageIdData],
    apply: Callable[[Sequence[MessageIdData], Done | None], None],
    done: Done | None = None,
) -> None:
    """Apply the message ids of a command: immediately if there are few, else one batch per event loop iteration.

    The connection is not read until the last batch is applied, so that its next commands remain in order and no second
    list is queued.
    """
    if len(ids) <= IDS_PER_BATCH:
        apply(ids, done)
        return
    read_on = connection.hold_back()
    answers = _Answers(-(-len(ids) // IDS_PER_BATCH), done) if done is not None else None
    resets = subscription.resets

    async def work() -> None:
        try:
            for start in range(0, len(ids), IDS_PER_BATCH):
                if subscription.is_closed or subscription.resets != resets:
                    # Acknowledgements sent before a seek do not apply after it.
                    if done is not None:
                        done(ServiceNotReady(f"Subscription {subscription.name} was closed or reset meanwhile"))
                    return
                apply(ids[start : start + IDS_PER_BATCH], answers)
                await asyncio.sleep(0)
        finally:
            read_on()

    connection.start(0, work())


class _Answers:
    """Combines the results of all batches into one response: the first error, or success."""

    def __init__(self, batches: int, done: Done):
        self._left = batches
        self._done = done
        self._error: Exception | None = None

    def __call__(self, error: Exception | None) -> None:
        self._error = self._error or error
        self._left -= 1
        if not self._left:
            self._done(self._error)
