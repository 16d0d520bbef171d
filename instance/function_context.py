"""The context passed to functions: computes values on request, without other costs per message."""

from __future__ import annotations

import json
import logging
import uuid
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, Protocol

from ..api.context import Context
from ..api.current_record import CurrentRecord
from ..api.message_id import FunctionMessageId
from ..api.output_message import OutputMessage
from ..api.serde import SerDe
from ..client.checks import check_text
from ..client.consumers.received import ReceivedEntry
from ..client.outgoing_message import NO_VALUE, Base64Key
from ..config.conversion import runtime_options
from ..errors import ClosedError, InvalidConfig
from ..wire.batch import header_text
from ..wire.message_id import MessageId
from ..wire.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata
from ..wire.topic_name import parse_topic_name
from .admin_client import AdminClient
from .batch_call import Place
from .batch_function import BatchPlace
from .output_headers import message_id_of
from .publish_request import (
    MessageOptions,
    PublishRequest,
    check_size,
    read_compression,
    read_message_conf,
    read_message_id,
)
from .secrets import Secrets
from .spec import InstanceSpec
from .state.session import NO_THREAD, StateSession, outside_of_call
from .stats import InstanceStats, reason_of
from .topic_patterns import takes, topic_pattern
from .unit import Unit
from .values.writers import decoder_of

TOPICS_KNOWN_MAX = 10_000


class Outside(Protocol):
    """The context's access to publishing and acknowledgements; called on the function's thread."""

    def publish(self, request: PublishRequest) -> None:
        """Queue a message for any topic, waiting while too many are in flight."""

    def acknowledge(self, message_id: FunctionMessageId, topic: str) -> None:
        """Acknowledge one message.

        Raises:
            ValueError: the topic is not an input.
            InvalidConfig: the id is not a message id.
        """


class Steering(Protocol):
    """Moves, pauses and resumes inputs; called on any thread except the event loop's."""

    def seek(self, topic: str, partition: int, target: MessageId) -> None:
        """Move an input, and return when the broker has moved it."""

    def pause(self, topic: str, partition: int) -> None:
        """Stop taking entries from an input."""

    def resume(self, topic: str, partition: int) -> None:
        """Resume taking entries from an input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """Further services of a context; each is None if not available.

    Attributes:
        steering: moves, pauses and resumes inputs.
        secrets: finds secrets.
        end: ends the instance with a reason for its status.
        serdes: decoder of each input, by its configured name.
        carry: adds the context of the current span to a published message.
    """

    steering: Steering | None = None
    secrets: Secrets | None = None
    end: Callable[[str], None] | None = None
    serdes: Mapping[str, SerDe] = field(default_factory=dict)
    carry: Callable[[MessageOptions], None] | None = None


class RecordedContext:
    """Base of all contexts: names, config and logger of the function."""

    def __init__(self, spec: InstanceSpec, logger: logging.Logger) -> None:
        """Create the context; ``logger`` is returned by `get_logger`."""
        self._spec = spec
        self._logger = logger
        text = spec.details.userConfig
        self._user_config: dict[str, Any] = json.loads(text) if text else {}

    def get_user_config_value(self, key: str) -> Any:
        """Return the value of a userConfig key, or None."""
        return self._user_config.get(key)

    def get_user_config_map(self) -> dict[str, Any]:
        """Return the function's userConfig."""
        return self._user_config

    def get_logger(self) -> logging.Logger:
        """Return a logger that writes to the function's log."""
        return self._logger

    def get_function_tenant(self) -> str:
        """Return the function's tenant."""
        return self._spec.details.tenant

    def get_function_namespace(self) -> str:
        """Return the function's namespace."""
        return self._spec.details.namespace

    def get_function_name(self) -> str:
        """Return the function's name."""
        return self._spec.details.name

    def get_function_version(self) -> str:
        """Return the version of the function's record."""
        return str(self._spec.metadata.version)

    def get_input_topics(self) -> list[str]:
        """Return the input topics in alphabetical order, because the config's map has no stable order."""
        return sorted(self._spec.details.source.inputSpecs)

    def get_output_topic(self) -> str:
        """Return the output topic, or an empty string."""
        return self._spec.details.sink.topic


class FunctionContext(RecordedContext, Context):
    """The context of one instance; a `Place` determines the current message."""

    def __init__(
        self,
        spec: InstanceSpec,
        stats: InstanceStats,
        outside: Outside,
        logger: logging.Logger,
        make_serde: Callable[[str], SerDe],
        state: StateSession | None = None,
    ) -> None:
        """Create a context without a current message.

        Args:
            spec: the instance's spec.
            stats: collects user metrics.
            outside: publishes messages and acknowledges input.
            logger: logger returned by `get_logger`.
            make_serde: creates a SerDe from its class name.
            state: the function's state, or None without a state store.
        """
        self._equipment = Equipment()
        self._admin: AdminClient | None = None
        if state is not None:
            # The bound methods themselves, to save a call.
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
        self._topics: set[str] = set()  # validated names
        if state is not None:
            state.end()

    def equip(self, equipment: Equipment) -> None:
        """Set further services, before the context is used."""
        self._equipment = equipment

    def enter(self, place: Place, unit: Unit, base: int) -> None:
        """Enter a run on this thread, whose first message is at position ``base`` of ``unit``."""
        self._place = place
        self._unit = unit
        self._base = base
        self._thread = get_ident()
        if self._session is not None:
            self._session.begin()

    def leave(self) -> None:
        """Leave the run, and reset the current message."""
        self._unit = None
        self._thread = NO_THREAD
        if self._session is not None:
            self._session.end()

    def stay(self) -> None:
        """Leave the run, but continue to accept state calls from this thread, for connectors."""
        self.leave()
        if self._session is not None:
            self._session.begin()

    def _message(self) -> tuple[ReceivedEntry, int]:
        unit, place = self._unit, self._place
        if get_ident() != self._thread or unit is None or place is None or place.position < 0:
            raise ClosedError(outside_of_call("get_…", "the message is available only while it is processed"))
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
        return header_text(self._header().partition_key)

    def get_partition_key(self) -> str:  # noqa: D102
        return header_text(self._header().partition_key)

    def get_ordering_key(self) -> bytes:  # noqa: D102
        return self._header().ordering_key

    def get_message_eventtime(self) -> int:  # noqa: D102
        return self._header().event_time

    def get_message_properties(self) -> dict[str, str]:  # noqa: D102
        return {header_text(pair.key): header_text(pair.value) for pair in self._header().properties}

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
            raise InvalidConfig(f"the callback of publish must be callable, not {type(callback).__name__}")
        payload, options = self._serialize(message, serde_class_name), read_message_conf(properties, message_conf)
        if (carry := self._equipment.carry) is not None:
            carry(options)
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

    def _serialize(self, message: Any, serde_class_name: str) -> bytes:
        serde_class_name = str(serde_class_name)
        serde = self._serdes.get(serde_class_name)
        if serde is None:
            serde = self._serdes[serde_class_name] = self._make_serde(serde_class_name)
        payload = serde.serialize(message)
        if not isinstance(payload, bytes):
            raise InvalidConfig(f"SerDe {serde_class_name} returned {type(payload).__name__} instead of bytes")
        return payload

    def new_output_message(  # noqa: D102
        self, topic_name: str | None = None, serde_class_name: str = "serde.IdentitySerDe"
    ) -> OutputMessage:
        topic = self.get_output_topic() if topic_name is None else topic_name
        if not topic:
            raise InvalidConfig("the function has no output topic: pass topic_name to new_output_message")
        return OutputMessage(self._topic(topic), serde_class_name, self._send)

    def _send(self, message: OutputMessage, callback: Callable[[Any, Any], None] | None) -> None:
        if callback is not None and not callable(callback):
            raise InvalidConfig(f"the callback of send_async must be callable, not {type(callback).__name__}")
        conf, key = dict(message.conf), None
        if message.key_is_bytes:
            key = conf.pop("partition_key")
            if not isinstance(key, bytes):
                raise InvalidConfig(f"key_bytes must be bytes, not {type(key).__name__}")
        options = read_message_conf(None, conf)
        if key is not None:
            options["key"] = Base64Key(b64encode(key).decode())
        value = message.payload
        payload = NO_VALUE if value is None else self._serialize(value, message.serde_class_name)
        if (carry := self._equipment.carry) is not None:
            carry(options)
        check_size(message.topic, payload, options)
        self._outside.publish(
            PublishRequest(topic=message.topic, payload=payload, options=options, callback=callback, message=value)
        )

    def _topic(self, name: object) -> str:
        """Validate a topic name, and return it as a str."""
        text = str(name)
        if text not in self._topics:
            check_text("topic_name", text)
            parse_topic_name(text)
            if len(self._topics) >= TOPICS_KNOWN_MAX:
                self._topics.clear()
            self._topics.add(text)
        return text

    def get_message_sequence_id(self) -> int:  # noqa: D102
        header = self._header()
        return header.sequence_id if header.HasField("sequence_id") else self._message()[0].metadata.sequence_id

    def get_message_partition_index(self) -> int:  # noqa: D102
        return message_id_of(*self._message()).partition

    def get_current_record(self) -> CurrentRecord:  # noqa: D102
        (entry, index), header = self._message(), self._header()
        message_id = self.get_message_id()
        return CurrentRecord(
            data=entry.payloads[index],
            topic=entry.topic,
            partition=message_id.partition(),
            message_id=message_id,
            key=header_text(header.partition_key),
            ordering_key=header.ordering_key,
            properties=self.get_message_properties(),
            event_time_ms=header.event_time,
            publish_time_ms=entry.metadata.publish_time,
            sequence_id=self.get_message_sequence_id(),
            redelivery_count=entry.redelivery_count,
            _decode=decoder_of(self._serde_of(entry.topic), entry),
            _ack=self.ack,
        )

    def _serde_of(self, topic: str) -> SerDe:
        """Return the decoder of an input topic, given by the name of the topic or a partition."""
        serdes, inputs = self._equipment.serdes, self._spec.details.source.inputSpecs
        name = parse_topic_name(topic)
        for given, serde in serdes.items():
            if inputs[given].isRegexPattern:
                if takes(topic_pattern(given), topic):
                    return serde
            elif parse_topic_name(given).base == name.base:
                return serde
        raise InvalidConfig(f"no input of the function has topic {topic}: its messages cannot be decoded")

    def get_num_instances(self) -> int:  # noqa: D102
        return max(self._spec.details.parallelism, 1)

    def get_output_schema_type(self) -> str:  # noqa: D102
        sink = self._spec.details.sink
        return sink.schemaType or sink.serDeClassName

    def get_secret(self, secret_name: str) -> str | None:  # noqa: D102
        secrets = self._equipment.secrets
        return None if secrets is None else secrets.get(secret_name)

    def seek(self, topic: str, partition: int, message_id: Any) -> None:  # noqa: D102
        self._steering("seek").seek(topic, partition, read_message_id(message_id, "seek"))

    def pause(self, topic: str, partition: int = 0) -> None:  # noqa: D102
        self._steering("pause").pause(topic, partition)

    def resume(self, topic: str, partition: int = 0) -> None:  # noqa: D102
        self._steering("resume").resume(topic, partition)

    def _steering(self, method: str) -> Steering:
        if self._equipment.steering is None:
            raise InvalidConfig(f"context.{method} is not available in the transform function of a connector")
        return self._equipment.steering

    def fatal(self, error: BaseException | str) -> None:  # noqa: D102
        end = self._equipment.end
        if end is None:
            raise InvalidConfig(
                "context.fatal is not available in the transform function of a connector: raise an exception"
            )
        # Format it on this thread, because that may run the function's code.
        text = reason_of(error) if isinstance(error, BaseException) else str(error)
        self._logger.error("the function called context.fatal: %s", text)
        end(text or "the function ended its instance (context.fatal)")

    @property
    def admin(self) -> AdminClient:  # noqa: D102
        if self._admin is None:
            options = self._spec.details.customRuntimeOptions
            if not runtime_options(options).get("expose_admin"):
                raise InvalidConfig(
                    "context.admin is disabled: set exposePulsarAdminClientEnabled to true in the function's config"
                )
            if not self._spec.admin_url:
                raise InvalidConfig(
                    "context.admin requires the broker's REST interface, and none is configured: set"
                    " pulsarWebServiceUrl in the workers' configuration"
                )
            self._admin = AdminClient(self._spec.admin_url, self._spec.credentials)
        return self._admin

    def get_output_serde_class_name(self) -> str:  # noqa: D102
        return self._spec.details.sink.serDeClassName

    def ack(self, msgid: FunctionMessageId, topic: str) -> None:  # noqa: D102
        self._outside.acknowledge(msgid, topic)


def instance_logger(spec: InstanceSpec) -> logging.Logger:
    """Return the logger of a function."""
    return logging.getLogger(spec.key)
