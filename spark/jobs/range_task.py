"""A task of a message function: reads a range of entries, calls the function, and publishes its outputs.

Design: everything happens in one Python worker, entry by entry, without passing rows through the JVM. The outputs of an
input entry form one entry, or several if they are too large. Its partition and sequence id are derived from the
position of the input, and its producer name from the plan and the position's segment. A repeated attempt therefore
sends the same entries under the same ids, and the broker drops the duplicates.

The function runs on its own thread (`user_code`) while the task's event loop sends outputs. Errors that would recur in
another attempt are reported instead of raised, because Spark would retry four times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import uvloop

from ...client import AsyncClient
from ...client.config import ClientConfig
from ...client.consumers.received import ReceivedEntry
from ...client.producers.outgoing import encode_entry, seal_entry
from ...errors import MagnetarError
from ...instance.batch_call import Blame, Failure
from ...instance.endpoint_settings import compression_of
from ...instance.exact.entries import ENTRY_BYTES_MAX, cut
from ...instance.function_thread import collect
from ...instance.identity import producer_name
from ...instance.stats import format_error
from ...instance.unit import Unit
from ...wire.message_id import MessageId
from ...wire.position_sequence import Segment, segment_of
from ...wire.topic_name import TopicName, parse_topic_name
from ..source.options import SEND_TIMEOUT_MS, ReadOptions
from ..source.publishing import PublishedBefore, TaskPublisher, partition_names
from ..source.range_reader import Entry, RangeReader
from .plans import RESET_REMEDY, Task
from .progress import Recorded
from .user_code import Shipment, WorkerFunction, worker_function

PIECE_S = 0.02
PIECE_BYTES = 1024 * 1024
_STORE_REMEDY = (
    "the state store is older than the topics, so new outputs would be dropped as duplicates: use "
    "functions reset-cursor to set where the function continues"
)


@dataclass(frozen=True)
class TaskFailure:
    """Error that would recur in another attempt of the task.

    Attributes:
        text: error message, with a traceback if user code raised.
        is_user_error: whether the function raised.
    """

    text: str
    is_user_error: bool


@dataclass(frozen=True)
class TaskResult:
    """The outcome of a task.

    Attributes:
        messages: number of messages read.
        outputs: number of messages stored by this attempt.
        duplicates: number of messages stored by earlier attempts.
        failure: None on success.
        metrics: sum and count of the function's metrics, by name.
    """

    messages: int
    outputs: int = 0
    duplicates: int = 0
    failure: TaskFailure | None = None
    metrics: Recorded = field(default_factory=dict)


class SealedEntry(NamedTuple):
    """An encoded output entry and its destination."""

    topic: str
    segment: Segment
    sequence: int
    messages: int
    payload: bytes


class CannotProcess(MagnetarError):
    """The function failed on a message, which ends the task.

    Attributes:
        failure: the task's failure.
    """

    def __init__(self, failure: TaskFailure) -> None:
        super().__init__(failure.text)
        self.failure = failure


def run_task(shipment: Shipment, task: Task, directory: Path, *, is_first: bool = False) -> TaskResult:
    """Execute a task and return its outcome once all its outputs are stored.

    Args:
        shipment: data shared by all tasks of the run.
        task: task of the plan.
        directory: directory for the function's package on this machine.
        is_first: whether this is the first attempt of both the plan and the task.
    """
    try:
        function = worker_function(shipment, directory)
    except Exception as error:  # noqa: BLE001  user code may raise anything
        return TaskResult(0, failure=TaskFailure(f"cannot load the function: {format_error(error)}", True))
    function.stats.take_recorded()  # discard metrics of an abandoned attempt
    running = _RunningTask(function, task, shipment.outputs, is_first=is_first)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(running.run())
    except CannotProcess as error:
        return running.result(error.failure)
    except PublishedBefore as error:
        return running.result(TaskFailure(f"{error}, which is not in any plan: {_STORE_REMEDY}", False))
    except MagnetarError as error:
        return running.result(TaskFailure(f"{task.wanted}: {type(error).__name__}: {error}", False))
    return running.result(None)


class _RunningTask:
    """One attempt of one task."""

    def __init__(self, function: WorkerFunction, task: Task, outputs: int, *, is_first: bool) -> None:
        spec = function.spec
        self.function = function
        self.task = task
        self.messages = 0
        self._topic = parse_topic_name(task.wanted.topic)
        self._name = f"{producer_name(spec, self._topic.text)}/{task.slot}"
        self._serde = function.serdes[self._topic.base.text]
        self._compression = compression_of(spec)
        self._targets = partition_names(spec.details.sink.topic, outputs) if function.has_output else []
        # On a first attempt, no messages can exist under these names from here on. If the broker has higher ids, the
        # state store is older than the topics, and new outputs would be dropped as duplicates.
        start = task.wanted.start if is_first else None
        self._publisher = TaskPublisher(
            self._name, SEND_TIMEOUT_MS, spec.admin_url, start=start, security=spec.client_security
        )

    def result(self, failure: TaskFailure | None) -> TaskResult:
        recorded = self.function.stats.take_recorded()
        return TaskResult(self.messages, self._publisher.stored, self._publisher.duplicates, failure, recorded)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        thread = self.function.thread
        pieces = self._pieces()
        upcoming = loop.run_in_executor(thread, next, pieces, None)
        try:
            spec = self.function.spec
            config = ClientConfig(description="spark", **spec.client_security.to_dict())
            async with AsyncClient(spec.service_url, config, admin_url=spec.admin_url or None) as client:
                while (piece := await upcoming) is not None:
                    upcoming = loop.run_in_executor(thread, next, pieces, None)
                    for entry in piece:
                        await self._send(client, entry)
                    self._publisher.check()
                await self._publisher.finish()
        finally:
            # The next task reuses the thread, so wait until the function returns, and close the reader on it.
            await asyncio.wait([upcoming])
            await loop.run_in_executor(thread, pieces.close)

    async def _send(self, client: AsyncClient, entry: SealedEntry) -> None:
        payload, sequence, count = entry.payload, entry.sequence, entry.messages
        await self._publisher.send(
            client, entry.topic, count, lambda producer: producer.send_sealed(payload, sequence, count), entry.segment
        )

    def _pieces(self) -> Generator[list[SealedEntry], None, None]:
        """Yield output entries in small lists as they are created. Runs on the function's thread."""
        options = ReadOptions(
            service_url=self.function.spec.service_url, security=self.function.spec.client_security, remedy=RESET_REMEDY
        )
        reader = RangeReader(self.task.wanted, options)
        piece: list[SealedEntry] = []
        size, due_s = 0, time.monotonic() + PIECE_S
        for entry in reader.entries():
            for made in self._outputs_of(entry):
                piece.append(made)
                size += len(made.payload)
            if size >= PIECE_BYTES or time.monotonic() >= due_s:
                yield piece
                piece = []
                size, due_s = 0, time.monotonic() + PIECE_S
        yield piece

    def _outputs_of(self, entry: Entry) -> Iterator[SealedEntry]:
        received = _received(entry, self._topic)
        payloads = received.payloads
        indexes = received.wanted_indexes() if b"" in payloads else None
        if indexes == []:
            return
        unit = Unit()
        unit.add(received, indexes)
        outputs, headers = self._call(unit, received)
        self.messages += len(unit)
        if not outputs:
            return
        position = entry.position
        segment = segment_of(position)
        name = segment.producer_name(self._name)
        # Partition, name and id depend only on the input's position, so that every attempt sends the same entries.
        topic = self._targets[entry.position.entry_id % len(self._targets)]
        now_ms = time.time_ns() // 1_000_000
        for number, (some, some_headers) in enumerate(cut_outputs(outputs, headers)):
            sequence = segment.sequence_id(position, number)
            encoded = encode_entry(some, some_headers, compression=self._compression)
            yield SealedEntry(topic, segment, sequence, len(some), seal_entry(encoded, name, sequence, now_ms))

    def _call(self, unit: Unit, entry: ReceivedEntry) -> tuple[list[bytes], list[bytes] | None]:
        """Call the function on the messages of an entry, and return its outputs and their metadata."""
        function = self.function
        if function.context is not None:
            function.context.enter(function.call.place, unit, 0)
        try:
            results = function.call.run(unit.messages, self._serde)
        except SystemExit as error:
            raise self._cannot(entry, None, error, True) from error
        finally:
            if function.context is not None:
                function.context.leave()
        if results.failures:
            first: Failure = min(results.failures, key=lambda failure: failure.position)
            raise self._cannot(
                entry, unit.locate(first.position)[1], first.error, first.blame is Blame.USER
            ) from first.error
        if not function.has_output:
            return [], None
        made = function.headers.of_unit(unit)
        outputs: list[bytes] = []
        headers: list[bytes] = []
        collect(results, outputs, headers, made, 0)
        return outputs, headers or None

    def _cannot(
        self, entry: ReceivedEntry, index: int | None, error: BaseException, is_user_error: bool
    ) -> CannotProcess:
        ledger_id, entry_id = entry.message_id[:2]
        place = f"{ledger_id}:{entry_id}" if index is None else f"{ledger_id}:{entry_id}:{index}"
        text = f"message {place} of {self._topic} failed: {format_error(error)}"
        return CannotProcess(TaskFailure(text, is_user_error))


def cut_outputs(payloads: list[bytes], headers: list[bytes] | None) -> Iterator[tuple[list[bytes], list[bytes] | None]]:
    """Split the outputs of an input entry into entries within the size limits; usually there is one.

    Raises:
        MessageTooLarge: a single output exceeds the limit.
    """

    def refusal(bytes_: int) -> str:
        return (
            f"output of {bytes_} bytes exceeds the message limit of {ENTRY_BYTES_MAX} bytes: return "
            "less data, or store the data elsewhere and return its location"
        )

    return cut(payloads, headers, refusal)


def _received(entry: Entry, topic: TopicName) -> ReceivedEntry:
    """Return an entry in the form used by instances."""
    metadata = entry.metadata
    metadata.ClearField("compression")  # already decompressed
    return ReceivedEntry(
        MessageId(*entry.position, topic.partition),
        topic.text,
        metadata,
        0,
        metadata.num_messages_in_batch,
        (entry.body, 0, len(entry.body)),
    )
