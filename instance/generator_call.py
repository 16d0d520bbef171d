"""Call generator functions, which have any number of outputs per message, taken in chunks.

Design: `islice` inside `list.extend` takes the outputs, so no statement of ours runs per output, and outputs before an
exception are retained, as in `BatchCall`. Callers that send outputs while the function runs use `begin`. Callers that
commit all outputs together use `run`, which collects the outputs of all messages and therefore limits them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from ..api.serde import SerDe
from .batch_call import NOT_OF_ONE_MESSAGE, BatchCall, Blame, Failure, Results, decode

CHUNK = 100  # outputs taken per step when all are collected
GATHERED_MAX = 100_000
GATHERED_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of one run's collected outputs, which are held in memory and committed together."""


def too_many_outputs() -> ValueError:
    """Return the error for a message with too many outputs to collect."""
    return ValueError(
        f"the outputs of one batch of messages exceed the limit of {GATHERED_MAX} messages or {GATHERED_BYTES_MAX}"
        " bytes that are stored together: send the input in smaller batches, yield less, or use ATLEAST_ONCE on"
        " processes or threads, which sends outputs while the function runs"
    )


class RunningCall:
    """One call of a generator function.

    Attributes:
        error: exception raised by the function or by encoding an output, or None.
        is_over: whether there are no more outputs.
    """

    __slots__ = ("_call", "_iterator", "error", "is_over")

    def __init__(self, call: BatchCall, returned: Any) -> None:
        """Wrap the function's return value: an iterator over the outputs, or a single output."""
        self._call = call
        self._iterator: Iterator[Any] = returned if isinstance(returned, Iterator) else iter((returned,))
        self.error: BaseException | None = None
        self.is_over = False

    def take(self, count: int) -> list[bytes]:
        """Return up to ``count`` encoded outputs, including outputs before an exception."""
        yielded: list[Any] = []
        try:
            yielded.extend(islice(self._iterator, count))
            self.is_over = len(yielded) < count
        except NOT_OF_ONE_MESSAGE:
            raise
        except BaseException as error:  # noqa: BLE001  see NOT_OF_ONE_MESSAGE
            self.fail(error)
        failures: list[Failure] = []
        encoded = self._call.encode(yielded, failures)
        if failures:
            first = min(failures, key=lambda failure: failure.position)
            del encoded[first.position :]
            self.fail(first.error)
            self.close()
        return [output for output in encoded if output is not None]

    def fail(self, error: BaseException) -> None:
        """Record a failure, after which there are no more outputs."""
        self.error = error
        self.is_over = True

    def close(self) -> None:
        """Close the generator; exceptions are suppressed."""
        self.is_over = True
        with suppress(BaseException):
            getattr(self._iterator, "close", _nothing)()


def _nothing() -> None:
    """Do nothing, for iterators without a close method."""


class GeneratorCall(BatchCall):
    """Caller of a generator function."""

    def begin(self, value: Any) -> RunningCall:
        """Call the function on a value; a function that only returns an iterator runs here, and may fail."""
        try:
            returned = self._function(value) if self._context is None else self._function(value, self._context)
        except NOT_OF_ONE_MESSAGE:
            raise
        except BaseException as error:  # noqa: BLE001  see NOT_OF_ONE_MESSAGE
            failed = RunningCall(self, ())
            failed.fail(error)
            return failed
        return RunningCall(self, returned)

    def run(self, messages: Sequence[bytes], source: SerDe) -> Results:
        """Process messages in order, and collect all their outputs, with `Results.counts`.

        A message fails if the run's outputs would exceed `GATHERED_MAX` or `GATHERED_BYTES_MAX`.
        """
        failures: list[Failure] = []
        values = decode(messages, source, failures)
        undecoded = {failure.position for failure in failures}
        outputs: list[bytes | None] = []
        counts: list[int] = []
        size = 0
        for position, value in enumerate(values):
            made: list[bytes] = []
            if position not in undecoded:
                self.place.enter(iter(()), range(position, position + 1))
                try:
                    error = self._gather(value, made, GATHERED_MAX - len(outputs), GATHERED_BYTES_MAX - size)
                finally:
                    self.place.leave()
                if error is not None:
                    failures.append(Failure(position, error, Blame.USER))
                    made = []
            counts.append(len(made))
            outputs += made
            size += sum(map(len, made))
        return Results(outputs, failures, counts)

    def _gather(self, value: Any, made: list[bytes], count_max: int, bytes_max: int) -> BaseException | None:
        """Add all outputs of a message to ``made``; return the error, or None."""
        size = 0
        running = self.begin(value)
        while not running.is_over:
            taken = running.take(CHUNK)
            made += taken
            size += sum(map(len, taken))
            if len(made) > count_max or size > bytes_max:
                running.fail(too_many_outputs())
                running.close()
        return running.error
