"""At least once: an input entry is acknowledged when its outputs and state changes are durable.

At most once acknowledges the entry before processing, and manual leaves that to the function. All else is the same.

    input → inbox → function's thread → piece → output → receipt → acknowledgement

Limits: `HeldEntries` limits the input that is queued, in progress, or waiting for receipts of its outputs. At the limit
no more entries are taken from the inputs, and the broker stops sending. Outputs in flight are limited by the gate of
the `PieceMaker`, which blocks the function's thread.

Invariant: an entry is never taken again while it is held. The broker may redeliver it after a reconnection or, on a
Failover subscription, whenever redelivery of a failed message is requested; its acknowledgement follows in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import get_ident
from typing import Any

from ...api.message_id import FunctionMessageId
from ...client.config import ConsumerConfig
from ...client.consumers.consumer import Consumer
from ...client.consumers.merged import MergedConsumer
from ...client.consumers.received import ReceivedEntry
from ...client.consumers.topic_pattern import TopicPattern
from ...errors import ClosedError, InvalidConfig, InvalidTopicName, MagnetarError, MessageTooLarge, StateRefused
from ...wire.message_id import LATEST, MessageId
from ...wire.topic_name import parse_topic_name
from ..core import InstanceCore
from ..endpoint_settings import consumer_config, output_bounds, producer_config, subscription_of
from ..function_thread import Calls, Item
from ..identity import table_of
from ..ports import Input, Output
from ..publish_request import PublishRequest, read_message_id
from ..state.session import StateSession
from ..state.writer import StateLink
from ..stopping import InstanceStopping
from ..topic_patterns import mode_of, patterns_of
from ..unit import Acknowledgements, HeldEntries, Unit, position_of
from .failed_messages import FailedMessages
from .failover_input import FailoverInput
from .pattern_input import PatternInput
from .pieces import OpenInput, Piece, PieceMaker
from .publisher import Publisher, Ticket
from .steering import InputSteering

STATE_GRACE_S = 1.0  # time for the state store to reply to a function that is stopping


class AtLeastOnce:
    """Settlement that acknowledges an input entry once its outputs are stored."""

    claims_first = False
    """Whether entries are acknowledged before they are processed."""
    joins_chunks = True
    """Whether chunked messages are assembled."""

    def __init__(self, core: InstanceCore) -> None:
        """Create the settlement without opening anything."""
        self._core = core
        self._publisher = Publisher(core)
        self.maker = self._make_maker()
        self._inputs: dict[str, OpenInput] = {}
        self._output: Output | None = None
        self._held = HeldEntries()
        self._patterns: list[MergedConsumer] = []
        self.steering = InputSteering(core, self._inputs, self._held)
        self.maker.void = self.steering.void
        self._failed = FailedMessages.of(core, self._held)
        if self._failed is not None:
            self.maker.keeps_reasons = True
            self.maker.in_place = self._failed.in_place
            self.maker.careful = self._failed.careful
        self._process: Callable[[Item], None]
        self._is_closing = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def _make_maker(self) -> PieceMaker:
        return PieceMaker(self._ship, self._drop_soon, output_bounds(self._core.spec))

    # -- opening and closing --------------------------------------------------------------------------------------

    def session(self) -> StateSession | None:
        """Return the function's state, or None without a state store."""
        spec = self._core.spec
        if not spec.state_url:
            return None
        state = self.maker.state = StateLink(spec.state_store, table_of(spec.metadata), spec.key, self._core.report)
        return state.session

    async def open(self, calls: Calls) -> None:
        """Open inputs and outputs."""
        core, spec = self._core, self._core.spec
        if self._failed is not None:
            self._failed.open()
        if self._failed is not None and (calls.process is not None or calls.produce is not None):
            self.maker.in_place = self._failed.in_place = (
                None  # such functions do not process messages in the maker's steps
            )
        if calls.has_output:
            core.opening = f"output topic {spec.details.sink.topic}"
            config = core.encryption.writing(replace(producer_config(), guard=core.guard))
            self._output = await core.endpoints.create_producer(spec.details.sink.topic, config)
        for topic, serde in calls.serdes.items():
            core.opening = f"input topic {topic}"
            opened = await self._open_input(topic)
            if spec.details.source.skipToLatest and not topic.startswith("non-persistent://"):
                await opened.seek(LATEST)  # also skip messages that arrived since the subscription was created
            self._inputs[topic] = OpenInput(topic, opened, serde)

    async def _open_input(self, topic: str) -> Input:
        core = self._core
        reading = core.encryption.reading(consumer_config(core.spec, topic), topic)
        reading = replace(reading, guard=core.guard, joins_chunks=self.joins_chunks)
        if self._failed is not None:
            reading = replace(reading, negative_ack_delay_ms=0)  # failed messages have their own pauses
        if (pattern := patterns_of(core.spec.details).get(topic)) is not None:
            return await self._open_pattern(pattern, reading)
        subscribe = partial(core.endpoints.subscribe, topic, subscription_of(core.spec))
        if reading.type == "Failover" and not topic.startswith("non-persistent://"):
            return await FailoverInput.open(subscribe, reading, core.loop.time)
        return await subscribe(reading)

    async def _open_pattern(self, pattern: TopicPattern, reading: ConsumerConfig) -> Input:
        core = self._core
        later = replace(reading, initial_position="Earliest", regex_subscription_mode=mode_of(pattern))

        async def subscribe(config: ConsumerConfig) -> MergedConsumer:
            endpoints: Any = core.endpoints
            consumer = await endpoints.subscribe(pattern, subscription_of(core.spec), config)
            assert isinstance(consumer, MergedConsumer)
            self._patterns.append(consumer)
            return consumer

        is_ordered = reading.type == "Failover" and mode_of(pattern) == "PersistentOnly"
        opened = await (FailoverInput.open(subscribe, later, core.loop.time) if is_ordered else subscribe(later))
        return PatternInput(opened, self._patterns[-1])

    def start(self, process: Callable[[Item], None]) -> None:
        """Start taking input."""
        self._process = process
        for topic, source in self._inputs.items():
            self._core.tasks.start(self._pump(source), f"read {topic}", self._core.failed)

    def trouble(self) -> str:
        """Return what prevents the instance from continuing, or an empty string."""
        trouble = "" if self.maker.state is None else self.maker.state.trouble()
        trouble = trouble or self.steering.paused()
        return trouble or ("" if self._failed is None else self._failed.trouble())

    def tick(self) -> None:
        """Do nothing: this settlement has no periodic work."""

    def request_stop(self) -> None:
        """End all waits of the function's thread."""
        self.maker.gate.close()
        if self._failed is not None:
            self._failed.request_stop()
        if (state := self.maker.state) is not None:
            # The current message may still read and write briefly, unless the store is unavailable anyway.
            self._core.loop.call_later(0.0 if state.trouble() else STATE_GRACE_S, state.stop_function)

    async def settle(self, unprocessed: Sequence[Item]) -> None:
        """Wait until results are durable and acknowledged."""
        await self._idle.wait()
        if self._failed is not None:
            await self._failed.settle()
        for source in self._inputs.values():
            await source.input.flush_acks()

    async def close(self) -> None:
        """Abandon work in progress, and close inputs and outputs."""
        self._is_closing = True
        if self.maker.state is not None:
            await asyncio.to_thread(self.maker.state.close)
        await self._publisher.close()
        if self._failed is not None:
            await self._failed.close()
        for source in self._inputs.values():
            await source.input.close()
        if self._output is not None:
            await self._output.close()

    # -- input ----------------------------------------------------------------------------------------------------

    async def _pump(self, source: OpenInput) -> None:
        """Pass entries from an input to the function's thread while there is room."""
        opened, room = source.input, self._held.room
        while True:
            await room.wait()
            await self._may_take(source)
            taken = opened.poll_entry()  # without awaiting: an entry polled during a seek may precede the new position
            if taken is None:
                await opened.arrival()
            else:
                await self._move(source, taken)  # in a separate call, so that no entry is referenced while waiting
                taken = None

    async def _move(self, source: OpenInput, taken: ReceivedEntry | None) -> None:
        """Pass an entry and the entries queued after it to the function's thread."""
        opened, room, void = source.input, self._held.room, self.steering.void
        entries: list[ReceivedEntry] = []
        while taken is not None:
            position = position_of(taken)
            if position not in self._held:  # a held entry may be redelivered
                self._held.add(position, taken)
                entries.append(taken)
            taken = opened.poll_entry() if room.is_set() else None
        if self.claims_first and entries:
            claimed = await opened.claim_entries(entries)
            for entry in entries if not claimed else set(entries).difference(claimed):
                self._held.remove(entry)
                void.pop(id(entry), None)
            entries = [entry for entry in claimed if void.pop(id(entry), None) is None]
        for entry in entries:
            self._process((source, entry))

    async def _may_take(self, source: OpenInput) -> None:
        """Wait until entries may be taken from an input."""
        await self.steering.may_take(source)

    # -- called by the function's thread --------------------------------------------------------------------------

    def _ship(self, piece: Piece) -> None:
        self._core.mailbox.post(partial(self._send, piece))

    def _drop_soon(self, source: OpenInput, entry: ReceivedEntry) -> None:
        self._core.mailbox.post(partial(self._drop, source, entry))

    def publish(self, request: PublishRequest) -> None:
        """Accept a message for any topic."""
        ticket = self._publisher.publish(request)
        if get_ident() != self._core.thread_id or not self.maker.keeps(ticket):
            # No input message would be redelivered if it fails, so the failure must be reported here.
            self._core.mailbox.post(partial(self._watch, request.topic, ticket))

    def _watch(self, topic: str, ticket: Ticket) -> None:
        def finish(error: BaseException | None) -> None:
            if error is not None and not self._is_closing:
                text = f"a message published to {topic} by another thread was not stored: {error}"
                self._core.user_failed(text)

        if ticket.is_done:
            finish(ticket.error)
        else:
            ticket.on_done = finish

    def acknowledge(self, message_id: FunctionMessageId, topic: str) -> None:
        """Acknowledge one message."""
        wanted = read_message_id(message_id)
        if not isinstance(topic, str):
            raise InvalidConfig(f"the topic of context.ack must be a str, not {type(topic).__name__}")
        source = self._inputs.get(topic) or self._inputs.get(topic.rpartition("-partition-")[0])
        if source is None:
            names = {_full_name(name): one for name, one in self._inputs.items()}
            source = names.get(_full_name(topic)) or names.get(_full_name(topic.rpartition("-partition-")[0]))
        if source is None and (found := self.steering.having(_full_name(topic))) is not None:
            self._core.mailbox.post(partial(self._acknowledge_one, found[0], wanted, found[1]))
            return
        if source is None:
            raise ValueError(
                f"{topic!a} is not an input topic of this function: expected one of {', '.join(self._inputs)}"
            )
        self._core.mailbox.post(partial(self._acknowledge_one, source, wanted))

    # -- output ---------------------------------------------------------------------------------------------------

    def _send(self, piece: Piece) -> None:
        """Send the outputs of a piece, which is settled when all are stored."""
        if self._is_closing:
            return  # the thread was abandoned
        piece.waiting_for = 1
        self._in_flight += 1
        self._idle.clear()
        for entry in piece.outputs:
            assert self._output is not None
            try:
                stored = self._output.send_entry(entry)
            except MessageTooLarge as error:
                piece.error = error
            except MagnetarError as error:
                # The producer is permanently closed: later outputs would fail, too.
                piece.error = error
                self._core.end(f"{type(error).__name__}: {error}")
            else:
                piece.waiting_for += 1
                stored.add_done_callback(partial(self._stored, piece))
        for ticket in piece.tickets:
            if ticket.is_done:
                piece.error = piece.error or ticket.error
            else:
                piece.waiting_for += 1
                ticket.on_done = partial(self._answered, piece)
        for member in piece.members:
            for position, ticket in member.waits:
                piece.waiting_for += 1
                answered = partial(self._published, piece, member, position)
                if ticket.is_done:
                    answered(ticket.error)
                else:
                    ticket.on_done = answered
        piece.outputs = []
        if piece.changes is not None:
            assert self.maker.state is not None
            piece.waiting_for += 1
            self.maker.state.store(piece.changes, partial(self._changes_stored, piece))
        self._answered(piece, None)

    def _stored(self, piece: Piece, stored: asyncio.Future[MessageId]) -> None:
        self._answered(piece, ClosedError("stopped") if stored.cancelled() else stored.exception())

    def _published(self, piece: Piece, member: Piece, position: int, error: BaseException | None) -> None:
        """Handle the result of publishing for one of several unrelated messages."""
        if error is not None:
            member.failed.add(position)
            self._core.system_failed(f"results of 1 message of {member.source.topic} were not stored: {error}")
        self._answered(piece, None)

    def _changes_stored(self, piece: Piece, error: BaseException | None) -> None:
        """Handle the state store's reply, on the writer's thread."""
        self._core.mailbox.post(partial(self._take_changes_stored, piece, error))

    def _take_changes_stored(self, piece: Piece, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, StateRefused | InstanceStopping):
            # The disk is full or the database is damaged: processing more messages would be wasted.
            self._core.failed(error)
        self._answered(piece, error)

    def _answered(self, piece: Piece, error: BaseException | None) -> None:
        piece.error = piece.error or error
        piece.waiting_for -= 1
        if piece.waiting_for:
            return
        if piece.messages:
            self.maker.gate.leave(piece.messages, piece.size)
        if not self._is_closing:
            try:
                for one in piece.members or (piece,):
                    one.error = piece.error
                    if one.begin < one.end:
                        self._settle(one)
                if piece.ticket is not None:  # not directly: a long chain of waiting pieces would recurse
                    self._core.loop.call_soon(piece.ticket.finish, piece.error)
            except Exception as error:  # noqa: BLE001  this runs in a callback, where an exception would be lost
                self._core.failed(error)
        self._in_flight -= 1
        if not self._in_flight:
            self._idle.set()

    # -- acknowledgement ------------------------------------------------------------------------------------------

    def _settle(self, piece: Piece) -> None:
        """Acknowledge a piece's finished messages, and request redelivery of failed ones once its unit is complete."""
        failed = piece.failed
        if piece.error is not None:
            failed = set(range(piece.begin, piece.end))
            topic = piece.source.topic
            self._core.system_failed(f"results of {len(failed)} messages of {topic} were not stored: {piece.error}")
        unit = piece.unit
        done, void = unit.settle(piece.begin, piece.end, failed), self.steering.void
        self._acknowledge(piece.source.input, self.steering.still_ours(done) if void else done)
        if unit.is_settled:
            if void:
                unit.failed_entries = [entry for entry in unit.failed_entries if id(entry) not in void]
                for entry in unit.entries:
                    void.pop(id(entry), None)
            if self._failed is not None:
                self._failed.take(piece.source.input, unit)
                return
            for entry in unit.entries:
                self._held.remove(entry)
            self._ask_again(
                piece.source.input, unit
            )  # last, because an entry redelivered while it is held is not taken

    def _acknowledge(self, opened: Input, done: Acknowledgements) -> None:
        """Acknowledge finished messages."""
        if done.whole:
            opened.ack_entries(done.whole)
        for entry, still_wanted in done.partial:
            opened.ack_batch_indexes(entry, still_wanted)

    def _ask_again(self, opened: Input, unit: Unit) -> None:
        """Request redelivery of entries with failed messages."""
        for entry in unit.failed_entries:
            opened.negative_ack(entry)

    def _acknowledge_one(self, source: OpenInput, message_id: MessageId, part: Consumer | None = None) -> None:
        try:
            (part or source.input).ack(message_id)
        except MagnetarError as error:
            self._core.user_failed(f"context.ack of message {message_id} of {source.topic} failed: {error}")

    def _drop(self, source: OpenInput, entry: ReceivedEntry) -> None:
        """Acknowledge an entry without messages for the function."""
        if not self.claims_first:
            source.input.ack_entry(entry)
        self._held.remove(entry)


class AtMostOnce(AtLeastOnce):
    """Settlement that processes an input entry once its acknowledgement is durable; nothing is redelivered."""

    claims_first = True

    def _acknowledge(self, opened: Input, done: Acknowledgements) -> None:
        """Do nothing: the entry was acknowledged before processing."""

    def _ask_again(self, opened: Input, unit: Unit) -> None:
        """Do nothing: at most once does not retry failed messages."""


class Manual(AtLeastOnce):
    """Settlement that leaves acknowledgements to the function (``context.ack``); failed messages are redelivered."""

    def _acknowledge(self, opened: Input, done: Acknowledgements) -> None:
        """Do nothing: the function acknowledges its messages."""


def _full_name(topic: str) -> str:
    try:
        return parse_topic_name(topic).text
    except InvalidTopicName:
        return topic
