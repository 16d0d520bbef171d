"""Settlement of a source: send its records, save its position when they are durable, and acknowledge them.

At least once, records are acknowledged without waiting for the position, which is saved periodically. Effectively once,
records are acknowledged after the position is saved; `source.py` explains why.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from ...api.connector import BatchSource, Source
from ...api.message_id import FunctionMessageId
from ...api.serde import IdentitySerDe
from ...client.consumers.received import ReceivedEntry
from ...client.deduplication import memory_guard, switch_on
from ...client.producers.routing import key_partition
from ...config.batch_source import is_batch
from ...errors import (
    ClosedError,
    ConnectionLost,
    FunctionLoadError,
    InvalidConfig,
    MagnetarError,
    OperationTimeout,
    ProducerBusy,
)
from ...tasks import TaskSet
from ...wire.functions_pb2 import EFFECTIVELY_ONCE
from ...wire.message_id import MessageId
from ..acks.publisher import Publisher, Ticket
from ..batch_call import BatchCall
from ..core import InstanceCore
from ..endpoint_settings import compression_of, producer_config
from ..function_context import instance_logger
from ..function_thread import Calls, FunctionThread, Item, Maker
from ..function_thread import Source as Input
from ..gate import Gate
from ..identity import producer_name, table_of
from ..loading.loader import Home, load_serde
from ..output_headers import HeaderMaker
from ..ports import NumberedOutput, Output
from ..publish_request import PublishRequest
from ..state.session import StateSession
from ..state.writer import StateLink
from ..stats import now_ms
from ..stopping import InstanceStopping
from .batch_source import TaskReader, TaskTopic
from .context import InstanceContext
from .failed_tasks import FailedTasks
from .loading import load_connector, load_trigger
from .positions import Divide, Positions
from .session import ConnectorSession
from .source import Destination, ReadBatch, SourceReader
from .source_letters import SourceLetters
from .transform import load_transform
from .values import BytesSerDe, WrongRecord

ON_THE_WAY_MAX = 50_000  # records
ON_THE_WAY_BYTES_MAX = 64 * 1024 * 1024
_START_S = 0.2
STATE_GRACE_S = 1.0
"""Time for the state store to reply to a connector that is stopping."""
_LAST_S = 1.5
"""Time to wait for the last records when the instance ends, so that they can be acknowledged."""
_BUSY_PAUSE_S = 0.1
_STAYS = 1000
"""Number of keyless records sent to one partition before the next: the maximum per entry."""


class SourceSettlement:
    """Settlement that sends the records of a source."""

    def __init__(self, core: InstanceCore) -> None:
        """Create the settlement without opening anything."""
        self._core = core
        self.gate = Gate(ON_THE_WAY_MAX, ON_THE_WAY_BYTES_MAX)
        self._is_exact = core.spec.details.processingGuarantees == EFFECTIVELY_ONCE
        self._publisher = Publisher(core)
        self._task_topic = TaskTopic(core) if is_batch(core.spec.details) else None
        self._failed_tasks = FailedTasks(core) if is_batch(core.spec.details) else None
        self._wrong: Callable[[Exception], None] = _ignore
        self._positions = Positions(core)
        self._divide: Divide | None = None
        self._outputs: list[Output] = []
        self._session: ConnectorSession | None = None
        self._link: StateLink | None = None
        self._context: InstanceContext
        self._reader: SourceReader
        self._may_read = threading.Event()
        self._on_the_way: deque[ReadBatch] = deque()
        self._keeping = 0
        self._is_broken = False
        self._busy = ""
        self._idle = asyncio.Event()
        self._idle.set()
        self._waiting: list[threading.Event] = []
        self._tasks = TaskSet(f"source {core.spec.key}")

    @property
    def maker(self) -> Maker:
        """The part that runs on the function's thread: the settlement itself."""
        return self

    def process(self, thread: FunctionThread, calls: Calls, source: Input, entry: ReceivedEntry) -> None:
        """Raise AssertionError: a source receives no entries."""
        raise AssertionError("a source has no input")

    def load(self, home: Home) -> Calls:
        """Create the source, which is opened once the instance has its lock."""
        core, spec = self._core, self._core.spec
        if self._is_exact and not self._positions.is_kept:
            raise FunctionLoadError(
                "EFFECTIVELY_ONCE requires a state store for the position of the source, and none is configured: set"
                " stateStorageServiceUrl: bk://host:port in the workers' configuration, or use ATLEAST_ONCE"
            )
        if self._is_exact and not spec.admin_url:
            raise FunctionLoadError(
                "EFFECTIVELY_ONCE requires the broker's REST interface to enable deduplication of the output topic, and"
                " none is configured: set pulsarWebServiceUrl in the workers' configuration, or use ATLEAST_ONCE"
            )
        connector, config, secrets = load_connector(core, home, "source")
        if isinstance(connector, BatchSource):
            source: Source = self._task_reader(connector, home)
        else:
            source = cast(Source, connector)
        if type(source).divide is not Source.divide:
            self._divide = source.divide
        logger = instance_logger(spec)
        context = self._context = InstanceContext(spec, core.stats, logger, secrets, self._is_stopping)
        session = self._session = ConnectorSession(source, config, context, logger)
        if isinstance(source, TaskReader):
            source.use(session)
        name = spec.details.sink.serDeClassName
        serde = load_serde(home, name) if name else BytesSerDe()
        compression = compression_of(spec)
        reader = self._reader = SourceReader(
            source, session, serde, compression, self, SourceLetters(spec.details, core.hiding)
        )
        context.state = self.session()
        reader.use(load_transform(spec, home, core.stats, self, context.state))

        def take_position() -> None:
            if session.opening > 1:
                self._wait_until_durable(session)
            context.position = reader.at.position

        session.before_open = take_position
        if isinstance(source, TaskReader):
            reader.finished, reader.letters_read, self._wrong = source.finished, source.letters, source.wrong
        return Calls(
            batch_call=BatchCall(lambda value: None, None, IdentitySerDe()),
            context=None,
            headers=HeaderMaker(False),
            has_output=True,
            compression=compression,
            serdes={},
            produce=self._produce,
            close=self._close_source,
        )

    def _task_reader(self, batch: BatchSource, home: Home) -> TaskReader:
        spec = self._core.spec
        trigger = None if spec.instance_id else load_trigger(spec, home)
        assert self._task_topic is not None
        assert self._failed_tasks is not None
        return TaskReader(batch, trigger, self._task_topic, spec.metadata.version, self._failed_tasks)

    # -- on the connector's thread --------------------------------------------------------------------------------

    def _produce(self, thread: FunctionThread) -> None:
        if not self._may_read.wait(_START_S) or thread.is_stopping:  # a stop also ends the wait, with nothing open
            return
        try:
            count = self._reader.read()
        except WrongRecord as error:
            self._wrong(error)
            raise
        thread.stats.total.received += count
        if self._link is not None:
            changes, is_taken = self._link.take(ends_unit=True)
            if changes is not None and is_taken:
                self._link.store(changes, self._changes_stored)

    def _changes_stored(self, error: BaseException | None) -> None:
        if error is not None:
            self._core.report("ERROR", f"cannot store state changes of the source: {error}")

    def _close_source(self) -> None:
        session = self._session
        if session is None:
            return
        settled = threading.Event()
        self._post(self._tell_when_settled, settled)
        settled.wait(_LAST_S)
        try:
            self._reader.acknowledge()
        except InstanceStopping:
            pass  # the other system is unavailable, and redelivers unacknowledged records
        finally:
            session.close()

    def _wait_until_durable(self, session: ConnectorSession) -> None:
        """Wait until all records are settled, because a reopened source may discard records before its position."""
        settled = threading.Event()
        self._post(self._tell_when_settled, settled)
        while not settled.wait(_START_S):
            if session.is_stopping:
                raise InstanceStopping

    def ship(self, batch: ReadBatch) -> None:
        """Send a batch of records."""
        try:
            batch.tickets = list(map(self._publisher.publish, batch.others))
        except ClosedError as error:
            raise InstanceStopping from error
        self._post(self._send, batch)

    def leave_out(self, text: str, count: int = 1) -> None:
        """Count records that are not sent, and log a line about them."""
        self._post(self._core.system_failed, text, count)

    def _post(self, action: Callable[..., None], *arguments: object) -> None:
        self._core.mailbox.post(partial(action, *arguments))

    # -- on the event loop ----------------------------------------------------------------------------------------

    async def open(self, calls: Calls) -> None:
        """Open the outputs, and load the position."""
        core, topic = self._core, self._core.spec.details.sink.topic
        core.opening = f"output topic {topic}"
        if self._is_exact:
            await asyncio.to_thread(switch_on, core.spec.admin_url, topic, core.spec.credentials)
        for partition in await core.endpoints.partitions(topic):
            self._outputs.append(await self._open_output(partition))
        if self._task_topic is not None:
            await self._task_topic.open()
        core.opening = "position of the source"
        kept, count = await self._positions.load(self._divide), len(self._outputs)
        if self._is_exact and kept.partitions not in (0, count):
            raise InvalidConfig(
                f"output topic {topic} has {count} partitions instead of {kept.partitions}, which must not change with"
                " EFFECTIVELY_ONCE: delete and recreate the source"
            )
        stored = [cast(NumberedOutput, one).last_sequence_id if self._is_exact else -1 for one in self._outputs]

        def route(key: str | None, number: int) -> int:
            return (number // _STAYS) % count if key is None else key_partition(key, count, "JavaStringHash")

        self._reader.begin(kept._replace(partitions=count), Destination(route, stored, self._is_exact))

    async def _open_output(self, partition: str) -> Output:
        """Open the output of a partition; with EFFECTIVELY_ONCE, wait until the instance's producer name is free."""
        core = self._core
        config = core.encryption.writing(replace(producer_config(), guard=core.guard))
        if not self._is_exact:
            return await core.endpoints.create_producer(partition, config)
        name = producer_name(core.spec, f"source:{core.spec.instance_id}")
        config = replace(config, name=name)
        if core.spec.admin_url:
            guard = memory_guard(core.spec.admin_url, partition, core.guard, credentials=core.spec.credentials)
            config = replace(config, guard=guard)
        while True:
            try:
                output = await core.endpoints.create_producer(partition, config)
            except (ProducerBusy, ConnectionLost, OperationTimeout) as error:
                if core.ended.done():
                    raise
                self._busy = f"waiting for the instance's producer: {error}"
                await asyncio.sleep(_BUSY_PAUSE_S)
                continue
            self._busy = ""
            return output

    def start(self, process: Callable[[Item], None]) -> None:
        """Start reading the source and saving positions."""
        self._tasks.start(self._positions.run(), "save positions", self._core.failed)
        self._may_read.set()

    def _send(self, batch: ReadBatch) -> None:
        if self._is_broken:
            return
        self._on_the_way.append(batch)
        self._idle.clear()
        batch.waiting_for = 1
        for partition, entry in batch.entries:
            try:
                stored = self._outputs[partition].send_entry(entry)
            except MagnetarError as error:
                batch.error = error
                break
            batch.waiting_for += 1
            stored.add_done_callback(partial(self._stored, batch))
        for request, ticket in zip(batch.others, batch.tickets, strict=True):
            batch.waiting_for += 1
            self._watch(ticket, request.topic, batch)
        batch.entries, batch.others, batch.tickets = [], [], []
        self._answered(batch)

    def _watch(self, ticket: Ticket, topic: str, batch: ReadBatch) -> None:
        def done(error: BaseException | None) -> None:
            if error is not None and batch.error is None:
                batch.error, batch.error_topic = error, topic
            self._answered(batch)

        if ticket.is_done:
            done(ticket.error)
        else:
            ticket.on_done = done

    def _stored(self, batch: ReadBatch, stored: asyncio.Future[MessageId]) -> None:
        error = ClosedError("stopped") if stored.cancelled() else stored.exception()
        batch.error = batch.error or error
        self._answered(batch)

    def _answered(self, batch: ReadBatch) -> None:
        batch.waiting_for -= 1
        if batch.waiting_for:
            return
        self.gate.leave(len(batch.records), batch.size)
        if self._is_broken:
            return
        if batch.error is not None:
            self._break(batch.error, batch.error_topic)
            return
        while self._on_the_way and not self._on_the_way[0].waiting_for:
            self._settle(self._on_the_way.popleft())
        self._look_whether_idle()

    def _settle(self, batch: ReadBatch) -> None:
        """Settle a batch that is durable, as are all earlier ones."""
        if batch.records:
            self._core.stats.count_run(len(batch.records), 0, 0.0, now_ms())
        if batch.then is not None:
            batch.then()
        acknowledge = partial(self._reader.settled, batch)
        if self._is_exact:
            self._keeping += 1
            self._positions.keep(batch.kept, partial(self._kept, acknowledge))
        else:
            if batch.kept.text != "null":
                self._positions.keep(batch.kept, _nothing)
            acknowledge()

    def _kept(self, acknowledge: Callable[[], None]) -> None:
        acknowledge()
        self._keeping -= 1
        self._look_whether_idle()

    def _look_whether_idle(self) -> None:
        if not self._on_the_way:
            self._idle.set()
            if not self._keeping:
                while self._waiting:
                    self._waiting.pop().set()

    def _tell_when_settled(self, settled: threading.Event) -> None:
        """Set an event once all shipped batches are settled."""
        self._waiting.append(settled)
        self._look_whether_idle()

    def _break(self, error: BaseException, topic: str) -> None:
        """End the instance because a batch was not stored, so that no later batch is settled."""
        self._is_broken = True
        where = f" in {topic}, their own topic" if topic else ""
        self._core.end(f"records were not stored{where}: {type(error).__name__}: {error}")
        for batch in self._on_the_way:
            batch.error = batch.error or error
            self._reader.settled(batch)
        self._on_the_way.clear()
        self._look_whether_idle()

    def session(self) -> StateSession | None:
        """Return the source's state, or None without a state store."""
        spec = self._core.spec
        if not spec.state_url:
            return None
        self._link = StateLink(spec.state_store, table_of(spec.metadata), spec.key, self._core.report)
        return self._link.session

    def publish(self, request: PublishRequest) -> None:
        """Raise InvalidConfig: a source returns its records from `Source.read`."""
        raise InvalidConfig("a source cannot publish through its context: return records from read")

    def acknowledge(self, message_id: FunctionMessageId, topic: str) -> None:
        """Raise InvalidConfig: a source has no input topics."""
        raise InvalidConfig("a source has no input topics")

    def _is_stopping(self) -> bool:
        return self._session is not None and self._session.is_stopping

    def trouble(self) -> str:
        """Return what prevents the instance from continuing, or an empty string."""
        troubles = (
            "" if self._session is None else self._session.trouble,
            self._positions.trouble,
            "" if self._link is None else self._link.trouble(),
            self._busy,
        )
        return next(filter(None, troubles), "")

    def tick(self) -> None:
        """Do nothing: this settlement has no periodic work."""

    def request_stop(self) -> None:
        """End all waits of the connector's thread."""
        self.gate.close()
        self._may_read.set()
        if self._session is not None:
            self._session.request_stop()
        if self._link is not None:
            self._core.loop.call_later(STATE_GRACE_S, self._link.stop_function)

    async def settle(self, unprocessed: Sequence[Item]) -> None:
        """Wait until records and position are durable."""
        await self._idle.wait()
        if self._task_topic is not None:
            await self._task_topic.flush()
        await self._positions.flush()

    async def close(self) -> None:
        """Abandon work in progress, and close the outputs."""
        self._is_broken = True  # unstored records are dropped
        await self._publisher.close()
        await self._tasks.close()
        if self._link is not None:
            await asyncio.to_thread(self._link.close)
        if self._task_topic is not None:
            await self._task_topic.close()
        if self._failed_tasks is not None:
            await asyncio.to_thread(self._failed_tasks.close)
        await asyncio.gather(*(output.close() for output in self._outputs))
        await self._positions.close()


def _ignore(error: Exception) -> None:
    """Do nothing: the error is reported when the instance ends."""


def _nothing() -> None:
    """Do nothing."""
