"""The function context: message, instance, state and metrics, with the methods of Pulsar's Python and Java contexts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InvalidConfig, StateUnavailable
from .metrics import MetricsContext

if TYPE_CHECKING:
    from logging import Logger

    from .current_record import CurrentRecord
    from .message_id import FunctionMessageId
    from .output_message import OutputMessage

NO_STATE_STORE = (
    "no state store is configured: set stateStorageServiceUrl in the worker configuration, or pass "
    "--state-storage-service-url to localrun, with the address of a `magnetar state-store`, as bk://host:port"
)


def _not_here(name: str) -> InvalidConfig:
    return InvalidConfig(
        f"context.{name} is not available in this function, which receives records instead of reading topics"
    )


class Context(MetricsContext, ABC):
    """The second argument of `process`. Methods about the message are valid only during the call."""

    @abstractmethod
    def get_message_id(self) -> FunctionMessageId:
        """Return the message ID."""

    @abstractmethod
    def get_message_key(self) -> str:
        """Return the message's partition key, or an empty string."""

    @abstractmethod
    def get_partition_key(self) -> str:
        """Return the message's partition key, or an empty string."""

    @abstractmethod
    def get_ordering_key(self) -> bytes:
        """Return the message's ordering key, or an empty string."""

    @abstractmethod
    def get_message_eventtime(self) -> int:
        """Return the event time in milliseconds since 1970, or 0."""

    @abstractmethod
    def get_message_properties(self) -> dict[str, str]:
        """Return the message properties."""

    @abstractmethod
    def get_current_message_topic_name(self) -> str:
        """Return the full name of the message's topic, including the partition."""

    def at(self, index: int) -> Context:
        """Make the methods above refer to one message in a batch function's list, and return this context.

        Args:
            index: index of the message in the list passed to the function.

        Raises:
            InvalidConfig: the index is out of range, or the function is not a batch function.
        """
        raise InvalidConfig("context.at is only available in batch functions")

    @abstractmethod
    def get_function_tenant(self) -> str:
        """Return the function's tenant."""

    @abstractmethod
    def get_function_namespace(self) -> str:
        """Return the function's namespace, without the tenant."""

    @abstractmethod
    def get_function_name(self) -> str:
        """Return the function name."""

    @abstractmethod
    def get_function_id(self) -> str:
        """Return an ID that changes each time the instance starts."""

    @abstractmethod
    def get_function_version(self) -> str:
        """Return the version of the function record, which increases with every update."""

    @abstractmethod
    def get_instance_id(self) -> str:
        """Return the number of this instance as a string, starting at "0"."""

    @abstractmethod
    def get_logger(self) -> Logger:
        """Return a logger that writes to the log shown by `functions logs`."""

    @abstractmethod
    def get_user_config_value(self, key: str) -> Any:
        """Return a user configuration value, or None if the key is missing."""

    @abstractmethod
    def get_user_config_map(self) -> dict[str, Any]:
        """Return the user configuration, which may be empty."""

    @abstractmethod
    def record_metric(self, metric_name: str, metric_value: float) -> None:
        """Add a value to a user metric. `functions stats` shows its sum and count."""

    @abstractmethod
    def get_metrics(self) -> dict[str, float]:
        """Return the sum and count of each metric recorded so far."""

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

        With ATLEAST_ONCE, the input message is acknowledged only after the broker has stored all published messages.

        Args:
            topic_name: destination topic.
            message: value, serialised by the SerDe.
            serde_class_name: a built-in SerDe, or `module.Class` in the package.
            properties: message properties.
            compression_type: set by the first call for a topic; no compression by default.
            callback: called as ``callback(result, message)`` on a separate thread once the broker has replied.
            message_conf: properties, partition_key, ordering_key, sequence_id, event_timestamp (ms since 1970),
              deliver_at (ms
                since 1970) or deliver_after (a timedelta). Only Shared and Key_Shared subscriptions honour the last
                  two.
        """

    @abstractmethod
    def get_input_topics(self) -> list[str]:
        """Return the names of the input topics in alphabetical order."""

    @abstractmethod
    def get_output_topic(self) -> str:
        """Return the output topic, or an empty string."""

    @abstractmethod
    def get_output_serde_class_name(self) -> str:
        """Return the class name of the output SerDe, or an empty string."""

    @abstractmethod
    def ack(self, msgid: FunctionMessageId, topic: str) -> None:
        """Acknowledge a message. Required with the MANUAL guarantee."""

    def get_num_instances(self) -> int:
        """Return the function's number of instances."""
        raise _not_here("get_num_instances")

    def get_message_sequence_id(self) -> int:
        """Return the sequence ID set by the message's producer, or the sequence ID of its entry."""
        raise _not_here("get_message_sequence_id")

    def get_message_partition_index(self) -> int:
        """Return the number of the message's partition, or -1 if the topic is not partitioned."""
        raise _not_here("get_message_partition_index")

    def get_current_record(self) -> CurrentRecord:
        """Return the current message as one value."""
        raise _not_here("get_current_record")

    def get_user_config_value_or_default(self, key: str, default: Any) -> Any:
        """Return a user configuration value, or ``default`` if the key is missing."""
        return self.get_user_config_map().get(key, default)

    def get_output_schema_type(self) -> str:
        """Return the output schema type, or the class name of the output SerDe, or an empty string."""
        raise _not_here("get_output_schema_type")

    def new_output_message(
        self, topic_name: str | None = None, serde_class_name: str = "serde.IdentitySerDe"
    ) -> OutputMessage:
        """Return a new output message without a value, to fill in and send.

        Args:
            topic_name: destination topic; the output topic if omitted.
            serde_class_name: SerDe for the value.

        Raises:
            InvalidConfig: the topic was omitted and the function has no output topic.
        """
        raise _not_here("new_output_message")

    def get_secret(self, secret_name: str) -> str | None:
        """Return a secret of the function, or None if it is not configured or not found.

        Each call looks up the secret again. Returned secrets are hidden in the log and the status.
        """
        return None

    def seek(self, topic: str, partition: int, message_id: Any) -> None:
        """Move the function's subscription to a topic, so that the next message is the first one after ``message_id``.

        Returns once the broker has moved the subscription. Prefetched messages that were not processed are dropped, and
        no message after the new position is acknowledged. Messages already passed to the function together with the
        current one (at most 5 ms of work) may still be processed. The position moves for all instances of the function.

        Args:
            topic: an input topic of the function.
            partition: partition number; 0 for a topic without partitions.
            message_id: a result of `get_message_id`, an ID of the official client, or its ``MessageId.earliest`` or
                ``MessageId.latest``.

        Raises:
            ValueError: the topic is not an input.
            InvalidConfig: the ID is not valid, or the guarantee is EFFECTIVELY_ONCE, which requires `functions
              reset-cursor`.
            MagnetarError: the broker may not have moved the subscription.
        """
        raise _not_here("seek")

    def pause(self, topic: str, partition: int = 0) -> None:
        """Stop consuming an input. Prefetched messages are still processed.

        After pausing all its inputs, an instance no longer calls the function, so call `resume` from another thread.

        Raises:
            ValueError: the topic is not an input.
        """
        raise _not_here("pause")

    def resume(self, topic: str, partition: int = 0) -> None:
        """Resume an input. May be called from any thread.

        Raises:
            ValueError: the topic is not an input.
        """
        raise _not_here("resume")

    def fatal(self, error: BaseException | str) -> None:
        """Stop this instance after the current message, with the error in its status. It is restarted after a delay."""
        raise _not_here("fatal")

    @property
    def admin(self) -> Any:
        """Client for the broker's admin REST API: ``get``, ``put``, ``post`` and ``delete`` with a path.

        Raises:
            InvalidConfig: the function was created without ``exposePulsarAdminClientEnabled``.
        """
        raise _not_here("admin")

    # State. These methods apply without a state store; an instance with a state store overrides them. An unhandled
    # StateUnavailable stops the instance, because every message would fail.

    def incr_counter(self, key: str, amount: int) -> None:
        """Add to a counter. A missing counter starts at 0.

        Increments by several instances add up. A key stored by `put_state` is a counter if its value has 8 bytes.

        Args:
            key: counter name.
            amount: any 64-bit integer.

        Raises:
            StateRefused: the value of the key is known not to be a counter, or the sum exceeds 64 bits.
            StateUnavailable: the worker has no state store.
        """
        raise StateUnavailable(f"counter {key!r}: {NO_STATE_STORE}")

    def get_counter(self, key: str) -> int:
        """Return a counter, including this function's own pending changes, or 0 if it does not exist.

        Raises:
            StateRefused: the value of the key is not a counter.
            StateStoreFailed: the state store cannot read its database.
            StateUnavailable: the worker has no state store.
        """
        raise StateUnavailable(f"counter {key!r}: {NO_STATE_STORE}")

    def del_counter(self, key: str) -> None:
        """Delete a counter if it exists, like `delete_state`."""
        raise StateUnavailable(f"counter {key!r}: {NO_STATE_STORE}")

    def put_state(self, key: str, value: str | bytes) -> None:
        """Store a value under a key, for all instances of the function. Strings are stored as UTF-8.

        Changes for many messages are collected and stored together, before these messages are acknowledged. Changes
        made by a message before it failed are kept. While the state store is unavailable, the function waits. Call the
        state methods only on the thread that runs `process`.

        Args:
            key: up to 4 KiB.
            value: up to 1 MiB.

        Raises:
            StateRefused: the key or value exceeds its limit.
            StateUnavailable: the worker has no state store.
        """
        raise StateUnavailable(f"state {key!r}: {NO_STATE_STORE}")

    def get_state(self, key: str) -> bytes | None:
        """Return the value of a key, including this function's own pending changes, or None.

        A counter is returned as 8 bytes in big-endian order.

        Raises:
            StateStoreFailed: the state store cannot read its database.
            StateUnavailable: the worker has no state store.
        """
        raise StateUnavailable(f"state {key!r}: {NO_STATE_STORE}")

    def delete_state(self, key: str) -> None:
        """Delete a value or counter if it exists.

        Raises:
            StateUnavailable: the worker has no state store.
        """
        raise StateUnavailable(f"state {key!r}: {NO_STATE_STORE}")
