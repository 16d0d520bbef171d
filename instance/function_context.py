"""The context that functions get: looks things up when asked, and costs nothing per message otherwise."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import Any, Protocol

from ..api.context import Context
from ..api.message_id import FunctionMessageId
from ..api.serde import SerDe
from ..client.checks import check_text
from ..client.consumers.received import ReceivedEntry
from ..errors import ClosedError, InvalidConfig
from ..wire.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata
from ..wire.topic_name import parse_topic_name
from .batch_call import Place
from .batch_function import BatchPlace
from .output_headers import message_id_of
from .publish_request import PublishRequest, check_size, read_compression, read_message_conf
from .spec import InstanceSpec
from .state.session import NO_THREAD, StateSession, outside_of_call
from .stats import InstanceStats
from .unit import Unit

TOPICS_KNOWN_MAX = 10_000


class Outside(Protocol):
    """What a context reaches beyond its instance; called from the function's thread."""

    def publish(self, request: PublishRequest) -> None:
        """Take a message for any topic, waiting while too many are on their way."""

    def acknowledge(self, message_id: FunctionMessageId, topic: str) -> None:
        """Acknowledge one message.

        Raises:
            ValueError: there is no such input topic.
            InvalidConfig: the id is no message's.
        """


class RecordedContext:
    """What every context says of its function: the names and the config in its record, and where it logs."""

    def __init__(self, spec: InstanceSpec, logger: logging.Logger) -> None:
        """Prepare; ``logger`` is what `get_logger` returns."""
        self._spec = spec
        self._logger = logger
        text = spec.details.userConfig
        self._user_config: dict[str, Any] = json.loads(text) if text else {}

    def get_user_config_value(self, key: str) -> Any:
        """Return a value of the function's userConfig, None if it has none."""
        return self._user_config.get(key)

    def get_user_config_map(self) -> dict[str, Any]:
        """Return the function's userConfig."""
        return self._user_config

    def get_logger(self) -> logging.Logger:
        """Return a logger that writes into the function's log."""
        return self._logger

    def get_function_tenant(self) -> str:
        """Return the tenant."""
        return self._spec.details.tenant

    def get_function_namespace(self) -> str:
        """Return the namespace."""
        return self._spec.details.namespace

    def get_function_name(self) -> str:
        """Return the name."""
        return self._spec.details.name

    def get_function_version(self) -> str:
        """Return the version of the function's record."""
        return str(self._spec.metadata.version)

    def get_input_topics(self) -> list[str]:
        """Return the input topics."""
        return list(self._spec.details.source.inputSpecs)

    def get_output_topic(self) -> str:
        """Return the output topic, empty if there is none."""
        return self._spec.details.sink.topic


class FunctionContext(RecordedContext, Context):
    """The context of one instance; its message is the one that `place` points at."""

    def __init__(
        self,
        spec: InstanceSpec,
        stats: InstanceStats,
        outside: Outside,
        logger: logging.Logger,
        make_serde: Callable[[str], SerDe],
        state: StateSession | None = None,
    ) -> None:
        """Prepare.

        Args:
            spec: of the instance.
            stats: take the user's metrics.
            outside: publishes and acknowledges.
            logger: what `get_logger` returns.
            make_serde: makes a SerDe from its class name.
            state: the function's state; None if there is no state store.
        """
        if state is not None:
            # The methods themselves, not methods that call them: a call costs as much as what it does.
            vars(self).update(
                incr_counter=state.incr_counter,
                get_counter=state.get_counter,
                del_counter=state.delete_state,
                put_state=state.put_state,
                get_state=state.get_state,
                delete_state=state.delete_state,
            )
        stats.metrics_of_code.offer(self)
        super().__init__(spec, logger)
        self._stats = stats
        self._outside = outside
        self._make_serde = make_serde
        self._function_id = str(uuid.uuid4())
        self._serdes: dict[str, SerDe] = {}
        self._place: Place | None = None
        self._unit: Unit | None = None
        self._base = 0
        self._session = state
        self._thread = NO_THREAD
        self._topics: set[str] = set()  # names that were found to be right
        if state is not None:
            state.end()

    def enter(self, place: Place, unit: Unit, base: int) -> None:
        """Point at a run whose first message is at position ``base`` of ``unit``, on this thread."""
        self._place = place
        self._unit = unit
        self._base = base
        self._thread = get_ident()
        if self._session is not None:
            self._session.begin()

    def leave(self) -> None:
        """Point at nothing."""
        self._unit = None
        self._thread = NO_THREAD
        if self._session is not None:
            self._session.end()

    def stay(self) -> None:
        """Point at nothing, but go on taking calls of this thread that concern the state: a connector's."""
        self.leave()
        if self._session is not None:
            self._session.begin()

    def _message(self) -> tuple[ReceivedEntry, int]:
        unit, place = self._unit, self._place
        if get_ident() != self._thread or unit is None or place is None or place.position < 0:
            raise ClosedError(outside_of_call("get_…", "the message is known only while it is processed"))
        return unit.locate(self._base + place.position)

    def at(self, index: int) -> FunctionContext:  # noqa: D102
        if not isinstance(self._place, BatchPlace):
            super().at(index)
        else:
            self._place.choose(index)
        return self

    def _header(self) -> MessageMetadata | SingleMessageMetadata:
        entry, index = self._message()
        return entry.metadata if entry.headers is None else entry.headers[index]

    def get_message_id(self) -> FunctionMessageId:  # noqa: D102  documented in Context
        message_id = message_id_of(*self._message())
        return FunctionMessageId(
            message_id.ledger_id,
            message_id.entry_id,
            message_id.partition,
            message_id.batch_index,
            message_id.serialize(),
        )

    def get_message_key(self) -> str:  # noqa: D102
        return self._header().partition_key

    def get_partition_key(self) -> str:  # noqa: D102
        return self._header().partition_key

    def get_ordering_key(self) -> bytes:  # noqa: D102
        return self._header().ordering_key

    def get_message_eventtime(self) -> int:  # noqa: D102
        return self._header().event_time

    def get_message_properties(self) -> dict[str, str]:  # noqa: D102
        return {pair.key: pair.value for pair in self._header().properties}

    def get_current_message_topic_name(self) -> str:  # noqa: D102
        return self._message()[0].topic

    def get_function_id(self) -> str:  # noqa: D102
        return self._function_id

    def get_instance_id(self) -> str:  # noqa: D102
        return str(self._spec.instance_id)

    def record_metric(self, metric_name: str, metric_value: float) -> None:  # noqa: D102
        refusal = self._stats.record(metric_name, metric_value)
        if refusal:
            self._logger.error("%s", refusal)

    def get_metrics(self) -> dict[str, float]:  # noqa: D102
        return self._stats.user_metrics()

    def publish(  # noqa: D102, PLR0913
        self,
        topic_name: str,
        message: Any,
        serde_class_name: str = "serde.IdentitySerDe",
        properties: Mapping[str, str] | None = None,
        compression_type: Any = None,
        callback: Callable[[Any, Any], None] | None = None,
        message_conf: Mapping[str, Any] | None = None,
    ) -> None:
        topic = self._topic(topic_name)
        if callback is not None and not callable(callback):
            raise InvalidConfig(f"the callback of publish is {type(callback).__name__} and cannot be called")
        serde_class_name = str(serde_class_name)
        serde = self._serdes.get(serde_class_name)
        if serde is None:
            serde = self._serdes[serde_class_name] = self._make_serde(serde_class_name)
        payload = serde.serialize(message)
        if not isinstance(payload, bytes):
            raise InvalidConfig(f"SerDe {serde_class_name} returned {type(payload).__name__} instead of bytes")
        options = read_message_conf(properties, message_conf)
        check_size(topic, payload, options)
        self._outside.publish(
            PublishRequest(
                topic=topic,
                payload=payload,
                compression=read_compression(compression_type),
                options=options,
                callback=callback,
                message=message,
            )
        )

    def _topic(self, name: object) -> str:
        """Return the name of a topic; refuse what is none."""
        text = str(name)
        if text not in self._topics:
            check_text("topic_name", text)
            parse_topic_name(text)
            if len(self._topics) >= TOPICS_KNOWN_MAX:
                self._topics.clear()
            self._topics.add(text)
        return text

    def get_output_serde_class_name(self) -> str:  # noqa: D102
        return self._spec.details.sink.serDeClassName

    def ack(self, msgid: FunctionMessageId, topic: str) -> None:  # noqa: D102
        self._outside.acknowledge(msgid, topic)


def instance_logger(spec: InstanceSpec) -> logging.Logger:
    """Return the logger that a function is given."""
    return logging.getLogger(spec.key)
