"""One activation of an input partition: recovery, intake, publishing, acknowledgement and handover.

Start: acquire the partition's lock, open the producer of the output topic, read the partition's last commit from the
state store, and publish the remaining outbox. Only then take input, skipping entries up to the position already done:
the last commit, or our producer's last message known to the broker's deduplication, whichever is higher.

Invariants: results arrive in the order of their positions and are settled in that order, so acknowledging the position
of the last settled one acknowledges no unfinished entry. Input is acknowledged after its outputs are stored.

End, while connected: work in progress is finished, because no other instance can start before our producers are closed
and the lock is released. Without a connection: unsent results are dropped and reprocessed later; results in flight to
the state store are still committed, unless another instance has taken over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...api.serde import SerDe
from ...client.consumers.received import ReceivedEntry
from ...errors import NotAllowed
from ...state.values import Opened, OutboxEntry
from ...tasks import settle, within
from ...wire.message_id import MessageId
from ...wire.position import Position
from ...wire.position_sequence import FIRST_SEGMENT, Segment, segment_of, segments_after
from ..ports import OrderedInput
from ..unit import position_of
from .committer import Committer, Ledger
from .outputs import Outputs
from .work import Result, position_in

if TYPE_CHECKING:
    from .effectively_once import EffectivelyOnce

HELD_MESSAGES_MAX = 100_000  # higher than elsewhere, because entries are held until their results are published
LOOK_S = 0.2  # interval between checks of the connection


class Activation:
    """One activation of one partition; also the `Source` of the function's thread.

    Attributes:
        topic: full name of the partition.
        serde: decodes the partition's messages.
        producer_name: name of all producers of the partition.
        is_over: whether the partition was lost.
        in_flight: number of entries taken and not settled.
        confirmed: position up to which the broker has confirmed all acknowledgements.
        ledger: the partition's commits.
    """

    def __init__(
        self,
        owner: EffectivelyOnce,
        consumer: OrderedInput,
        serde: SerDe,
        producer_name: str,
        confirmed: Position | None,
    ) -> None:
        """Create an activation; `serve` starts it.

        Args:
            owner: settlement of the instance.
            consumer: consumer of the partition.
            serde: decodes the partition's messages.
            producer_name: name of all producers of the partition.
            confirmed: confirmed position of the previous activation.
        """
        self.topic = consumer.topic
        self.serde = serde
        self.producer_name = producer_name
        self.is_over = False
        self.in_flight = 0
        self.confirmed = confirmed
        self.ledger = Ledger(consumer.topic)
        self._owner = owner
        self._consumer = consumer
        self._outputs = Outputs(
            owner.endpoints, producer_name, owner.output_config(), owner.admin_url, owner.credentials
        )
        self._lock = owner.create_lock(producer_name)
        self._is_abandoned = False
        self._has_given_up = False
        self._unsettled: deque[Result] = deque()
        self._taken: Position | None = None
        self._done: Position | None = None
        self._settled = asyncio.Event()
        self._acknowledges = False
        self._is_settling = False
        self._skipped_messages = 0

    @property
    def waits_for(self) -> str:
        """Why the activation cannot start, or an empty string."""
        waits_for = self._outputs.waits_for or (self._lock.waits_for if self._lock is not None else "")
        return f"{self.topic} is waiting for its previous instance: {waits_for}" if waits_for else ""

    # -- beginning ------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Start, then take input until cancelled or until the partition is lost.

        Cancellation: call `leave` afterwards.

        Raises:
            MagnetarError: the instance cannot continue.
        """
        owner = self._owner
        if self._lock is not None:
            await self._lock.acquire()
        if owner.direct_topic:
            self._done = await self._stored_directly(owner.direct_topic)
        if owner.committer is not None:
            await self._recover(owner.committer)
        self._taken = self._done
        if self._done is not None:
            self._acknowledge()
        held, consumer, resumed = owner.held, self._consumer, owner.resumed(self.topic)
        # Entries that arrive after the partition was lost belong to the next activation, even if it was regained.
        while not self.is_over:
            await held.room.wait()
            await resumed.wait()
            while held.room.is_set() and resumed.is_set() and not self.is_over:
                if (entry := consumer.poll_entry()) is None:
                    break
                self._take(entry)
            if held.room.is_set():
                await consumer.arrival()

    async def _stored_directly(self, topic: str) -> Position | None:
        """Return the highest position whose outputs the broker has stored, or None."""
        done = await self._stored_under(topic, FIRST_SEGMENT)
        _, acknowledged = await self._consumer.last_and_mark_delete()
        for segment in segments_after(None if acknowledged is None else Position(*acknowledged[:2])):
            if segment != FIRST_SEGMENT:
                stored = await self._stored_under(topic, segment)
                if stored is not None and (done is None or stored > done):
                    done = stored
        return done

    async def _stored_under(self, topic: str, segment: Segment) -> Position | None:
        last = (await self._outputs.open(topic, segment)).last_sequence_id
        return segment.position(last) if last >= 0 else None

    async def _recover(self, committer: Committer) -> None:
        """Load the last commit of the partition, and publish outputs that may be unpublished."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Opened] = loop.create_future()

        def opening(opened: Opened | BaseException) -> None:
            loop.call_soon_threadsafe(settle, answer, opened)

        committer.open(self.ledger, opening)
        opened = await answer
        if opened.position is None:
            return
        self._owner.must_commit()
        if opened.outbox:
            await self._publish_leftovers(opened.outbox)
        self.ledger.published = opened.position
        if self._done is None or opened.position > self._done:
            self._done = opened.position

    async def _publish_leftovers(self, rows: Sequence[OutboxEntry]) -> None:
        """Publish outbox entries that are missing on their topics, and wait until they are stored."""
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[None]] = []
        # The broker forgets producers after hours without messages. Outputs up to the cursor were published before.
        _, acknowledged = await self._consumer.last_and_mark_delete()
        for row in rows:
            last = (await self._outputs.open(row.topic, segment_of(row.position))).last_sequence_id
            is_acknowledged = acknowledged is not None and row.position <= acknowledged[:2]
            if row.sequence_id <= last or (last < 0 and is_acknowledged):
                continue
            future: asyncio.Future[None] = loop.create_future()
            waiting.append(future)
            self._outputs.send(row, partial(settle, future))
        await asyncio.gather(*waiting)

    # -- input ----------------------------------------------------------------------------------------------------

    def _take(self, entry: ReceivedEntry) -> None:
        position = position_in(entry)
        if self._taken is not None and position <= self._taken:
            if self._done is not None and position <= self._done:
                self._skip(entry, position, self._done)
            return  # entries in progress will be acknowledged when done
        self._taken = position
        self.in_flight += 1
        self._owner.held.add(position_of(entry), entry)
        self._owner.process((self, entry))

    def _skip(self, entry: ReceivedEntry, position: Position, done: Position) -> None:
        """Acknowledge a redelivered entry that was already processed, and check why it was redelivered."""
        self._skipped_messages += entry.num_messages
        is_confirmed = self.confirmed is not None and position <= self.confirmed
        # A few acknowledgements may have been lost, but no more than those of entries in progress.
        if is_confirmed or self._skipped_messages > 2 * HELD_MESSAGES_MAX + entry.num_messages:
            self._owner.moved_back(self.topic, position, done)
        self._acknowledge()

    def skipped(self, entry: ReceivedEntry) -> None:
        """Release an unprocessed entry, because the partition was lost."""
        self._let_go(entry)

    def _let_go(self, entry: ReceivedEntry) -> None:
        self._owner.held.remove(entry)
        self.in_flight -= 1
        if not self.in_flight:
            self._settled.set()

    # -- results --------------------------------------------------------------------------------------------------

    @property
    def accepts_commits(self) -> bool:
        """Whether results may be committed, which is not allowed after one was given up."""
        return not self._has_given_up

    def publish(self, result: Result) -> None:
        """Send the outputs of a direct or committed result."""
        if self._is_abandoned:
            self._give_up(result)
            return
        self._unsettled.append(result)
        result.waiting_for = len(result.rows)
        for row in result.rows:
            self._outputs.send(row, partial(self._stored, result, row))
        if not result.rows:
            self._settle_soon()

    def _give_up(self, result: Result) -> None:
        """Drop a result whose input or outbox rows will be processed later."""
        if result.is_direct:
            self._has_given_up = True
        self._owner.flow.left([result], False)
        self._let_go(result.entry)

    def _stored(self, result: Result, row: OutboxEntry, error: BaseException | None) -> None:
        if error is not None and not self._is_abandoned:
            self._owner.end(_why_not_stored(row, error))
            self._is_abandoned = True
        result.waiting_for -= 1
        if not result.waiting_for:
            self._settle_soon()

    def _settle_soon(self) -> None:
        """Schedule settling, once for all receipts of this loop iteration."""
        if not self._is_settling:
            self._is_settling = True
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        self._is_settling = False
        try:
            self._settle_in_order()
        except Exception as error:  # noqa: BLE001  called by the event loop, where an exception would be lost
            self._owner.end(f"{self.topic}: cannot settle finished results: {error!r}")

    def _settle_in_order(self) -> None:
        """Acknowledge consecutive inputs whose outputs are all stored."""
        unsettled = self._unsettled
        settled: list[Result] = []
        while unsettled and not unsettled[0].waiting_for:
            result = unsettled.popleft()
            if self._is_abandoned:
                self._give_up(result)
            else:
                settled.append(result)
                self._let_go(result.entry)
        if not settled:
            return
        last = settled[-1]
        self._done = last.position
        if not last.is_direct:
            self.ledger.published = last.position
        self._owner.flow.left(settled, True)
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Schedule one acknowledgement for all settled inputs."""
        if not self._acknowledges:
            self._acknowledges = True
            asyncio.get_running_loop().call_soon(self._acknowledge_done)

    def _acknowledge_done(self) -> None:
        self._acknowledges = False
        done = self._done
        if done is None or self._is_abandoned or not self._consumer.is_connected:
            return
        self._consumer.ack_cumulative(MessageId(*done)).add_done_callback(partial(self._confirm, done))

    def _confirm(self, position: Position, answer: asyncio.Future[None]) -> None:
        is_confirmed = not answer.cancelled() and answer.exception() is None
        if is_confirmed and (self.confirmed is None or position > self.confirmed):
            self.confirmed = position

    def clear_outbox(self) -> None:
        """Make the state store delete published outputs, unless work in progress does so anyway."""
        committer, ledger = self._owner.committer, self.ledger
        if committer is not None and not self.in_flight and ledger.cleared != ledger.published:
            committer.clear(ledger)

    # -- ending ---------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Wait until all work is finished and its input is acknowledged. Cancellation: safe."""
        while self.in_flight:
            self._settled.clear()
            await self._settled.wait()
        if self._consumer.is_connected:
            self._acknowledge_done()
            await self._consumer.flush_acks()

    async def leave(self) -> None:
        """Finish or abandon work in progress, and release the partition for the next owner.

        Cancellation: producers and lock are still released.
        """
        self.is_over = True
        try:
            while self.in_flight:
                if not self._consumer.is_connected or (self._lock is not None and not self._lock.is_held):
                    await self.abandon()
                self._settled.clear()
                if self.in_flight:
                    await within(LOOK_S, self._settled.wait())
            if not self._is_abandoned and self._consumer.is_connected:
                await within(LOOK_S, self._consumer.flush_acks())
        finally:
            await self.close()

    async def abandon(self) -> None:
        """Abandon unstored results."""
        if not self._is_abandoned:
            self._is_abandoned = True
            await self._outputs.close()

    async def close(self) -> None:
        """Close the producers, then release the lock."""
        self._is_abandoned = self.is_over = True
        await self._outputs.close()
        if self._lock is not None:
            await self._lock.close()


def _why_not_stored(row: OutboxEntry, error: BaseException) -> str:
    text = f"cannot store outputs of input entry {row.position} on {row.topic}: {type(error).__name__}: {error}"
    if isinstance(error, NotAllowed):
        text += (
            f"; when the broker accepts them, run `functions reset-cursor` with message id {row.position}: later"
            " outputs are already stored, and deduplication would drop these"
        )
    return text
