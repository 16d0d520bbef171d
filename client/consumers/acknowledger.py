"""Sends a consumer's positive and negative acknowledgements, grouped, and with receipts if configured.

Design: acknowledgements outlive connections. Any that are buffered or unconfirmed when a connection ends are resent on
the next one before permits are sent, so that the broker does not redeliver processed messages.

A claim acknowledges entries before processing and determines which still belong to this consumer (at-most-once
delivery). A claim must not outlive its connection. Once the connection has ended or another consumer is active, the
broker may have delivered the entries to another consumer, and would still confirm the acknowledgement. So a claim is
valid only if its receipt arrives on the connection that delivered the entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ...errors import ClosedError, ConnectionLost, InvalidConfig, MagnetarError
from ...tasks import settle
from ...wire.bulk import ack_frame
from ...wire.message_id import MessageId
from ..config import ConsumerConfig
from ..connections.connection import Connection
from .ack_tracker import AckIds, AckPart, AckTracker
from .negative_acks import NegativeAcks
from .received import EntryKey


class _Group:
    """Acknowledgements sent together and awaiting confirmation."""

    __slots__ = ("attempt", "error", "future", "parts", "unanswered")

    def __init__(self, parts: list[AckPart], future: asyncio.Future[None]):
        self.parts = parts
        self.future = future
        self.attempt = 0  # identifies late responses to an earlier attempt
        self.unanswered = 0
        self.error: BaseException | None = None


class Acknowledger:
    """The acknowledgements of one consumer.

    Attributes:
        tracker: the acknowledged positions.
    """

    def __init__(
        self, consumer_id: int, config: ConsumerConfig, topic: str, redeliver: Callable[[list[EntryKey]], None]
    ):
        """Create the acknowledgements of a consumer.

        Args:
            consumer_id: the consumer's id.
            config: the consumer's settings.
            topic: topic name, for errors.
            redeliver: called with the entries whose negative acknowledgement is due.
        """
        self.tracker = AckTracker()
        self._claims: dict[asyncio.Future[None], asyncio.Future[object]] = {}
        self._negative = NegativeAcks(config.negative_ack_delay_ms / 1000)
        self._negative_timer: asyncio.TimerHandle | None = None
        self._redeliver = redeliver
        self._consumer_id = consumer_id
        self._grouping_s = config.ack_grouping_ms / 1000
        self._grouping_max = config.ack_grouping_max
        self._wants_receipts = config.ack_receipts
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._done.set_result(None)
        self._buffered: asyncio.Future[None] | None = None
        self._in_flight: set[_Group] = set()
        self._lost: list[_Group] = []

    def attach(self, connection: Connection) -> None:
        """Start sending on ``connection``, beginning with unsent acknowledgements."""
        self._connection = connection
        lost, self._lost = self._lost, []
        for group in lost:
            self._send_group(connection, group)
        self.flush()

    def detach(self) -> None:
        """Buffer everything until the next `attach`."""
        self._connection = None
        self._lost += self._in_flight
        self._in_flight.clear()
        self.lose_claims("the connection that delivered it was closed")

    # -- acknowledging --------------------------------------------------------------------------------------------

    def message(self, message_id: MessageId) -> asyncio.Future[None]:
        """Acknowledge a message, or a whole entry if the id has no batch index.

        Raises:
            InvalidConfig: the id has a batch index but no batch size.
        """
        ledger_id, entry_id, _, index, size = message_id
        position = (ledger_id, entry_id)
        if index < 0:
            return self.entry(position)
        if size <= index:
            raise InvalidConfig(f"invalid message id {message_id}: batch_index {index} is not within batch_size {size}")
        if self.tracker.add_index(position, index, size):
            self._negative.discard(position)
        return self._sent_later()

    def entry(self, position: EntryKey) -> asyncio.Future[None]:
        """Acknowledge a whole entry."""
        tracker = self.tracker
        tracker.add_entry(position)
        self._negative.discard(position)
        if self._timer is None or self._wants_receipts or tracker.buffered >= self._grouping_max:
            return self._sent_later()
        return self._done  # sent with others when the timer fires

    def entries_now(self, positions: list[EntryKey]) -> asyncio.Future[None]:
        """Acknowledge whole entries in one frame, immediately."""
        tracker = self.tracker
        if tracker.companions:
            positions = tracker.take_companions(positions)
        if tracker.is_busy or self._negative:
            for position in positions:
                tracker.forget(position)
                self._negative.discard(position)
        if self._connection is None:
            for position in positions:
                tracker.add_entry(position)
            return self._sent_later()
        ids: AckIds = [(ledger_id, entry_id, ()) for ledger_id, entry_id in positions]
        if not self._wants_receipts:
            self._connection.send(ack_frame(self._consumer_id, ids))
            return self._done
        future: asyncio.Future[None] = self._loop.create_future()
        self._send_group(self._connection, _Group([(False, ids)], future))
        return future

    def claim(self, positions: list[EntryKey]) -> asyncio.Future[None]:
        """Acknowledge whole entries immediately, on this connection only; return the future of the receipt.

        The future fails with ConnectionLost if another consumer may own the entries, or with the broker's error.
        """
        claim: asyncio.Future[None] = self._loop.create_future()
        connection = self._connection
        if connection is None:
            claim.set_exception(ConnectionLost(f"{self._topic}: the connection that delivered it was closed"))
            return claim
        if self.tracker.companions:
            positions = self.tracker.with_companions(positions)  # kept, as entries not claimed are redelivered whole
        for position in positions:
            self.tracker.forget(position)
            self._negative.discard(position)
        request_id = connection.next_request_id()
        ids = [(ledger_id, entry_id, ()) for ledger_id, entry_id in positions]
        frame = ack_frame(self._consumer_id, ids, request_id=request_id)
        answer = connection.request_by_frame(f"acknowledge {len(ids)} entries of {self._topic}", request_id, frame)
        self._claims[claim] = answer
        answer.add_done_callback(partial(self._claim_answered, claim))
        return claim

    def _claim_answered(self, claim: asyncio.Future[None], answer: asyncio.Future[object]) -> None:
        self._claims.pop(claim, None)
        settle(claim, ClosedError("cancelled") if answer.cancelled() else answer.exception())

    def lose_claims(self, why: str) -> None:
        """Fail claims without a receipt: another consumer may own their entries now."""
        claims, self._claims = self._claims, {}
        for claim, answer in claims.items():
            if answer.done():
                self._claim_answered(claim, answer)  # the receipt arrived earlier
            else:
                settle(claim, ConnectionLost(f"{self._topic}: {why}"))

    def all_but(self, position: EntryKey, wanted: int) -> asyncio.Future[None]:
        """Acknowledge all messages of an entry except those whose bits are set in ``wanted``."""
        if self.tracker.add_wanted(position, wanted):
            self._negative.discard(position)
        return self._sent_later()

    def up_to(self, message_id: MessageId) -> asyncio.Future[None]:
        """Acknowledge everything up to and including a message, or an entry if the id has no batch index."""
        ledger_id, entry_id, _, index, size = message_id
        position = (ledger_id, entry_id)
        if index < 0 or index >= size - 1:
            self.tracker.add_cumulative(position)
            self._negative.discard_up_to(position)
        else:
            # Inside a batch: everything before the entry, then its own messages. Brokers with and without batch index
            # acknowledgement handle this.
            before = (ledger_id, entry_id - 1)
            self.tracker.add_cumulative(before)
            self._negative.discard_up_to(before)
            self.tracker.add_wanted(position, ((1 << size) - 1) & ~((2 << index) - 1))
        return self._sent_later()

    def negative(self, position: EntryKey, pause_s: float | None = None) -> None:
        """Request redelivery of an entry after the delay, or after ``pause_s``, which must be the same in all calls."""
        before_s = self._negative.next_due_s
        self._negative.add(position, self._loop.time(), pause_s)
        if self._negative_timer is not None and self._negative.next_due_s != before_s:
            self._negative_timer.cancel()
            self._negative_timer = None
        if self._negative_timer is None:
            self._arm_negative_timer()

    def _arm_negative_timer(self) -> None:
        due_s = self._negative.next_due_s
        self._negative_timer = None if due_s is None else self._loop.call_at(due_s, self._negative_due)

    def _negative_due(self) -> None:
        due = self._negative.pop_due(self._loop.time())
        self._arm_negative_timer()
        if due:
            self._redeliver(due)

    # -- sending --------------------------------------------------------------------------------------------------

    def _sent_later(self) -> asyncio.Future[None]:
        """Schedule sending of the acknowledgement just added to the tracker; return its future."""
        if self.tracker.buffered >= self._grouping_max or not self._grouping_s:
            future = self._future_of_buffered()
            self.flush()
            return future
        if self._timer is None:
            self._timer = self._loop.call_later(self._grouping_s, self.flush)
        return self._future_of_buffered()

    def flush(self) -> None:
        """Send buffered acknowledgements, if connected."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connection = self._connection
        if connection is None or not self.tracker.buffered:
            return
        parts = self.tracker.take()
        future, self._buffered = self._buffered, None
        if future is None:
            for is_cumulative, ids in parts:
                connection.send(ack_frame(self._consumer_id, ids, is_cumulative))
        else:
            self._send_group(connection, _Group(parts, future))

    async def confirmed(self) -> None:
        """Send buffered acknowledgements; with receipts, wait until everything sent is confirmed.

        Cancellation: safe.
        """
        self.flush()
        if waiting := self._unconfirmed():
            await asyncio.wait(waiting)

    def _unconfirmed(self) -> list[asyncio.Future[None]]:
        futures = [group.future for group in (*self._in_flight, *self._lost)]
        return futures if self._buffered is None else [*futures, self._buffered]

    def close(self, error: MagnetarError) -> None:
        """Fail all unsent or unconfirmed acknowledgements."""
        if self._negative_timer is not None:
            self._negative_timer.cancel()
            self._negative_timer = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._connection = None
        self.lose_claims("the consumer was closed")
        for future in self._forget_waiting():
            future.set_exception(error)
            future.exception()  # keeps asyncio from warning if the future is never awaited

    def clear(self) -> None:
        """Drop all state: the subscription was moved, and earlier acknowledgements would skip messages."""
        self.tracker.clear()
        self._negative.clear()
        for future in self._forget_waiting():
            future.set_result(None)

    def _forget_waiting(self) -> list[asyncio.Future[None]]:
        """Drop all groups and return their futures for the caller to complete."""
        futures = self._unconfirmed()
        self._in_flight.clear()
        self._lost.clear()
        self._buffered = None
        return [future for future in futures if not future.done()]

    def _future_of_buffered(self) -> asyncio.Future[None]:
        if not self._wants_receipts:
            return self._done
        if self._buffered is None:
            self._buffered = self._loop.create_future()
        return self._buffered

    def _send_group(self, connection: Connection, group: _Group) -> None:
        """Send acknowledgements with request ids."""
        group.attempt += 1
        group.unanswered = len(group.parts)
        group.error = None
        self._in_flight.add(group)
        for is_cumulative, ids in group.parts:
            request_id = connection.next_request_id()
            frame = ack_frame(self._consumer_id, ids, is_cumulative, request_id)
            answer = connection.request_by_frame(f"acknowledge {len(ids)} entries of {self._topic}", request_id, frame)
            answer.add_done_callback(partial(self._answered, group, group.attempt))

    def _answered(self, group: _Group, attempt: int, answer: asyncio.Future[object]) -> None:
        error = None if answer.cancelled() else answer.exception()
        if group not in self._in_flight or attempt != group.attempt:
            return  # resent on the next connection, or already failed
        group.error = group.error or error
        group.unanswered -= 1
        if group.unanswered:
            return
        self._in_flight.discard(group)
        if isinstance(group.error, ConnectionLost):
            self._lost.append(group)
        else:
            settle(group.future, group.error)
