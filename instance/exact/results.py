"""Create results with EFFECTIVELY_ONCE on the function's thread: one per input entry, complete or not at all.

Entries are neither joined nor split: the outputs and changes of an input entry belong together, so an entry is also the
unit of failure. A failed message ends the thread and thereby the instance: none of its entry's outputs are sent, and
the next instance reprocesses the entry.

Results of queued entries are sent together: the event loop is woken once for them and sends their outputs in one piece,
and the broker stores and confirms them as one group. The thread does not wait for more entries, and once the first
result is `SHIP_AFTER_S` old, it ships the results before it starts another entry. It ships immediately if the function
may wait for the outcome: if it has published a message, or reads a counter that one of the results incremented.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import cast

from ...client.consumers.received import ReceivedEntry
from ...errors import InvalidConfig, ProtocolError
from ...wire.topic_name import parse_topic_name
from ..async_calls import OneCall, current_call
from ..batch_call import Failure
from ..function_thread import Calls, FunctionThread, Source, collect
from ..gate import Gate
from ..publish_request import PublishRequest
from ..state.session import StateSession, outside_of_call
from ..stopping import InstanceStopping, PoisonMessage
from ..unit import Unit
from .activation import Activation
from .entries import ENTRY_BYTES_MAX, EntryMaker, is_one_entry
from .work import Result, position_in

PUBLISHES_WITH_INPUT = "with EFFECTIVELY_ONCE, published messages belong to the input being processed"
SHIP_AFTER_S = 0.010
GROUP_MESSAGES_MAX = 1000
GROUP_BYTES_MAX = 128 * 1024


class ResultMaker:
    """A `function_thread.Maker` that creates results.

    Attributes:
        published: messages published through the context for the current entry.
        needs_commit: whether results must be committed, because one could not be sent directly.
    """

    def __init__(
        self,
        entries: EntryMaker,
        can_commit: bool,
        gate: Gate,
        ship: Callable[[Sequence[Result]], None],
        skip: Callable[[Activation, ReceivedEntry], None],
    ) -> None:
        """Create a result builder.

        Args:
            entries: creates output entries.
            can_commit: whether there is a state store to commit to.
            gate: limits the outputs in flight.
            ship: receives the results of entries in order, on the function's thread.
            skip: receives an unprocessed entry, on the function's thread.
        """
        self.published: list[PublishRequest] = []
        self.needs_commit = False
        self._session: StateSession | None = None
        self._made: list[Result] = []  # ordered results to be sent together
        self._entries = entries
        self._can_commit = can_commit
        self._gate = gate
        self._ship = ship
        self._skip = skip

    @property
    def session(self) -> StateSession | None:
        """The function's state, or None without a context or a state store."""
        return self._session

    @session.setter
    def session(self, session: StateSession | None) -> None:
        self._session = session
        if session is not None:
            session.before_wait = self._ship_made

    def process(self, thread: FunctionThread, calls: Calls, source: Source, entry: ReceivedEntry) -> None:
        """Process an entry together with queued ones."""
        messages = size = 0
        ends_s = time.perf_counter() + SHIP_AFTER_S
        try:
            while True:
                activation = cast(Activation, source)
                messages += entry.num_messages
                size += entry.body_bytes
                is_awaited = False
                if activation.is_over:
                    self._skip(activation, entry)
                else:
                    result = self._result_of(thread, calls, activation, entry)
                    self._made.append(result)
                    size += result.size
                    is_awaited = bool(result.published)
                thread.take_over()  # the entry is now in `_made`, or skipped
                is_full = messages >= GROUP_MESSAGES_MAX or size >= GROUP_BYTES_MAX or time.perf_counter() > ends_s
                if is_full or is_awaited or thread.is_stopping or (item := thread.poll()) is None:
                    break
                thread.hand_over(item)
                source, entry = item
        finally:  # also if an entry has failed, because earlier ones are done
            self._ship_made()

    def publish(self, request: PublishRequest) -> None:
        """Accept a message published through the context for the current entry.

        Raises:
            InvalidConfig: the message comes from a task whose call has ended.
        """
        call = current_call()
        if call is None:
            self.published.append(request)
        elif call.is_over:
            raise InvalidConfig(outside_of_call("publish", PUBLISHES_WITH_INPUT))
        else:
            call.published.append(request)

    def take_call(self, call: OneCall) -> None:
        """Add the messages published by a call of an async function, in message order."""
        self.published += call.published

    def _ship_made(self) -> None:
        """Ship the collected results.

        Raises:
            InstanceStopping: the gate is full and the instance is stopping; the entries are skipped.
        """
        results, self._made = self._made, []
        if not results:
            return
        if not self._gate.enter(sum(one.messages for one in results), sum(one.size for one in results)):
            for one in results:
                self._skip(one.source, one.entry)
            raise InstanceStopping
        self._ship(results)

    def _result_of(self, thread: FunctionThread, calls: Calls, source: Activation, entry: ReceivedEntry) -> Result:
        result = Result(source, entry, position_in(entry))
        unit = self._unit_of(thread, source, entry)
        if unit is not None:
            outputs, headers = self._call(thread, calls, source, unit)
            self._complete(result, outputs, headers)
        return result

    def _unit_of(self, thread: FunctionThread, source: Source, entry: ReceivedEntry) -> Unit | None:
        """Return the messages of an entry to process, or None if there are none."""
        if entry.metadata.num_chunks_from_msg > 1:
            raise PoisonMessage(
                f"entry {_place(source, entry)} is a piece of a chunked message, which EFFECTIVELY_ONCE does not"
                " support: publish the input without chunking, or use ATLEAST_ONCE"
            )
        try:
            indexes = thread.read(entry)
        except ProtocolError as error:
            text = f"dropped damaged entry {_place(source, entry)}: {error}"
            thread.damaged(text, text)
            return None
        if indexes is not None and not indexes:
            return None
        unit = Unit()
        unit.add(entry, indexes)
        return unit

    def _call(
        self,
        thread: FunctionThread,
        calls: Calls,
        source: Source,
        unit: Unit,
    ) -> tuple[list[bytes], list[bytes] | None]:
        """Call the function on all messages of an entry; return the outputs, and their attributes or None."""
        made = calls.headers.of_unit(unit) if calls.has_output else None
        outputs: list[bytes] = []
        headers: list[bytes] = []
        end = 0
        for position, results, busy_s in thread.steps(calls, source, unit):
            thread.count(results, busy_s)
            end = position + results.messages
            if results.failures:
                self._stop_at(thread, source, unit, position, min(results.failures, key=lambda one: one.position))
            if calls.has_output:
                collect(results, outputs, headers, made, position)
        if end < len(unit):
            raise InstanceStopping
        if calls.context is not None:
            calls.context.leave()
        return outputs, headers or None

    def _stop_at(self, thread: FunctionThread, source: Source, unit: Unit, base: int, failure: Failure) -> None:
        """Raise PoisonMessage for a failed message."""
        entry, index = unit.locate(base + failure.position)
        message = f"message {position_in(entry)}:{index} of {source.topic}"
        text = thread.failed(failure, message)
        raise PoisonMessage(
            f"{message} failed, and later messages wait for it with EFFECTIVELY_ONCE: fix the function (functions"
            f" update), or skip this entry (functions reset-cursor {_behind(source, entry)}):"
            f" {text}"
        ) from failure.error

    def _complete(
        self,
        result: Result,
        outputs: list[bytes],
        headers: list[bytes] | None,
    ) -> None:
        """Add outputs and changes to the result, and decide whether it is sent directly."""
        result.published, self.published = self.published, []
        if self._session is not None:
            result.changes = self._session.take()
        largest = max(map(len, outputs), default=0)
        if largest > ENTRY_BYTES_MAX:
            raise PoisonMessage(
                f"an output of {largest} bytes of entry {_place(result.source, result.entry)} exceeds the size"
                f" limit of {ENTRY_BYTES_MAX} bytes: return less data, or store it elsewhere and return a reference"
            )
        if result.changes is not None or result.published or not is_one_entry(outputs, headers):
            self.needs_commit = True
        if self.needs_commit and not self._can_commit:
            raise PoisonMessage(
                f"entry {_place(result.source, result.entry)} has outputs for several entries or topics, which require"
                " a state store with EFFECTIVELY_ONCE: set stateStorageServiceUrl, or return less and publish to the"
                " output topic only"
            )
        result.is_direct = not self.needs_commit
        self._entries.make(result, outputs, headers)


def _place(source: Source, entry: ReceivedEntry) -> str:
    return f"{position_in(entry)} of {source.topic}"


def _behind(source: Source, entry: ReceivedEntry) -> str:
    """Return the `reset-cursor` flags that make a function continue after an entry."""
    topic, at = parse_topic_name(source.topic), entry.message_id
    partition = f":{topic.partition}" if topic.partition >= 0 else ""
    return f"--topic {topic.base.text} --message-id {at.ledger_id}:{at.entry_id + 1}{partition}"
