"""What a function may ask and do while it processes a message: the methods of Pulsar's Python context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InvalidConfig, StateUnavailable
from .metrics import MetricsContext

if TYPE_CHECKING:
    from logging import Logger

    from .message_id import FunctionMessageId

_NO_STATE = (
    "{}: this worker knows no state store; run `magnetar standalone` or `magnetar state-store`, and give workers its"
    " address as stateStorageServiceUrl: bk://host:port"
)


class Context(MetricsContext, ABC):
    """The second argument of `process`. What concerns the message is valid during the call only."""

    @abstractmethod
    def get_message_id(self) -> FunctionMessageId:
        """Return the id of the message."""

    @abstractmethod
    def get_message_key(self) -> str:
        """Return the partition key of the message, empty if it has none."""

    @abstractmethod
    def get_partition_key(self) -> str:
        """Return the partition key of the message, empty if it has none."""

    @abstractmethod
    def get_ordering_key(self) -> bytes:
        """Return the ordering key of the message, empty if it has none."""

    @abstractmethod
    def get_message_eventtime(self) -> int:
        """Return the event time in milliseconds since 1970, 0 if the message has none."""

    @abstractmethod
    def get_message_properties(self) -> dict[str, str]:
        """Return the properties of the message."""

    @abstractmethod
    def get_current_message_topic_name(self) -> str:
        """Return the full name of the topic that the message came from, partition included."""

    def at(self, index: int) -> Context:
        """Have the methods above speak of one message of a batch function's list; returns this context.

        Args:
            index: of the message in the list that the function was called with.

        Raises:
            InvalidConfig: there is no such message, or the function is called for one message at a time.
        """
        raise InvalidConfig("context.at is for batch functions, which are called with many messages at once")

    @abstractmethod
    def get_function_tenant(self) -> str:
        """Return the tenant of the function."""

    @abstractmethod
    def get_function_namespace(self) -> str:
        """Return the namespace of the function, without its tenant."""

    @abstractmethod
    def get_function_name(self) -> str:
        """Return the name of the function."""

    @abstractmethod
    def get_function_id(self) -> str:
        """Return an id that is new with every start of the instance."""

    @abstractmethod
    def get_function_version(self) -> str:
        """Return the version of the function's record; it rises with every update."""

    @abstractmethod
    def get_instance_id(self) -> str:
        """Return the number of this instance as text, from "0" on."""

    @abstractmethod
    def get_logger(self) -> Logger:
        """Return the logger whose lines `functions logs` shows."""

    @abstractmethod
    def get_user_config_value(self, key: str) -> Any:
        """Return a value of the user configuration, None if the key is not there."""

    @abstractmethod
    def get_user_config_map(self) -> dict[str, Any]:
        """Return the user configuration, empty if there is none."""

    @abstractmethod
    def record_metric(self, metric_name: str, metric_value: float) -> None:
        """Add a value to a metric of the user's; its sum and count are shown in `functions stats`."""

    @abstractmethod
    def get_metrics(self) -> dict[str, float]:
        """Return sum and count of each metric recorded so far."""

    @abstractmethod
    def publish(  # noqa: PLR0913  the signature is Pulsar's
        self,
        topic_name: str,
        message: Any,
        serde_class_name: str = "serde.IdentitySerDe",
        properties: Mapping[str, str] | None = None,
        compression_type: Any = None,
        callback: Callable[[Any, Any], None] | None = None,
        message_conf: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a message to a topic, without waiting for the broker.

        Under ATLEAST_ONCE the input message is acknowledged only after the broker has stored what was published.

        Args:
            topic_name: where to.
            message: is serialised by the SerDe.
            serde_class_name: a SerDe of ours or `module.Class` of the package.
            properties: of the message.
            compression_type: the first call decides for its topic; none by default.
            callback: called as ``callback(result, message)`` on a thread of its own once the broker has answered.
            message_conf: properties, partition_key, ordering_key, sequence_id, event_timestamp (ms since 1970),
                deliver_at (ms since 1970) or deliver_after (a timedelta), which Shared and Key_Shared subscriptions
                keep.
        """

    @abstractmethod
    def get_input_topics(self) -> list[str]:
        """Return the names of the input topics."""

    @abstractmethod
    def get_output_topic(self) -> str:
        """Return the output topic, empty if the function has none."""

    @abstractmethod
    def get_output_serde_class_name(self) -> str:
        """Return the class name of the output SerDe, empty if it was not set."""

    @abstractmethod
    def ack(self, msgid: FunctionMessageId, topic: str) -> None:
        """Acknowledge a message; needed where the function acknowledges by itself (MANUAL)."""

    def get_secret(self, secret_name: str) -> str | None:
        """Return a secret of the function, None if it has none of that name.

        In this version it has none: a config with secrets is refused when the function is created.
        """
        return None

    # State. These are what a function without a state store has; an instance with one puts the real methods in place.

    def incr_counter(self, key: str, amount: int) -> None:
        """Add to a counter; one that is not there counts from 0.

        Increments of many instances add up. A key that was put as a value is a counter if that has 8 bytes.

        Args:
            key: of the counter.
            amount: any integer of 64 bits.

        Raises:
            StateRefused: the key is known to hold what is no counter, or the sum does not fit into 64 bits.
            StateUnavailable: there is no state store.
        """
        raise StateUnavailable(_NO_STATE.format(f"counter {key!r}"))

    def get_counter(self, key: str) -> int:
        """Return a counter, 0 if it is not there; what this function did to it so far is included.

        Raises:
            StateRefused: the key holds what is no counter.
            StateStoreFailed: the state store cannot read its database.
            StateUnavailable: there is no state store.
        """
        raise StateUnavailable(_NO_STATE.format(f"counter {key!r}"))

    def del_counter(self, key: str) -> None:
        """Delete a counter, if it is there; see `delete_state`."""
        raise StateUnavailable(_NO_STATE.format(f"counter {key!r}"))

    def put_state(self, key: str, value: str | bytes) -> None:
        """Store a value under a key, for all instances of the function; text is stored as UTF-8.

        Changes are collected and stored once for many messages, before these are acknowledged. Those that a message
        made before it failed are kept. While the state store is away the function waits for it. State is for the thread
        that `process` runs on.

        Args:
            key: up to 4 KiB.
            value: up to 1 MiB.

        Raises:
            StateRefused: key or value are beyond their limits.
            StateUnavailable: there is no state store.
        """
        raise StateUnavailable(_NO_STATE.format(f"state {key!r}"))

    def get_state(self, key: str) -> bytes | None:
        """Return the value under a key, None if there is none; what this function changed so far is included.

        A counter is returned as its 8 bytes, the highest first.

        Raises:
            StateStoreFailed: the state store cannot read its database.
            StateUnavailable: there is no state store.
        """
        raise StateUnavailable(_NO_STATE.format(f"state {key!r}"))

    def delete_state(self, key: str) -> None:
        """Delete a value or counter, if it is there.

        Raises:
            StateUnavailable: there is no state store.
        """
        raise StateUnavailable(_NO_STATE.format(f"state {key!r}"))
