"""One instance at work: consumers, the function's thread, the output producer, acknowledgements.

Design: everything in this room runs on the client's event loop, except the `Listener` and `Outside` methods, which the
function's thread calls and which only leave something behind and wake the loop, once per burst.

    consumer → inbox → function's thread → piece → output producer → receipt → acknowledgement

Bounds: `HeldEntries` bounds the input that is held (queued, in work, or waiting for the receipts of its outputs);
beyond, nothing is taken from the consumers, and the broker stops sending. Outputs
on their way are bounded by a gate that makes the function's thread wait.

Invariant: an entry that is held is not taken a second time. A broker delivers it again after a reconnection, or, on a
Failover subscription, whenever a failed message is asked for again; its acknowledgement is on the way in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from functools import partial
from threading import get_ident

from ..api.message_id import FunctionMessageId
from ..client.client import AsyncClient
from ..client.consumers.received import ReceivedEntry
from ..client.producers.partitioned import PartitionedProducer
from ..client.producers.producer import Producer
from ..errors import ClosedError, InvalidConfig, InvalidTopicName, MagnetarError, MessageTooLarge, StateRefused
from ..state.naming import table_of
from ..tasks.supervised import TaskSet
from ..wire.functions_pb2 import MANUAL
from ..wire.message_id import MessageId
from ..wire.topic_name import parse_topic_name
from .batch_call import BatchCall
from .details import acks_first, compression_of, consumer_config, producer_config, subscription_of
from .function_context import FunctionContext
from .function_thread import Calls, FunctionThread, Input, Piece
from .gate import Gate
from .held_entries import HeldEntries, position_of
from .instance_lock import InstanceLock
from .loading.loader import Home, load_function, load_serde
from .logs.file import InstanceLog
from .logs.topic import LogTopic
from .mailbox import Mailbox
from .markers import HeaderMaker
from .publish_request import PublishRequest, read_message_id
from .publisher import Publisher, Ticket
from .recent_acks import RecentAcks
from .spec import InstanceSpec
from .state.binding import StateLink
from .stats import InstanceStats, encodable, format_error, reason_of
from .stopping import InstanceStopping

log = logging.getLogger(__name__)

OUTPUT_MESSAGES_MAX = 50_000
OUTPUT_BYTES_MAX = 64 * 1024 * 1024
FAILURE_GRACE_S = 2.0  # for the function to return when the instance cannot go on
STATE_GRACE_S = 1.0  # for the state store to answer a function that is to stop
SETTLE_S = 3.0  # for outputs that are on their way when the instance is stopped
_TICK_S = 1.0


class Pipeline:
    """One instance; made, run once with `run`, and stopped with `stop`.

    Attributes:
        stats: its counters.
        is_running: whether messages are being processed.
        abandoned: whether the function did not return when it was told to stop.
        grace_s: how long it was given for that.
    """

    def __init__(self, spec: InstanceSpec, client: AsyncClient, home: Home, instance_log: InstanceLog) -> None:
        """Prepare, on the client's event loop.

        Args:
            spec: what to run.
            client: connects to the broker; not closed here.
            home: where the function lives.
            instance_log: takes what the instance has to say; not closed here.
        """
        self.stats = InstanceStats(time.monotonic())
        self.is_running = False
        self.abandoned = False
        self._spec = spec
        self._client = client
        self._home = home
        self._log = instance_log
        self._loop = asyncio.get_running_loop()
        self._acks_first = acks_first(spec)
        is_manual = spec.details.processingGuarantees == MANUAL or not spec.details.autoAck
        self._acks = not self._acks_first and not is_manual
        self._log_topic = LogTopic(spec, instance_log) if spec.details.logTopic else None
        self._gate = Gate(OUTPUT_MESSAGES_MAX, OUTPUT_BYTES_MAX)
        self._lock = InstanceLock(spec, client)
        self.stats.trouble = self._trouble
        self._mailbox = Mailbox(self._failed)
        self._tasks = TaskSet(f"instance {spec.key}")
        self._publisher = Publisher(client, self._loop, self._callback_failed, self._failed, self._lock.guard)
        self._thread = FunctionThread(f"function {spec.key}", self._load, self, self.stats, self._gate)
        self._calls: asyncio.Future[Calls] = self._loop.create_future()
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._thread_ended = asyncio.Event()
        self._is_closing = False
        self.grace_s = FAILURE_GRACE_S
        self._inputs: dict[str, Input] = {}
        self._state: StateLink | None = None
        self._producer: Producer | PartitionedProducer | None = None
        self._held = HeldEntries()
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    # -- life -----------------------------------------------------------------------------------------------------

    async def run(self) -> str:
        """Work until stopped, and return why it ended: empty if by `stop`, else the reason with its traceback.

        Cancellation: closes the instance without waiting for the function.
        """
        try:
            self._thread.start()
            reason = await self._connect()
            if reason is None:
                for topic, source in self._inputs.items():
                    self._tasks.start(self._pump(source), f"read {topic}", self._failed)
                self._tasks.start(self._tick(), "tick", self._failed)
                self._tasks.start(self._lock.wait_failed(), "lock", self._failed)
                self.is_running = True
                reason = await asyncio.shield(self._ended)
            await self._wind_down()
            return reason
        finally:
            self._tasks.cancel()
            self._request_stop()
            await self._close()

    async def _connect(self) -> str | None:
        """Wait for the function to be loaded and open consumers and producer; return why that failed, or None."""
        await asyncio.wait((self._calls, self._ended), return_when=asyncio.FIRST_COMPLETED)
        if self._ended.done():
            return self._ended.result()
        calls = self._calls.result()
        what = f"lock of {self._spec.key}"
        try:
            await self._lock.acquire(self._ended)
            if self._ended.done():
                return self._ended.result()
            what = f"log topic {self._spec.details.logTopic}"
            if self._log_topic is not None:
                await self._log_topic.open(self._client, self._lock.guard)
            what = f"output topic {self._spec.details.sink.topic}"
            if calls.has_output:
                config = replace(producer_config(), guard=self._lock.guard)
                self._producer = await self._client.create_producer(self._spec.details.sink.topic, config)
            for topic, serde in calls.serdes.items():
                what = f"input topic {topic}"
                reading = replace(consumer_config(self._spec, topic), guard=self._lock.guard)
                recent = RecentAcks() if reading.type == "Failover" else None
                if recent is not None:
                    reading = replace(reading, on_active_change=partial(_forget, recent))
                consumer = await self._client.subscribe(topic, subscription_of(self._spec), reading)
                self._inputs[topic] = Input(topic, consumer, serde, recent)
        except MagnetarError as error:
            return f"{what}: {type(error).__name__}: {error}"
        return self._ended.result() if self._ended.done() else None

    def stop(self, grace_s: float) -> None:
        """Ask `run` to end after the message at hand, or without the function if that takes longer than ``grace_s``."""
        self.grace_s = grace_s
        self._end("")

    def _end(self, reason: str) -> None:
        if not self._ended.done():
            self._ended.set_result(encodable(reason))

    async def _wind_down(self) -> None:
        """Let the function finish its message, and what it made reach the broker."""
        self._tasks.cancel()
        self._request_stop()
        try:
            async with asyncio.timeout(self.grace_s):
                await self._thread_ended.wait()
        except TimeoutError:
            self.abandoned = True
            return
        with contextlib.suppress(TimeoutError, MagnetarError):  # of a consumer that has failed: nothing can be sent
            async with asyncio.timeout(SETTLE_S):
                await self._idle.wait()
                for source in self._inputs.values():
                    await source.consumer.flush_acks()

    def _request_stop(self) -> None:
        self.is_running = False
        self._thread.request_stop()
        if self._state is not None:
            # The message at hand may read and write a little more, unless the store is away anyway.
            patience_s = 0.0 if self._state.trouble() else STATE_GRACE_S
            self._loop.call_later(patience_s, self._state.stop_function)

    async def _close(self) -> None:
        self._is_closing = True
        await self._tasks.close()
        if self._state is not None:
            await asyncio.to_thread(self._state.close)
        await self._publisher.close()
        for source in self._inputs.values():
            await source.consumer.close()
        if self._producer is not None:
            await self._producer.close()
        if self._log_topic is not None:
            await self._log_topic.close()
        await self._lock.close()

    def _trouble(self) -> str:
        """Say what keeps the instance from going on (from any thread)."""
        return self._lock.trouble() or (self._state.trouble() if self._state is not None else "")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.stats.roll(time.monotonic())
            self._log.check_size()

    def _failed(self, error: BaseException) -> None:
        """End the instance for a failure of a part of it, which nothing else would show."""
        self._end(reason_of(error))

    # -- what the pipeline is made of -----------------------------------------------------------------------------

    def _load(self) -> Calls:
        """Make the function callable (on the function's thread)."""
        spec = self._spec
        self._home.enter_thread()
        serdes = {
            topic: load_serde(self._home, given.serdeClassName)
            for topic, given in spec.details.source.inputSpecs.items()
        }
        output_serde = load_serde(self._home, spec.details.sink.serDeClassName)
        loaded = load_function(spec, self._home)
        context: FunctionContext | None = None
        if loaded.takes_context:
            logger = instance_logger(spec)
            self._state = self._open_state()
            session = self._state.session if self._state else None
            context = FunctionContext(spec, self.stats, self, logger, partial(load_serde, self._home), session)
        return Calls(
            batch_call=BatchCall(loaded.call, context, output_serde),
            context=context,
            headers=HeaderMaker(spec.details.sink.forwardSourceMessageProperty),
            has_output=bool(spec.details.sink.topic),
            compression=compression_of(spec),
            serdes=serdes,
            state=self._state,
        )

    def _open_state(self) -> StateLink | None:
        """Prepare the way to the function's table, if there is a state store."""
        spec = self._spec
        if not spec.state_url:
            return None
        return StateLink(spec.state_url, table_of(spec.metadata), spec.key, self._state_said)

    # -- input ----------------------------------------------------------------------------------------------------

    async def _pump(self, source: Input) -> None:
        """Move entries from a consumer to the function's thread while there is room."""
        consumer = source.consumer
        while True:
            await self._held.room.wait()
            taken: ReceivedEntry | None = await consumer.receive_entry()
            entries = []
            while taken is not None:
                if self._hold(source, taken):
                    entries.append(taken)
                taken = consumer.poll_entry() if self._held.room.is_set() else None
            if self._acks_first and entries:
                claimed = await consumer.claim_entries(entries)
                for entry in entries if not claimed else set(entries).difference(claimed):
                    self._held.remove(entry)
                entries = claimed
            for entry in entries:
                self._thread.inbox.put((source, entry))

    def _hold(self, source: Input, entry: ReceivedEntry) -> bool:
        """Count an entry that was taken; return False if it is held or done already."""
        position = position_of(entry)
        if position in self._held:
            return False
        if source.recent and source.recent.has(position, self._loop.time()):
            source.consumer.ack_entry(entry)
            return False
        self._held.add(position, entry)
        return True

    # -- called by the function's thread --------------------------------------------------------------------------

    def loaded(self, calls: Calls) -> None:
        """See `function_thread.Listener`."""
        self._mailbox.post(partial(self._calls.set_result, calls))

    def failed(self, text: str) -> None:
        """See `function_thread.Listener`."""
        self._log.write("ERROR", text)

    def ship(self, piece: Piece) -> None:
        """See `function_thread.Listener`."""
        self._mailbox.post(partial(self._send, piece))

    def damaged(self, source: Input, entry: ReceivedEntry) -> None:
        """See `function_thread.Listener`."""
        self._log.write("ERROR", f"entry {entry.message_id} of {entry.topic} is damaged and was dropped")
        self._mailbox.post(partial(self._drop, source, entry))

    def nothing_to_do(self, source: Input, entry: ReceivedEntry) -> None:
        """See `function_thread.Listener`."""
        self._mailbox.post(partial(self._drop, source, entry))

    def ended(self, error: BaseException | None) -> None:
        """See `function_thread.Listener`."""
        self._home.leave_thread()
        self._mailbox.post(partial(self._thread_has_ended, "" if error is None else reason_of(error)))

    def publish(self, request: PublishRequest) -> None:
        """See `function_context.Outside`."""
        ticket = self._publisher.publish(request)
        if get_ident() == self._thread.ident:
            self._thread.tickets.append(ticket)
        else:
            # It belongs to no message that could come again, so only this can say that it was not stored.
            self._mailbox.post(partial(self._watch, request.topic, ticket))

    def _watch(self, topic: str, ticket: Ticket) -> None:
        def finish() -> None:
            if ticket.error is not None and not self._is_closing:
                self._user_failed(f"a message published to {topic} by another thread was not stored: {ticket.error}")

        if ticket.is_done:
            finish()
        else:
            ticket.on_done = finish

    def _user_failed(self, text: str) -> None:
        self.stats.user_exception(text, _now_ms())
        self._log.write("ERROR", text)

    def acknowledge(self, message_id: FunctionMessageId, topic: str) -> None:
        """See `function_context.Outside`."""
        wanted = read_message_id(message_id)
        if not isinstance(topic, str):
            raise InvalidConfig(f"the topic given to context.ack is {type(topic).__name__}; give a str")
        source = self._inputs.get(topic) or self._inputs.get(topic.rpartition("-partition-")[0])
        if source is None:
            names = {_full_name(name): one for name, one in self._inputs.items()}
            source = names.get(_full_name(topic)) or names.get(_full_name(topic.rpartition("-partition-")[0]))
        if source is None:
            raise ValueError(f"{topic!a} is not an input topic of this function; it reads {', '.join(self._inputs)}")
        self._mailbox.post(partial(self._acknowledge_one, source, wanted))

    def _callback_failed(self, error: BaseException) -> None:
        self._user_failed(f"callback of publish failed: {format_error(error)}")

    def _state_said(self, level: str, text: str) -> None:
        if level == "ERROR":
            self.stats.system_exception(text, _now_ms())
        self._log.write(level, text)

    # -- output and acknowledgement -------------------------------------------------------------------------------

    def _thread_has_ended(self, reason: str) -> None:
        self._thread_ended.set()
        self._end(reason)

    def _acknowledge_one(self, source: Input, message_id: MessageId) -> None:
        try:
            source.consumer.ack(message_id)
        except MagnetarError as error:
            self._user_failed(f"context.ack of {message_id} of {source.topic}: {error}")

    def _drop(self, source: Input, entry: ReceivedEntry) -> None:
        """Acknowledge an entry that gives the function nothing to do."""
        if not self._acks_first:
            source.consumer.ack_entry(entry)
        self._held.remove(entry)

    def _send(self, piece: Piece) -> None:
        """Send the outputs of a piece; it is settled when all are stored."""
        if self._is_closing:
            return  # of an abandoned thread
        piece.waiting_for = 1
        self._in_flight += 1
        self._idle.clear()
        for entry in piece.outputs:
            assert self._producer is not None
            try:
                stored = self._producer.send_entry(entry)
            except MessageTooLarge as error:
                piece.error = error
            except MagnetarError as error:
                # The producer is closed for good: nothing later would fare better.
                piece.error = error
                self._end(f"{type(error).__name__}: {error}")
            else:
                piece.waiting_for += 1
                stored.add_done_callback(partial(self._stored, piece))
        for ticket in piece.tickets:
            if ticket.is_done:
                piece.error = piece.error or ticket.error
            else:
                piece.waiting_for += 1
                ticket.on_done = partial(self._published, piece, ticket)
        piece.outputs = []
        if piece.changes is not None:
            assert self._state is not None
            piece.waiting_for += 1
            self._state.store(piece.changes, partial(self._changes_stored, piece))
        self._answered(piece)

    def _stored(self, piece: Piece, stored: asyncio.Future[MessageId]) -> None:
        piece.error = piece.error or (ClosedError("stopped") if stored.cancelled() else stored.exception())
        self._answered(piece)

    def _changes_stored(self, piece: Piece, error: BaseException | None) -> None:
        """Take the answer of the state store (on the writer's thread)."""
        self._mailbox.post(partial(self._take_changes_stored, piece, error))

    def _take_changes_stored(self, piece: Piece, error: BaseException | None) -> None:
        piece.error = piece.error or error
        if error is not None and not isinstance(error, StateRefused | InstanceStopping):
            # The disk is full or the database is damaged: processing more would only make more to do again.
            self._end(reason_of(error))
        self._answered(piece)

    def _published(self, piece: Piece, ticket: Ticket) -> None:
        piece.error = piece.error or ticket.error
        self._answered(piece)

    def _answered(self, piece: Piece) -> None:
        piece.waiting_for -= 1
        if piece.waiting_for:
            return
        if piece.messages:
            self._gate.leave(piece.messages, piece.size)
        if not self._is_closing:
            try:
                self._settle(piece)
            except Exception as error:  # noqa: BLE001  this is called back, where nobody would hear of it
                self._failed(error)
        self._in_flight -= 1
        if not self._in_flight:
            self._idle.set()

    def _settle(self, piece: Piece) -> None:
        """Acknowledge what a piece has done, and ask again for what failed once its unit is complete."""
        failed = piece.failed
        if piece.error is not None:
            failed = set(range(piece.begin, piece.end))
            text = f"results of {len(failed)} messages of {piece.source.topic} were not stored: {piece.error}"
            self.stats.system_exception(text, _now_ms())
            self._log.write("ERROR", text)
        consumer, unit = piece.source.consumer, piece.unit
        settlement = unit.settle(piece.begin, piece.end, failed)
        if self._acks:
            if settlement.whole:
                consumer.ack_entries(settlement.whole)
                if piece.source.recent is not None:
                    self._remember(piece.source.recent, settlement.whole)
            for entry, still_wanted in settlement.partial:
                consumer.ack_batch_indexes(entry, still_wanted)
        if unit.is_settled:
            for entry in unit.entries:
                self._held.remove(entry)
            if not self._acks_first:
                # Not earlier: what comes again while it is held is not taken.
                for entry in unit.failed_entries:
                    consumer.negative_ack(entry)

    def _remember(self, recent: RecentAcks, entries: list[ReceivedEntry]) -> None:
        now_s = self._loop.time()
        for entry in entries:
            recent.add(position_of(entry), now_s)


def _forget(recent: RecentAcks, _: bool) -> None:
    recent.clear()


def instance_logger(spec: InstanceSpec) -> logging.Logger:
    """Return the logger that a function is given."""
    return logging.getLogger(spec.key)


def _full_name(topic: str) -> str:
    try:
        return parse_topic_name(topic).text
    except InvalidTopicName:
        return topic


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
