"""Sources and sinks: what a connector is written as.

A source brings records in, and a sink takes them out. Both have a ``config``, a class of `connector_config.option`
fields that documents and checks what they are created with; every method may be ``async``.

    class Ticker(Source):
        config = TickerConfig

        def open(self, config, context):
            self.number = context.position or 0          # where the last one stood, None the first time
            self.pause_s = 1 / config.rate

        def read(self):
            time.sleep(self.pause_s)
            self.number += 1
            return Record(f"tick {self.number}")

        def snapshot(self):
            return self.number

An instance calls one method at a time, always from the same thread. What goes wrong is said by an exception: `Retry`
for a system that is away, `RecordRefused` for a record that will never be taken, anything else ends the instance with
the reason in its status, and it is started again.
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
"""Where a source stands: anything that JSON can hold."""


@dataclass(slots=True)
class Record:
    """One message on its way in or out.

    Attributes:
        value: what a source's output SerDe turns into bytes, and what a sink's input SerDe made of them.
        key: the partition key.
        properties: texts beside the value.
        event_time_ms: when it happened, in milliseconds since 1970; 0 if that is not known.
        topic: of a sink's record: the topic that it came from. Of a source's: where to send it instead of the output.
        message_id: of a sink's record: its place in the topic, as text.
        sequence: of a sink's record: its number in its topic, made of its place: it grows, and is the same when the
            record comes again. Below 2^63; 0 for a place that gives no such number, which is none of EFFECTIVELY_ONCE.
        partition: of a source's record: the part of the input that it belongs to. The order is kept within one.
        acknowledge: of a source's record: called when it is durable, for systems that want each message confirmed; in
            the order in which records were read. With EFFECTIVELY_ONCE the position behind it is kept by then, too. It
            is not called where the instance dies before: what `ConnectorContext.position` is behind is durable.
        refuse: of a source's record: called with the reason if it can never be a message, because it is too large for
            example. Use it to answer the sender with an error. Without it the record goes to the dead-letter topic of
            the source, and is acknowledged when it is durable there.
        fail: of a source's record: called when it could not be stored, so that it comes again. Neither is called any
            more once the connector was closed, and be it to be opened anew: what is not confirmed comes again then.
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
    """What a source has read and cannot make a valid record of.

    Return it from `Source.read` or `BatchSource.read` in the place of the record, so that one bad value does not stop
    the source. It is counted in the status and logged, and goes to the dead-letter topic of the source; with
    `Record.refuse` the sender receives the reason instead. Its value is what was read, as far as that is known.

    Attributes:
        reason: why it is not valid, in one line.
    """

    reason: str = field(kw_only=True)


class Retry(MagnetarError):
    """The other system is away or busy: what was called is called again, after a pause that grows.

    Args:
        cause: what happened, in one line; the status of the instance shows it as "retrying".
        after_s: how long to wait at least.
    """

    def __init__(self, cause: str, after_s: float = 0.0) -> None:
        super().__init__(cause)
        self.after_s = after_s


class RecordRefused(MagnetarError):
    """The other system will never take this record: it goes to the dead-letter topic, and the others go on.

    Args:
        cause: what happened, in one line.
        index: which record of the batch that `Sink.write_batch` was given.
        written: how many records at the beginning of the batch are durable; all others but this one are given again.
    """

    def __init__(self, cause: str, index: int = 0, written: int = 0) -> None:
        super().__init__(cause)
        self.index = index
        self.written = written


class EndOfInput(MagnetarError):
    """A source has nothing more, and never will: the instance stays, idle, until it is stopped."""


class ConnectorContext(MetricsContext, ABC):
    """What a connector may ask and do; from its own thread.

    Attributes:
        position: of a source: what `Source.snapshot` returned for the last record that is durable, None the first time.
            A source that is opened anew after a `Retry` finds all that it has handed over durable.
        name: the connector's, ``tenant/namespace/name``.
        instance_id: which of the instances this is, from 0 on.
        parallelism: how many instances there are.
        incarnation: names the connector and its creation: one of the same name that is created later has another, while
            an update or a restart changes nothing.
        is_exact: whether it was created with EFFECTIVELY_ONCE.
        logger: its lines are those of the instance's log.
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
        """Record a value of a metric of the connector's own."""

    @abstractmethod
    def secret(self, name: str) -> str | None:
        """Return a secret that the connector was created with, None if there is none of that name."""

    @abstractmethod
    def get_state(self, key: str) -> bytes | None:
        """Return what is kept under a key, None if nothing is."""

    @abstractmethod
    def put_state(self, key: str, value: str | bytes) -> None:
        """Keep a value under a key."""

    @abstractmethod
    def is_stopping(self) -> bool:
        """Return whether the instance is to stop; a `read` or `write` that takes long looks from time to time."""


class SourceContext(ConnectorContext):
    """The context of a source."""


class SinkContext(ConnectorContext):
    """The context of a sink."""

    @abstractmethod
    def pause(self, topic: str) -> None:
        """Give nothing more of an input topic until `resume`, or until the sink is opened anew; other inputs go on."""

    @abstractmethod
    def resume(self, topic: str) -> None:
        """Go on with an input topic, whatever came meanwhile first."""


class Batching(NamedTuple):
    """How many records a sink is given at once: as many as there are, and no more than this.

    Attributes:
        records: at most.
        size: bytes at most, of the messages as they came; at least one message is given.
        time_s: how long to wait for more once there is one; 0 to give what is there.
    """

    records: int = 1000
    size: int = 1 << 20
    time_s: float = 0.0


Read: TypeAlias = "Record | Sequence[Record] | None"


class Connector:
    """What sources and sinks have in common. One object is made for each instance, without arguments."""

    config: ClassVar[type[Any]] = dict
    """The class of its configuration; see `connector_config.option`. With ``dict`` it takes any fields, unchecked."""

    def check(self, config: Any) -> None:
        """Refuse settings that do not go together, or that no type shows to be wrong, such as a malformed URL.

        Called when the connector is created, before anything is opened, and again in each instance; it asks nobody.

        Raises:
            InvalidConfig: with the name of the field and what it may be.
        """

    def not_effectively_once(self, config: Any) -> str:
        """Return why the connector cannot be EFFECTIVELY_ONCE with a configuration; empty if it can.

        A sink can if writing a record a second time changes nothing, or if it keeps the record's `Record.sequence` in
        the target's own transaction. A source can if its `Source.snapshot` is complete, and what follows a position is
        always the same records in the same order.
        """
        return f"{type(self).__name__} says nothing of records that come again, which would be there twice"

    def stored_defaults(self, config: Any) -> Mapping[str, Any]:
        """Return settings to write into the record of a new connector that was created without them.

        A connector whose default changes stores the new one here. A record without the setting is older than the
        change and keeps the earlier default.
        """
        return {}

    def notice(self, config: Any) -> str:
        """Return one line that create, update and localrun show, such as a warning; empty for none."""
        return ""

    def open(self, config: Any, context: Any) -> Awaitable[None] | None:
        """Connect; called once, before everything else."""

    def close(self) -> Awaitable[None] | None:
        """Let go of everything; called once, whatever happened before."""


class Source(Connector, ABC):
    """Brings records in."""

    @abstractmethod
    def read(self) -> Read | Awaitable[Read]:
        """Return the next record, or a batch of them; None or an empty batch if there is none yet.

        It may wait, but not longer than a second or so: a stop waits for it.
        """

    def snapshot(self) -> Position:
        """Return where the source stands behind everything that `read` has returned; None if it keeps no position.

        Asked for after each `read`, also one that returned nothing; kept once all that was read before it is durable.
        JSON of at most 1 MiB.
        """
        return None

    def not_parallel(self, config: Any) -> str:
        """Return why a configuration allows one instance only; empty if several can share the work."""
        return ""

    def divide(self, positions: Sequence[Position], instance_id: int, parallelism: int) -> Position:
        """Return where one instance begins after the parallelism has changed; None to begin anew.

        A source whose instances share the work implements this, so that positions move with what is read. Without it
        each instance continues from the last position of its own number.

        Args:
            positions: of all instances before the change, by number; None for one that had none.
            instance_id: number of the new instance.
            parallelism: how many instances there are now.
        """
        raise NotImplementedError(f"{type(self).__name__} does not divide positions")


class BatchSource(Connector, ABC):
    """Brings records in by tasks: one instance discovers what there is to do, and all share the work.

    A task is done when its records are durable; until then another instance begins it anew.
    """

    @abstractmethod
    def discover(self) -> Iterable[bytes] | Awaitable[Iterable[bytes]]:
        """Return the tasks that there are now, each as bytes that `prepare` understands; called at each trigger."""

    @abstractmethod
    def prepare(self, task: bytes) -> Awaitable[None] | None:
        """Begin with a task."""

    @abstractmethod
    def read(self) -> Read | Awaitable[Read]:
        """Return the next record of the task, or a batch of them; None when there are no more."""


class Trigger(ABC):
    """Says when a batch source discovers its tasks; made for instance 0, without arguments.

    Attributes:
        is_first: whether it also does when the source was created, updated, or started again.
    """

    is_first: bool = False

    @abstractmethod
    def open(self, config: Mapping[str, Any]) -> None:
        """Take ``discoveryTriggererConfig``."""

    @abstractmethod
    def next_after(self, moment_s: float) -> float | None:
        """Return the next time behind a moment, both in seconds since 1970; None if there is none."""


class Sink(Connector):
    """Takes records out. It has `write` or `write_batch`.

    A record is acknowledged when the call that it was given to has returned.
    """

    def batching(self, config: Any) -> Batching:
        """Return how many records `write_batch` is given at once."""
        return Batching()

    def write(self, record: Record) -> Awaitable[None] | None:
        """Write one record, durably."""
        raise NotImplementedError(f"{type(self).__name__} has neither write nor write_batch")

    def write_batch(self, records: Sequence[Record]) -> Awaitable[None] | None:
        """Write records in their order, durably; all of them, or raise.

        Raises:
            RecordRefused: one of them will never be taken.
            Retry: nothing is known to be written; the same records are given again.
        """
        raise NotImplementedError

    def idle(self) -> Awaitable[None] | None:
        """Do what is due by time; called about once a second while no records come."""
