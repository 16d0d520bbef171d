"""Settlement of a source: its records are sent, and its position is kept when they are durable."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from ...api.connector import Source
from ...api.message_id import FunctionMessageId
from ...api.serde import IdentitySerDe
from ...client.consumers.received import ReceivedEntry
from ...errors import ClosedError, InvalidConfig, MagnetarError
from ...wire.message_id import MessageId
from ..acks.publisher import Publisher, Ticket
from ..batch_call import BatchCall
from ..core import InstanceCore
from ..endpoint_settings import compression_of, producer_config
from ..function_context import instance_logger
from ..function_thread import Calls, FunctionThread, Item, Maker
from ..function_thread import Source as Input
from ..gate import Gate
from ..loading.loader import Home, load_serde
from ..output_headers import HeaderMaker
from ..ports import Output
from ..publish_request import PublishRequest
from ..state.session import StateSession
from ..stats import now_ms
from .context import InstanceContext
from .loading import load_connector
from .positions import Positions
from .session import ConnectorSession
from .source import ReadBatch, SourceReader
from .values import BytesSerDe

ON_THE_WAY_MAX = 50_000  # records
ON_THE_WAY_BYTES_MAX = 64 * 1024 * 1024
_START_S = 0.2


class SourceSettlement:
    """Sends what a source reads; see `ports.Settlement`."""

    def __init__(self, core: InstanceCore) -> None:
        """Prepare; nothing is opened yet."""
        self._core = core
        self.gate = Gate(ON_THE_WAY_MAX, ON_THE_WAY_BYTES_MAX)
        self._publisher = Publisher(core)
        self._positions = Positions(core)
        self._output: Output | None = None
        self._session: ConnectorSession | None = None
        self._context: InstanceContext
        self._reader: SourceReader
        self._may_read = threading.Event()
        self._on_the_way: deque[ReadBatch] = deque()
        self._is_closing = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def maker(self) -> Maker:
        """See `ports.Settlement`."""
        return self

    def process(self, thread: FunctionThread, calls: Calls, source: Input, entry: ReceivedEntry) -> None:
        """Never called: no entries come."""
        raise AssertionError("a source has no input")

    def load(self, home: Home) -> Calls:
        """Make the source; it is opened once the instance has its lock."""
        core, spec = self._core, self._core.spec
        connector, config, secrets = load_connector(spec, home, "source")
        source = cast(Source, connector)
        logger = instance_logger(spec)
        context = self._context = InstanceContext(spec, core.stats, logger, secrets, self._is_stopping)
        session = self._session = ConnectorSession(source, config, context, logger)
        name = spec.details.sink.serDeClassName
        serde = load_serde(home, name) if name else BytesSerDe()
        compression = compression_of(spec)
        self._reader = SourceReader(source, session, serde, compression, self)
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

    # -- on the connector's thread --------------------------------------------------------------------------------

    def _produce(self, thread: FunctionThread) -> None:
        if not self._may_read.wait(_START_S):
            return
        if count := self._reader.read():
            thread.stats.total.received += count

    def _close_source(self) -> None:
        if self._session is not None:
            self._session.close()

    def ship(self, batch: ReadBatch) -> None:
        """See `source.Outlet`."""
        self._post(self._send, batch)

    def leave_out(self, text: str) -> None:
        """See `source.Outlet`."""
        self._post(self._core.system_failed, text)

    def _post(self, action: Callable[..., None], *arguments: object) -> None:
        self._core.mailbox.post(partial(action, *arguments))

    # -- on the event loop ----------------------------------------------------------------------------------------

    async def open(self, calls: Calls) -> None:
        """See `ports.Settlement`."""
        core, topic = self._core, self._core.spec.details.sink.topic
        core.opening = f"output topic {topic}"
        self._output = await core.endpoints.create_producer(topic, replace(producer_config(), guard=core.guard))
        core.opening = "position of the source"
        self._context.position = await self._positions.load()

    def start(self, process: Callable[[Item], None]) -> None:
        """See `ports.Settlement`."""
        self._core.tasks.start(self._positions.run(), "keep the position", self._core.failed)
        self._may_read.set()

    def _send(self, batch: ReadBatch) -> None:
        if self._is_closing:
            return
        self._on_the_way.append(batch)
        self._idle.clear()
        batch.waiting_for = 1
        assert self._output is not None
        for entry in batch.entries:
            try:
                stored = self._output.send_entry(entry)
            except MagnetarError as error:
                batch.error = error
                self._core.end(f"{type(error).__name__}: {error}")
            else:
                batch.waiting_for += 1
                stored.add_done_callback(partial(self._stored, batch))
        for request in batch.others:
            batch.waiting_for += 1
            self._core.tasks.start(asyncio.to_thread(self._publish, request, batch), "publish", self._core.failed)
        batch.entries = []
        self._answered(batch)

    def _publish(self, request: PublishRequest, batch: ReadBatch) -> None:
        ticket = self._publisher.publish(request)
        self._post(self._watch, ticket, batch)

    def _watch(self, ticket: Ticket, batch: ReadBatch) -> None:
        def done(error: MagnetarError | None) -> None:
            batch.error = batch.error or error
            self._answered(batch)

        if ticket.is_done:
            done(ticket.error)
        else:
            ticket.on_done = done

    def _stored(self, batch: ReadBatch, stored: asyncio.Future[MessageId]) -> None:
        batch.error = batch.error or (ClosedError("stopped") if stored.cancelled() else stored.exception())
        self._answered(batch)

    def _answered(self, batch: ReadBatch) -> None:
        batch.waiting_for -= 1
        if batch.waiting_for:
            return
        self.gate.leave(len(batch.records), batch.size)
        self._reader.settled(batch)
        if batch.error is None:
            self._core.stats.count_run(len(batch.records), 0, 0.0, now_ms())
        if batch.error is not None and not self._is_closing:
            # What comes behind must not be taken for all that there is: the source begins again where it was.
            self._core.end(f"records were not stored: {type(batch.error).__name__}: {batch.error}")
        while self._on_the_way and not self._on_the_way[0].waiting_for:
            first = self._on_the_way.popleft()
            if first.error is not None:
                self._on_the_way.clear()
                break
            if first.position is not None:
                self._positions.keep(first.position)
        if not self._on_the_way:
            self._idle.set()

    def session(self) -> StateSession | None:
        """See `ports.Settlement`."""
        return None

    def publish(self, request: PublishRequest) -> None:
        """See `function_context.Outside`."""
        raise InvalidConfig("a source publishes by what it returns from read")

    def acknowledge(self, message_id: FunctionMessageId, topic: str) -> None:
        """See `function_context.Outside`."""
        raise InvalidConfig("a source has no input topics")

    def _is_stopping(self) -> bool:
        return self._session is not None and self._session.is_stopping

    def trouble(self) -> str:
        """See `ports.Settlement`."""
        return (self._session.trouble if self._session is not None else "") or self._positions.trouble

    def tick(self) -> None:
        """See `ports.Settlement`."""

    def request_stop(self) -> None:
        """See `ports.Settlement`."""
        self.gate.close()
        self._may_read.set()
        if self._session is not None:
            self._session.request_stop()

    async def settle(self, unprocessed: Sequence[Item]) -> None:
        """See `ports.Settlement`."""
        await self._idle.wait()
        await self._positions.flush()

    async def close(self) -> None:
        """See `ports.Settlement`."""
        self._is_closing = True
        await self._publisher.close()
        if self._output is not None:
            await self._output.close()
        await self._positions.close()
