"""What a function may ask and do while it processes a message: the methods of Pulsar's contexts, in Python and Java."""

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
    "there is no state store: set stateStorageServiceUrl in the worker's configuration, or give localrun"
    " --state-storage-service-url, to the address of a `magnetar state-store`, as bk://host:port"
)


def _not_here(name: str) -> InvalidConfig:
    return InvalidConfig(f"context.{name} is for functions that read topics by themselves; this one is given records")


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
        """Return the names of the input topics, in alphabetical order."""

    @abstractmethod
    def get_output_topic(self) -> str:
        """Return the output topic, empty if the function has none."""

    @abstractmethod
    def get_output_serde_class_name(self) -> str:
        """Return the class name of the output SerDe, empty if it was not set."""

    @abstractmethod
    def ack(self, msgid: FunctionMessageId, topic: str) -> None:
        """Acknowledge a message; needed where the function acknowledges by itself (MANUAL)."""

    def get_num_instances(self) -> int:
        """Return how many instances the function has."""
        raise _not_here("get_num_instances")

    def get_message_sequence_id(self) -> int:
        """Return the sequence id that the message's producer gave it; without one, that of its entry."""
        raise _not_here("get_message_sequence_id")

    def get_message_partition_index(self) -> int:
        """Return the number of the partition that the message came from, -1 if the topic has none."""
        raise _not_here("get_message_partition_index")

    def get_current_record(self) -> CurrentRecord:
        """Return the message at hand as one value."""
        raise _not_here("get_current_record")

    def get_user_config_value_or_default(self, key: str, default: Any) -> Any:
        """Return a value of the user configuration, ``default`` if the key is not there."""
        return self.get_user_config_map().get(key, default)

    def get_output_schema_type(self) -> str:
        """Return the schema type of the output, or else the class name of its SerDe; empty if neither was set."""
        raise _not_here("get_output_schema_type")

    def new_output_message(
        self, topic_name: str | None = None, serde_class_name: str = "serde.IdentitySerDe"
    ) -> OutputMessage:
        """Return a message to be put together and sent, without a value yet.

        Args:
            topic_name: where to; the output topic if it is left out.
            serde_class_name: of the SerDe that serialises the value.

        Raises:
            InvalidConfig: no topic is given, and the function has no output topic.
        """
        raise _not_here("new_output_message")

    def get_secret(self, secret_name: str) -> str | None:
        """Return a secret of the function, None if it has none of that name, or if it is not found.

        Each call looks again. A secret that was returned is hidden in the log and the status.
        """
        return None

    def seek(self, topic: str, partition: int, message_id: Any) -> None:
        """Move the function's subscription of a topic; what comes next is the first message behind ``message_id``.

        Returns when the broker has moved it. Messages that were fetched before and not processed are dropped, and none
        behind the new position is acknowledged; those that the function is given in one go with the message at hand
        (5 ms of work at most) may still be processed. It moves for all instances of the function.

        Args:
            topic: an input of the function.
            partition: of the topic; 0 where it has none.
            message_id: what `get_message_id` returned once, an id of the official client, or its
                ``MessageId.earliest`` or ``MessageId.latest``.

        Raises:
            ValueError: there is no such input.
            InvalidConfig: the id is none, or the guarantee is EFFECTIVELY_ONCE, where `functions reset-cursor` is.
            MagnetarError: the broker has not moved it, maybe.
        """
        raise _not_here("seek")

    def pause(self, topic: str, partition: int = 0) -> None:
        """Take no more messages of an input; those that the instance has fetched already are processed.

        An instance that has paused all its inputs is called no more: `resume` from a thread of your own.

        Raises:
            ValueError: there is no such input.
        """
        raise _not_here("pause")

    def resume(self, topic: str, partition: int = 0) -> None:
        """Go on with an input (from any thread).

        Raises:
            ValueError: there is no such input.
        """
        raise _not_here("resume")

    def fatal(self, error: BaseException | str) -> None:
        """End this instance after the message at hand, with the error in its status; it starts again after a pause."""
        raise _not_here("fatal")

    @property
    def admin(self) -> Any:
        """Requests to the broker's admin REST interface: ``get``, ``put``, ``post`` and ``delete`` with a path.

        Raises:
            InvalidConfig: the function was created without ``exposePulsarAdminClientEnabled``.
        """
        raise _not_here("admin")

    # State. These are what a function without a state store has; an instance with one puts the real methods in place.
    # StateUnavailable, unless the function handles it, stops the instance: every message would fail for it.

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
        raise StateUnavailable(f"counter {key!r}: {NO_STATE_STORE}")

    def get_counter(self, key: str) -> int:
        """Return a counter, 0 if it is not there; what this function did to it so far is included.

        Raises:
            StateRefused: the key holds what is no counter.
            StateStoreFailed: the state store cannot read its database.
            StateUnavailable: there is no state store.
        """
        raise StateUnavailable(f"counter {key!r}: {NO_STATE_STORE}")

    def del_counter(self, key: str) -> None:
        """Delete a counter, if it is there; see `delete_state`."""
        raise StateUnavailable(f"counter {key!r}: {NO_STATE_STORE}")

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
        raise StateUnavailable(f"state {key!r}: {NO_STATE_STORE}")

    def get_state(self, key: str) -> bytes | None:
        """Return the value under a key, None if there is none; what this function changed so far is included.

        A counter is returned as its 8 bytes, the highest first.

        Raises:
            StateStoreFailed: the state store cannot read its database.
            StateUnavailable: there is no state store.
        """
        raise StateUnavailable(f"state {key!r}: {NO_STATE_STORE}")

    def delete_state(self, key: str) -> None:
        """Delete a value or counter, if it is there.

        Raises:
            StateUnavailable: there is no state store.
        """
        raise StateUnavailable(f"state {key!r}: {NO_STATE_STORE}")
