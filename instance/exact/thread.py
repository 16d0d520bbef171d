"""The thread that user code runs on under EFFECTIVELY_ONCE: one input entry at a time, whole or not at all.

Entries are neither joined nor cut: the outputs and changes of an input entry belong together, and so they are its unit
of failure too. A message that fails ends the thread, and with it the instance: nothing of its entry leaves, and the
instance that starts afterwards gets the entry again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ...client.consumers.received import ReceivedEntry
from ...errors import MagnetarError, ProtocolError
from ...wire.pulsar_api_pb2 import SingleMessageMetadata
from ...wire.topic_name import parse_topic_name
from ..batch_call import BatchCall, Blame, Failure
from ..function_context import FunctionContext
from ..gate import Gate
from ..markers import HeaderMaker
from ..publish_request import PublishRequest
from ..state.session import StateSession
from ..stats import InstanceStats, format_error
from ..stopping import InstanceStopping
from ..unit import Unit
from .entries import ENTRY_BYTES_MAX, EntryMaker, is_one_entry
from .work import Result, Source, position_in

STEP_S = 0.005
_STEP_MESSAGES_MAX = 1000


class PoisonMessage(MagnetarError):
    """A message that the function cannot process; the instance stops at it."""


@dataclass(slots=True)
class Loaded:
    """The loaded function, ready to be called.

    Attributes:
        batch_call: calls it.
        context: what it gets as second argument; None if it takes none.
        headers: makes metadata of outputs.
        has_output: whether there is an output topic.
        session: the function's state; None if it has no context or there is no state store.
        maker: makes its output entries.
        can_commit: whether there is a state store to commit to.
    """

    batch_call: BatchCall
    context: FunctionContext | None
    headers: HeaderMaker
    has_output: bool
    session: StateSession | None
    maker: EntryMaker
    can_commit: bool


class Listener(Protocol):
    """What the thread tells, from the thread itself."""

    def loaded(self, loaded: Loaded) -> None:
        """The function is loaded; entries may come."""

    def ship(self, result: Result) -> None:
        """Take the result of an entry."""

    def skipped(self, source: Source, entry: ReceivedEntry) -> None:
        """Take back an entry that was not processed."""

    def reported(self, text: str) -> None:
        """Write a line about a failure to the log."""

    def ended(self, error: BaseException | None) -> None:
        """The thread ends; with an error if the function cannot go on."""


class ExactThread(threading.Thread):
    """Runs one function.

    Attributes:
        inbox: entries to process; None ends the thread.
        published: what the context published for the entry at hand.
        needs_commit: set once an entry could not go directly; from then on none does.
    """

    def __init__(
        self, name: str, load: Callable[[], Loaded], listener: Listener, stats: InstanceStats, gate: Gate
    ) -> None:
        """Prepare.

        Args:
            name: of the thread.
            load: imports and makes the function, on this thread.
            listener: is told what happens.
            stats: counts.
            gate: bounds the outputs that are on their way.
        """
        super().__init__(name=name, daemon=True)
        self.inbox: queue.SimpleQueue[tuple[Source, ReceivedEntry] | None] = queue.SimpleQueue()
        self.published: list[PublishRequest] = []
        self.needs_commit = False
        self._at_hand: tuple[Source, ReceivedEntry] | None = None
        self._is_stopping = False
        self._load = load
        self._listener = listener
        self._stats = stats
        self._gate = gate
        self._step = 1  # messages between two looks around; nothing is known of the function yet

    def run(self) -> None:
        """Load the function and call it until told to stop."""
        error: BaseException | None = None
        try:
            loaded = self._load()
            self._listener.loaded(loaded)
            while (item := self.inbox.get()) is not None:
                if self._is_stopping:
                    self.inbox.put(item)
                    break
                self._at_hand = item
                self._process(loaded, *item)
                self._at_hand = None
        except InstanceStopping:
            pass  # the entry at hand comes again
        except BaseException as raised:  # noqa: BLE001  SystemExit of user code too: it ends the instance, with a reason
            error = raised
        self._listener.ended(error)

    def request_stop(self) -> None:
        """End the thread as soon as the function lets it (from any thread)."""
        self._is_stopping = True
        self.inbox.put(None)
        self._gate.close()

    def unprocessed(self) -> list[tuple[Source, ReceivedEntry]]:
        """Return the entries that nothing was made of (once the thread has ended)."""
        items = [] if self._at_hand is None else [self._at_hand]
        while not self.inbox.empty():
            item = self.inbox.get()
            if item is not None:
                items.append(item)
        return items

    def _process(self, loaded: Loaded, source: Source, entry: ReceivedEntry) -> None:
        if source.is_over:
            self._listener.skipped(source, entry)
            return
        result = Result(source, entry, position_in(entry))
        unit = self._unit_of(source, entry)
        if unit is not None:
            needs_headers = loaded.has_output and loaded.headers.needs_headers(entry)
            headers: list[SingleMessageMetadata | None] | None = [] if needs_headers else None
            outputs = self._call(loaded, source, unit, headers)
            self._complete(loaded, result, outputs, headers)
        if not self._gate.enter(result.messages, result.size):
            raise InstanceStopping
        self._listener.ship(result)

    def _unit_of(self, source: Source, entry: ReceivedEntry) -> Unit | None:
        """Return the messages of an entry, None if there is nothing to do for any."""
        if entry.metadata.num_chunks_from_msg > 1:
            raise PoisonMessage(
                f"entry {_place(source, entry)} is a piece of a chunked message, which EFFECTIVELY_ONCE does not"
                " support; publish the input without chunking, or use ATLEAST_ONCE"
            )
        try:
            payloads = entry.payloads
            indexes = entry.wanted_indexes() if entry.ack_set or b"" in payloads else None
        except ProtocolError as error:
            text = f"entry {_place(source, entry)} is damaged and was dropped: {error}"
            self._stats.system_exception(text, _now_ms())
            self._listener.reported(text)
            return None
        self._stats.total.received += len(payloads) if indexes is None else len(indexes)
        if indexes == []:
            return None
        unit = Unit()
        unit.add(entry, indexes)
        return unit

    def _call(
        self, loaded: Loaded, source: Source, unit: Unit, headers: list[SingleMessageMetadata | None] | None
    ) -> list[bytes]:
        """Call the function on all messages of an entry and return its outputs."""
        outputs: list[bytes] = []
        count, position = len(unit), 0
        while position < count:
            if self._is_stopping:
                raise InstanceStopping
            began_s = time.perf_counter()
            end = min(position + self._step, count)
            messages = unit.messages if end - position == count else unit.messages[position:end]
            if loaded.context is not None:
                loaded.context.enter(loaded.batch_call.place, unit, position)
            results = loaded.batch_call.run(messages, source.serde)
            busy_s = time.perf_counter() - began_s
            self._stats.count_run(len(results.outputs), len(results.failures), busy_s, _now_ms())
            if results.failures:
                self._stop_at(source, unit, position, min(results.failures, key=lambda failure: failure.position))
            if loaded.has_output:
                if headers is not None:
                    for offset, output in enumerate(results.outputs):
                        if output is not None:
                            headers.append(loaded.headers.header(*unit.locate(position + offset)))
                outputs += [output for output in results.outputs if output is not None]
            fitting = int(STEP_S / busy_s * (end - position)) if busy_s > 0 else _STEP_MESSAGES_MAX
            self._step = max(1, min(fitting, max(self._step, end - position) * 8, _STEP_MESSAGES_MAX))
            position = end
        if loaded.context is not None:
            loaded.context.leave()
        return outputs

    def _stop_at(self, source: Source, unit: Unit, base: int, failure: Failure) -> None:
        """Raise for the message that failed."""
        entry, index = unit.locate(base + failure.position)
        text = format_error(failure.error)
        if failure.blame is Blame.USER:
            self._stats.user_exception(text, _now_ms())
        else:
            self._stats.system_exception(text, _now_ms())
        message = f"message {_position(entry)}:{index} of {source.topic}"
        self._listener.reported(f"{message} failed: {text}")
        raise PoisonMessage(
            f"{message} failed, and under EFFECTIVELY_ONCE nothing behind it is processed before it is; correct the"
            f" function (functions update), or leave this entry out (functions reset-cursor {_behind(source, entry)}):"
            f" {text}"
        ) from failure.error

    def _complete(
        self,
        loaded: Loaded,
        result: Result,
        outputs: list[bytes],
        headers: list[SingleMessageMetadata | None] | None,
    ) -> None:
        """Put outputs and changes into the result, and say which way it goes."""
        result.published, self.published = self.published, []
        if loaded.session is not None:
            result.changes = loaded.session.take()
        largest = max(map(len, outputs), default=0)
        if largest > ENTRY_BYTES_MAX:
            raise PoisonMessage(
                f"an output of {largest} bytes of entry {_place(result.source, result.entry)} exceeds the limit of"
                f" {ENTRY_BYTES_MAX} bytes for a message; return less, or store it elsewhere and return where"
            )
        if result.changes is not None or result.published or not is_one_entry(outputs, headers):
            self.needs_commit = True
        if self.needs_commit and not loaded.can_commit:
            raise PoisonMessage(
                f"entry {_place(result.source, result.entry)} has outputs for several entries or topics, which"
                " EFFECTIVELY_ONCE commits through the state store, and there is none; set stateStorageServiceUrl, or"
                " return less and publish to the output topic only"
            )
        result.is_direct = not self.needs_commit
        loaded.maker.make(result, outputs, headers)


def _place(source: Source, entry: ReceivedEntry) -> str:
    return f"{_position(entry)} of {source.topic}"


def _position(entry: ReceivedEntry) -> str:
    return f"{entry.message_id.ledger_id}:{entry.message_id.entry_id}"


def _behind(source: Source, entry: ReceivedEntry) -> str:
    """Return the flags that have a function go on behind an entry."""
    topic, at = parse_topic_name(source.topic), entry.message_id
    partition = f":{topic.partition}" if topic.partition >= 0 else ""
    return f"--topic {topic.base.text} --message-id {at.ledger_id}:{at.entry_id + 1}{partition}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
