"""Handle failed messages of functions that have a retry limit.

A message with retries left is redelivered after a pause. Otherwise it is sent to the dead-letter topic, or dropped
without one. It is acknowledged when the dead letter is durable, and its entry is held until then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial

from ...client.consumers.received import ReceivedEntry
from ...errors import MagnetarError
from ...wire import ack_set
from ...wire.function_letters import EXCEPTION, FUNCTION, FUNCTION_VERSION, LETTERS_SUFFIX, TRACEBACK, TRIES
from ...wire.functions_pb2 import FunctionDetails
from ..core import InstanceCore
from ..deaths.careful import CarefulCalls
from ..endpoint_settings import acks_first, subscription_of
from ..gate import runs_within
from ..output_headers import message_id_of
from ..ports import Input
from ..unit import HeldEntries, Reason, Unit, position_of
from .dead_letters import DeadLetters, Letter, shown_reason
from .letter_box import LetterBox
from .retries import RetryRules, Tries, TriesInPlace, rules_of

REPORT_CHARACTERS_MAX = 16 * 1024
"""Limit of one log text about letters."""

_Failures = dict[int, tuple[Reason, bytes]]  # reason and payload by index in the entry


class FailedMessages:
    """Handles the failed messages of one instance, on the event loop except for `trouble`.

    Attributes:
        in_place: retries messages before later ones are processed; None if they are redelivered instead.
        careful: records calls after one has ended the process; None if nothing is redelivered.
    """

    def __init__(self, core: InstanceCore, rules: RetryRules, held: HeldEntries) -> None:
        """Create the handler of an instance.

        Args:
            core: the instance's core.
            rules: retry rules.
            held: entries in progress, including entries with letters in flight.
        """
        self._core = core
        self._rules = rules
        self._held = held
        self._tries = Tries()
        self._is_acknowledged = acks_first(core.spec)
        self.careful = None if self._is_acknowledged else CarefulCalls(core, rules.retries)
        self.in_place = TriesInPlace(rules, self.careful) if rules.retries and self.careful is not None else None
        self._box: LetterBox | None = None
        topic = core.spec.details.retryDetails.deadLetterTopic
        if topic:
            self._box = LetterBox(core, topic, core.spec.function_name + LETTERS_SUFFIX)
        self._of_function = {FUNCTION: core.spec.function_name, FUNCTION_VERSION: str(core.spec.metadata.version)}
        self._letters = DeadLetters(topic, core.spec.details.name, subscription_of(core.spec))

    @classmethod
    def of(cls, core: InstanceCore, held: HeldEntries) -> FailedMessages | None:
        """Return a handler, or None for a function without a retry limit or a sink, which counts its own retries."""
        details = core.spec.details
        rules = rules_of(details)
        return cls(core, rules, held) if rules is not None and details.componentType != FunctionDetails.SINK else None

    def open(self) -> None:
        """Load how often each message has ended the process; call after the function is loaded."""
        if self.careful is not None:
            for (topic, ledger, entry, index), count in self.careful.tried().items():
                self._tries.expect((topic, ledger, entry), index, count)

    def take(self, opened: Input, unit: Unit) -> None:
        """Handle the failures of a settled unit, and release its entries."""
        reasons: dict[int, _Failures] = {}
        for position, reason in sorted(unit.reasons.items()):
            entry, index = unit.locate(position)
            reasons.setdefault(id(entry), {})[index] = (reason, unit.messages[position])
        asked_again = {id(entry) for entry in unit.failed_entries}  # excludes entries voided by a seek
        for entry, failed in unit.failed_parts():
            if failed and id(entry) in asked_again:
                self._take_entry(opened, entry, failed, reasons.get(id(entry), {}))
            else:
                if self._tries:
                    self._tries.forget(position_of(entry))
                self._held.remove(entry)

    def _take_entry(self, opened: Input, entry: ReceivedEntry, failed: set[int], failures: _Failures) -> None:
        """Handle an entry with failed messages; messages without a reason are only redelivered."""
        if self._comes_once(entry):
            counts = dict.fromkeys(failures, 1 if self.in_place is None else self._rules.retries + 1)
            given_up = counts
        else:
            counts = self._tries.failed(position_of(entry), entry.redelivery_count, failures)
            given_up = {index: count for index, count in counts.items() if count > self._rules.retries}
        left = failed - given_up.keys()
        pause_s: float | None = None
        if left:
            most = max((counts[index] for index in left if index in counts), default=entry.redelivery_count + 1)
            pause_s = self._rules.pause_s(most)
        finish = partial(self._finish, opened, entry, sorted(given_up), pause_s)
        if not given_up or self._box is None:
            for index in given_up:
                self._report_dropped(entry, index, given_up[index], failures[index][0])
            finish()
            return
        self._held.shrink(entry, len(given_up), sum(len(failures[index][1]) for index in given_up))
        self._report_letters(entry, given_up, failures)
        self._box.put([self._letter(entry, index, given_up[index], *failures[index]) for index in given_up], finish)

    def _comes_once(self, entry: ReceivedEntry) -> bool:
        """Return whether a failure of the entry is reported only after the last attempt."""
        if self._is_acknowledged or entry.topic.startswith("non-persistent:"):
            return True
        return self.in_place is not None and self.in_place.concerns_entry(entry)

    def _letter(self, entry: ReceivedEntry, index: int, count: int, reason: Reason, payload: bytes) -> Letter:
        hiding = self._core.hiding
        why = {EXCEPTION: shown_reason(reason.exception, hiding), TRACEBACK: hiding(reason.traceback)}
        return self._letters.letter(entry, index, payload, why, {TRIES: str(count), **self._of_function})

    def _report_dropped(self, entry: ReceivedEntry, index: int, count: int, reason: Reason) -> None:
        """Log a dropped message, and count it as a separate failure."""
        self._core.system_failed(
            f"dropped {_named(entry, index)} after {_tries(count)}: no deadLetterTopic is set: {reason.exception}"
        )

    def _report_letters(self, entry: ReceivedEntry, counts: Mapping[int, int], failures: _Failures) -> None:
        """Log which messages become letters, in few log calls: an entry may have a thousand of them."""
        topic = self._core.spec.details.retryDetails.deadLetterTopic
        lines = [
            f"sending {_named(entry, index)} to {topic} after {_tries(count)}: {failures[index][0].exception}"
            for index, count in counts.items()
        ]
        for run in runs_within(map(len, lines), len(lines), REPORT_CHARACTERS_MAX):
            self._core.log.write("WARNING", "\n".join(lines[run]))

    def _finish(self, opened: Input, entry: ReceivedEntry, given_up: list[int], pause_s: float | None) -> None:
        """Acknowledge messages without retries left, release the entry, and request redelivery of the rest."""
        with contextlib.suppress(MagnetarError):  # if the input is closed, everything is redelivered
            if given_up and not self._is_acknowledged:
                opened.ack_batch_indexes(
                    entry, ack_set.from_wanted(set(range(entry.num_messages)).difference(given_up))
                )
        self._held.remove(entry)
        if pause_s is None or self._is_acknowledged:
            self._tries.forget(position_of(entry))
        else:
            # The timer holds the entry without its messages, because many entries may wait for a long time.
            self._core.loop.call_later(pause_s, self._ask_again, opened, entry.with_body(b"", 0))

    def _ask_again(self, opened: Input, entry: ReceivedEntry) -> None:
        with contextlib.suppress(MagnetarError):
            opened.negative_ack(entry)

    def trouble(self) -> str:
        """Return why letters cannot be stored, or an empty string (from any thread)."""
        return "" if self._box is None else self._box.trouble()

    def request_stop(self) -> None:
        """Stop all waits (from any thread)."""
        if self.in_place is not None:
            self.in_place.stop()

    async def settle(self) -> None:
        """Wait until letters in flight are stored, or return if storing fails. Cancellation: safe."""
        if self._box is not None:
            await self._box.emptied()

    async def close(self) -> None:
        """Drop unstored letters."""
        if self.careful is not None:
            await asyncio.to_thread(self.careful.close, is_abandoned=self._core.is_abandoned)
        if self._box is not None:
            await self._box.close()


def _named(entry: ReceivedEntry, index: int) -> str:
    return f"message {message_id_of(entry, index)} of {entry.topic}"


def _tries(count: int) -> str:
    return f"{count} {'attempt' if count == 1 else 'attempts'}"
