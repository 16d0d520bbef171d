"""Settlement of a sink: an input entry is acknowledged when all of its records are written, or given away."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from ...api.connector import Batching, Sink
from ...api.serde import IdentitySerDe
from ...errors import FunctionLoadError
from ..acks.at_least_once import AtLeastOnce
from ..batch_call import BatchCall
from ..core import InstanceCore
from ..function_context import instance_logger
from ..function_thread import Calls, Item
from ..loading.loader import Home, load_serde
from ..output_headers import HeaderMaker
from ..unit import HELD_MESSAGES_MAX
from .context import InstanceContext
from .loading import load_connector
from .session import ConnectorSession
from .sink import SinkCall, SinkMaker
from .values import BytesSerDe


class SinkSettlement(AtLeastOnce):
    """Writes records to a sink; see `ports.Settlement`."""

    maker: SinkMaker

    def __init__(self, core: InstanceCore) -> None:
        """Prepare; nothing is opened yet."""
        super().__init__(core)
        self._session: ConnectorSession | None = None
        self._sink: SinkCall | None = None

    def _make_maker(self) -> SinkMaker:
        return SinkMaker(self._ship, self._drop_soon, self.publish, self._dead_letter_topic)

    def _dead_letter_topic(self, topic: str) -> str:
        details = self._core.spec.details
        return details.retryDetails.deadLetterTopic or f"{topic}-{details.name}-DLQ"

    def load(self, home: Home) -> Calls:
        """Make the sink; it is opened once the instance has its lock."""
        spec = self._core.spec
        connector, config, secrets = load_connector(spec, home, "sink")
        sink = cast(Sink, connector)
        logger = instance_logger(spec)
        context = InstanceContext(spec, self._core.stats, logger, secrets, self._is_stopping)
        session = self._session = ConnectorSession(sink, config, context, logger)
        batching = sink.batching(config)
        if batching.records < 1 or batching.size < 1:
            raise FunctionLoadError(f"the sink wants batches of {batching.records} records and {batching.size} bytes")
        # More than half of what is held at the most would never come together.
        batching = Batching(min(batching.records, HELD_MESSAGES_MAX // 2), batching.size, batching.time_s)
        self._sink = SinkCall(sink, session, batching)
        self.maker.use(self._sink, batching)
        return Calls(
            batch_call=BatchCall(lambda value: None, None, IdentitySerDe()),
            context=None,
            headers=HeaderMaker(False),
            has_output=False,
            compression="NONE",
            serdes={
                topic: load_serde(home, given.serdeClassName) if given.serdeClassName else BytesSerDe()
                for topic, given in spec.details.source.inputSpecs.items()
            },
            idle=self._sink.idle,
            close=session.close,
        )

    def start(self, process: Callable[[Item], None]) -> None:
        """See `ports.Settlement`."""
        if self._sink is not None:
            self._sink.may_open = True
        super().start(process)

    def _is_stopping(self) -> bool:
        return self._session is not None and self._session.is_stopping

    def trouble(self) -> str:
        """See `ports.Settlement`."""
        return (self._session.trouble if self._session is not None else "") or super().trouble()

    def request_stop(self) -> None:
        """See `ports.Settlement`."""
        if self._session is not None:
            self._session.request_stop()
        super().request_stop()
