"""Common part of the sink settlements: the sink, its loading and its status."""

from __future__ import annotations

from typing import cast

from ...api.connector import Batching, Sink
from ...api.serde import IdentitySerDe
from ...errors import FunctionLoadError
from ...wire.functions_pb2 import EFFECTIVELY_ONCE, FAILOVER
from ..acks.dead_letters import DeadLetters
from ..batch_call import BatchCall
from ..core import InstanceCore
from ..endpoint_settings import subscription_of
from ..function_context import Outside, instance_logger
from ..function_thread import Calls
from ..loading.loader import Home, load_serde
from ..output_headers import HeaderMaker
from ..state.session import StateSession
from ..unit import HELD_BYTES_MAX, HELD_MESSAGES_MAX
from .context import InstanceContext
from .loading import load_connector
from .pauses import Pauses
from .session import ConnectorSession
from .sink import SinkCall
from .transform import load_transform
from .values import BytesSerDe
from .writing import RecordWriter, Rules


class LoadedSink:
    """The sink of an instance.

    Attributes:
        call: writes to the sink; set by `load`.
        context: the sink's context; set by `load`.
        pauses: inputs paused by the sink.
    """

    call: SinkCall
    context: InstanceContext

    def __init__(self, core: InstanceCore, outside: Outside) -> None:
        """Create the holder of a sink to be loaded; ``outside`` serves the transform function."""
        self._core = core
        self._outside = outside
        self.pauses = Pauses(core, core.spec.details.source.inputSpecs)
        self._session: ConnectorSession | None = None
        details = core.spec.details
        subscription = subscription_of(core.spec)
        self._dead_letters = DeadLetters(
            details.retryDetails.deadLetterTopic, details.name, subscription, core.spec.function_name, core.hiding
        )

    def rules(self) -> Rules:
        """Return the rules for records with at least once."""
        details = self._core.spec.details
        source = details.source
        return Rules(
            in_order=source.subscriptionType == FAILOVER,
            retries=details.retryDetails.maxMessageRetries,
            retry_s=source.negativeAckRedeliveryDelayMs / 1000,
        )

    def load(self, home: Home, rules: Rules, state: StateSession | None) -> Calls:
        """Create the sink, which is opened once the instance has its lock."""
        spec, stats = self._core.spec, self._core.stats
        connector, config, secrets = load_connector(self._core, home, "sink")
        sink = cast(Sink, connector)
        logger = instance_logger(spec)
        context = self.context = InstanceContext(spec, stats, logger, secrets, self.is_stopping)
        context.state, context.pauses = state, self.pauses
        transform = load_transform(spec, home, stats, self._outside, state)
        session = self._session = ConnectorSession(sink, config, context, logger)
        session.before_open = self.pauses.resume_all
        batching = _checked(sink.batching(config))
        writer = RecordWriter(sink, session, batching, rules)
        is_exact = spec.details.processingGuarantees == EFFECTIVELY_ONCE
        self.call = SinkCall(
            sink=sink,
            session=session,
            writer=writer,
            batching=batching,
            dead_letters=self._dead_letters,
            transform=transform,
            is_exact=is_exact,
        )
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
            idle=self.call.idle,
            close=session.close,
        )

    def start(self) -> None:
        """Allow opening the sink."""
        self.call.may_open = True

    def is_stopping(self) -> bool:
        """Return whether the instance is stopping (from any thread)."""
        return self._session is not None and self._session.is_stopping

    def trouble(self) -> str:
        """Return why the sink is blocked, or an empty string (from any thread)."""
        return (self._session.trouble if self._session is not None else "") or self.pauses.trouble()

    def request_stop(self) -> None:
        """Stop retrying (from any thread)."""
        if self._session is not None:
            self._session.request_stop()


def _checked(batching: Batching) -> Batching:
    if batching.records < 1 or batching.size < 1 or batching.time_s < 0:
        raise FunctionLoadError(
            f"invalid batching of the sink: {batching.records} records, {batching.size} bytes, {batching.time_s:g} s"
        )
    # Larger batches would never fill up, because the number of held messages is limited.
    most = Batching(HELD_MESSAGES_MAX // 2, HELD_BYTES_MAX // 2)
    return batching._replace(records=min(batching.records, most.records), size=min(batching.size, most.size))
