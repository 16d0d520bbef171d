"""The connector API: sources and sinks.

A source reads records into Pulsar and a sink writes them out. Both have a ``config``, a class of
`connector_config.option` fields that documents and validates their configuration. Every method may be ``async``.

    class Ticker(Source):
        config = TickerConfig

        def open(self, config, context):
            self.number = context.position or 0          # position of the last run; None at first
            self.pause_s = 1 / config.rate

        def read(self):
            time.sleep(self.pause_s)
            self.number += 1
            return Record(f"tick {self.number}")

        def snapshot(self):
            return self.number

An instance calls one method at a time, always from the same thread. Exceptions report failures: `Retry` if the other
system is unavailable, `RecordRefused` if it will never accept a record. Any other exception stops the instance, which
shows the reason in its status and is restarted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from ..errors import MagnetarError
from .metrics import MetricsContext

if TYPE_CHECKING:
    from logging import Logger

Position: TypeAlias = Any
"""A source position: any JSON value."""


@dataclass(slots=True)
class Record:
    """A message read by a source or passed to a sink.

    Attributes:
        value: in a source, the input of the output SerDe; in a sink, the result of the input SerDe.
        key: partition key.
        properties: message properties.
        event_time_ms: event time in milliseconds since 1970; 0 if unknown.
        topic: in a sink, the topic that the record came from; in a source, a topic to send the record to instead of the
            output topic.
        message_id: in a sink, the message's position in the topic, as a string.
        sequence: in a sink, a number derived from the message's position in its topic. It increases, and is the same
          when
            the record is redelivered. Below 2^63; 0 if the position has no such number, which never happens with
            EFFECTIVELY_ONCE.
        partition: in a source, the part of the input that the record belongs to. Order is preserved within a partition.
        acknowledge: in a source, called when the record is durable, in the order in which records were read; for
          systems
            that expect a confirmation per message. With EFFECTIVELY_ONCE, the position after the record has been saved
              by
            then as well. It is not called if the instance crashes first, but all records before
            `ConnectorContext.position` are durable.
        refuse: in a source, called with the reason if the record can never become a message, for example because it is
          too
            large. Use it to return an error to the sender. Without it, the record goes to the source's dead-letter
              topic
            and is acknowledged once it is durable there.
        fail: in a source, called when the record could not be stored, so that it can be redelivered. None of these
            callbacks is called after the connector was closed, even if it is reopened later: the other system
              redelivers
            unconfirmed records.
    """

    value: Any
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int = 0
    topic: str = ""
    message_id: str = ""
    partition: str = ""
    sequence: int = 0
    acknowledge: Callable[[], object] | None = None
    fail: Callable[[], object] | None = None
    refuse: Callable[[str], object] | None = None


@dataclass(slots=True)
class DeadLetter(Record):
    """A value that a source read but cannot convert to a valid record.

    Return it from `Source.read` or `BatchSource.read` in place of the record, so that one invalid value does not stop
    the source. It is counted in the status, logged, and sent to the source's dead-letter topic. If `Record.refuse` is
    set, the sender receives the reason instead. Its value is the input, as far as it is known.

    Attributes:
        reason: why the value is invalid, in one line.
    """

    reason: str = field(kw_only=True)


class Retry(MagnetarError):
    """The other system is unavailable or busy, so the call is retried with increasing delays.

    Args:
        cause: what happened, in one line; shown as "retrying" in the instance status.
        after_s: minimum delay in seconds.
    """

    def __init__(self, cause: str, after_s: float = 0.0) -> None:
        super().__init__(cause)
        self.after_s = after_s


class RecordRefused(MagnetarError):
    """The other system will never accept this record. It goes to the dead-letter topic, and processing continues.

    Args:
        cause: what happened, in one line.
        index: index of the record in the batch passed to `Sink.write_batch`.
        written: number of records at the start of the batch that are durable; all other records except this one are
          passed
            again.
    """

    def __init__(self, cause: str, index: int = 0, written: int = 0) -> None:
        super().__init__(cause)
        self.index = index
        self.written = written


class EndOfInput(MagnetarError):
    """The source has reached the end of its input. The instance stays idle until it is stopped."""


class ConnectorContext(MetricsContext, ABC):
    """The instance from a connector's point of view. Use it only on the connector's thread.

    Attributes:
        position: in a source, the `Source.snapshot` after the last durable record, or None at first. When a source is
            reopened after a `Retry`, all records that it has returned are durable.
        name: connector name, ``tenant/namespace/name``.
        instance_id: number of this instance, starting at 0.
        parallelism: number of instances.
        incarnation: ID of this creation of the connector. It is kept on updates and restarts, but differs for a
          connector
            created later under the same name.
        is_exact: whether the connector was created with EFFECTIVELY_ONCE.
        logger: writes to the instance's log.
    """

    position: Position
    name: str
    instance_id: int
    parallelism: int
    incarnation: str
    is_exact: bool
    logger: Logger

    @abstractmethod
    def record_metric(self, name: str, value: float) -> None:
        """Record a value of a connector metric."""

    @abstractmethod
    def secret(self, name: str) -> str | None:
        """Return a secret of the connector, or None if the connector has no secret with that name."""

    @abstractmethod
    def get_state(self, key: str) -> bytes | None:
        """Return the value stored under a key, or None."""

    @abstractmethod
    def put_state(self, key: str, value: str | bytes) -> None:
        """Store a value under a key."""

    @abstractmethod
    def is_stopping(self) -> bool:
        """Return whether the instance is stopping. Long-running `read` and `write` calls should check this."""


class SourceContext(ConnectorContext):
    """The context of a source."""


class SinkContext(ConnectorContext):
    """The context of a sink."""

    @abstractmethod
    def pause(self, topic: str) -> None:
        """Deliver no more messages from a topic until `resume` or until the sink is reopened. Other topics continue."""

    @abstractmethod
    def resume(self, topic: str) -> None:
        """Resume an input topic, starting with the messages held back meanwhile."""


class Batching(NamedTuple):
    """Limits of a sink's batches. A batch contains the available records, up to these limits.

    Attributes:
        records: maximum number of records.
        size: maximum bytes of the received messages; a batch has at least one message.
        time_s: how long to wait for more messages after the first; 0 to deliver only the available messages.
    """

    records: int = 1000
    size: int = 1 << 20
    time_s: float = 0.0


Read: TypeAlias = "Record | Sequence[Record] | None"


class Connector:
    """Common base of sources and sinks. Each instance creates one object, without arguments."""

    config: ClassVar[type[Any]] = dict
    """Configuration class; see `connector_config.option`. ``dict`` accepts any fields, unchecked."""

    def check(self, config: Any) -> None:
        """Reject invalid settings that their types do not reveal, such as conflicting fields or a malformed URL.

        Called when the connector is created, before it is opened, and again in each instance. It must not access the
        network.

        Raises:
            InvalidConfig: a setting is invalid. The message contains the field name and its valid values.
        """

    def not_effectively_once(self, config: Any) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string.

        A sink supports it if writing a record twice changes nothing, or if the sink stores the record's
        `Record.sequence` in the target's own transaction. A source supports it if its `Source.snapshot` is complete and
        a position is always followed by the same records, in the same order.
        """
        return f"{type(self).__name__} does not declare whether redelivered records are duplicated"

    def stored_defaults(self, config: Any) -> Mapping[str, Any]:
        """Return settings to store with a new connector that was created without them.

        When a default of the connector changes, return the new default here. A stored connector without the setting was
        created before the change and keeps the old default.
        """
        return {}

    def notice(self, config: Any) -> str:
        """Return a line for create, update and localrun to print, such as a warning, or an empty string."""
        return ""

    def open(self, config: Any, context: Any) -> Awaitable[None] | None:
        """Connect. Called once, before all other methods except the checks."""

    def close(self) -> Awaitable[None] | None:
        """Release all resources. Called once, even after failures."""


class Source(Connector, ABC):
    """Reads records from another system."""

    @abstractmethod
    def read(self) -> Read | Awaitable[Read]:
        """Return the next record or a batch of records; None or an empty batch if none is available yet.

        The call may block for up to about a second, because a stop waits for it.
        """

    def snapshot(self) -> Position:
        """Return the position after all records returned by `read`, or None if the source has no position.

        Called after each `read`, even one that returned no records, and saved once all records read before it are
        durable. The position is JSON of at most 1 MiB.
        """
        return None

    def not_parallel(self, config: Any) -> str:
        """Return why a configuration allows only one instance, or an empty string."""
        return ""

    def divide(self, positions: Sequence[Position], instance_id: int, parallelism: int) -> Position:
        """Return the start position of an instance after a change of parallelism, or None for the start of the input.

        A source whose instances share the work implements this method, so that positions follow their part of the
        input. Otherwise, each instance continues from the last position of the instance with the same number.

        Args:
            positions: positions of all instances before the change, by number; None for an instance without a position.
            instance_id: number of the new instance.
            parallelism: new number of instances.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement divide")


class BatchSource(Connector, ABC):
    """Reads records in tasks. One instance discovers the tasks, and all instances share them.

    A task is done when its records are durable. If it fails, another instance restarts it.
    """

    @abstractmethod
    def discover(self) -> Iterable[bytes] | Awaitable[Iterable[bytes]]:
        """Return the current tasks, each as bytes for `prepare`. Called at each trigger."""

    @abstractmethod
    def prepare(self, task: bytes) -> Awaitable[None] | None:
        """Start a task."""

    @abstractmethod
    def read(self) -> Read | Awaitable[Read]:
        """Return the next record of the task or a batch of records, or None at the end of the task."""


class Trigger(ABC):
    """Decides when a batch source discovers its tasks. Created in instance 0, without arguments.

    Attributes:
        is_first: whether to also discover when the source is created, updated or restarted.
    """

    is_first: bool = False

    @abstractmethod
    def open(self, config: Mapping[str, Any]) -> None:
        """Read ``discoveryTriggererConfig``."""

    @abstractmethod
    def next_after(self, moment_s: float) -> float | None:
        """Return the next discovery time after a moment, both in seconds since 1970, or None."""


class Sink(Connector):
    """Writes records to another system, through `write` or `write_batch`.

    A record is acknowledged when the call that received it has returned.
    """

    def batching(self, config: Any) -> Batching:
        """Return the batch limits of `write_batch`."""
        return Batching()

    def write(self, record: Record) -> Awaitable[None] | None:
        """Write one record durably."""
        raise NotImplementedError(f"{type(self).__name__} must implement write or write_batch")

    def write_batch(self, records: Sequence[Record]) -> Awaitable[None] | None:
        """Write all records durably and in order, or raise.

        Raises:
            RecordRefused: a record will never be accepted.
            Retry: no record is known to be written; the same records are passed again.
        """
        raise NotImplementedError

    def idle(self) -> Awaitable[None] | None:
        """Do periodic work. Called about once a second while no records arrive."""
