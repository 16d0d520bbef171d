"""Callers for each kind of function that create a span per call, which is current while user code runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...api.context import Context
from ...api.serde import SerDe
from ..async_calls import AsyncCall, OneCall
from ..batch_call import BatchCall, Failure, Results
from ..batch_function import BatchFunctionCall
from ..generator_call import GeneratorCall, RunningCall
from ..loading.kinds import Kind
from ..loading.loader import LoadedFunction
from ..unit import Unit
from .spans import CallSpan, Tracing


class _Following(BatchCall):
    """Base of callers that record the unit and first position of the current run."""

    _unit = Unit()
    _base = 0

    def follow(self, unit: Unit, position: int) -> None:
        """Record that the next messages are those of a unit from ``position`` on."""
        self._unit, self._base = unit, position


class TracedCall(_Following):
    """Caller of a plain function that creates a span per message."""

    is_watched = True

    def __init__(self, tracing: Tracing, function: Callable[..., Any], context: Context | None, output: SerDe) -> None:
        """Create a caller, with the arguments of `BatchCall`."""
        super().__init__(self._traced(function), context, output)
        self._tracing = tracing
        self._spans: dict[int, CallSpan] = {}

    def _traced(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            span = self._begin(self.place.position)
            token = span.enter()
            try:
                return function(*arguments)
            finally:
                span.leave(token)

        return call

    def _begin(self, position: int) -> CallSpan:
        span = self._spans[position] = self._tracing.begin(self._unit, self._base + position)
        return span

    def run(self, messages: Sequence[bytes], source: SerDe) -> Results:
        """Process messages in order, and end the spans once all failures are known."""
        spans = self._spans = {}
        try:
            results = super().run(messages, source)
            for failure in results.failures:
                span = spans.get(failure.position) or self._begin(failure.position)  # the message could not be decoded
                span.failed((failure.error,))
            return results
        except BaseException as error:
            if spans:
                spans[max(spans)].failed((error,))  # the call that ended the instance
            raise
        finally:
            for span in spans.values():
                span.end()


class TracedBatchFunctionCall(_Following, BatchFunctionCall):
    """Caller of a batch function that creates a span per list."""

    def __init__(
        self, tracing: Tracing, function: Callable[..., Any], context: Context | None, output: SerDe, messages_max: int
    ) -> None:
        """Create a caller, with the arguments of `BatchFunctionCall`."""
        super().__init__(function, context, output, messages_max)
        self._tracing = tracing

    def _call_part(self, part: list[Any], order: Sequence[int], begin: int, failures: list[Failure]) -> list[Any]:
        span = self._tracing.begin_many(self._unit, [self._base + position for position in order])
        before = len(failures)
        token = span.enter()
        try:
            return super()._call_part(part, order, begin, failures)
        except BaseException as error:
            span.failed((error,))
            raise
        finally:
            span.leave(token)
            span.failed([failure.error for failure in failures[before:]])
            span.end()


class TracedRunningCall(RunningCall):
    """A call of a generator function whose span lasts until the last output is taken."""

    __slots__ = ("_span",)

    def __init__(self, running: RunningCall, span: CallSpan) -> None:
        """Take over a started call."""
        self._call, self._iterator = running._call, running._iterator
        self.error, self.is_over = running.error, running.is_over
        self._span: CallSpan | None = span
        self._end_if_over()

    def take(self, count: int) -> list[bytes]:
        """Return up to ``count`` outputs, with the span as the current one."""
        span = self._span
        if span is None:
            return super().take(count)
        token = span.enter()
        try:
            return super().take(count)
        except BaseException as error:
            span.failed((error,))
            self.is_over = True
            raise
        finally:
            span.leave(token)
            self._end_if_over()

    def close(self) -> None:
        """Close the generator, and end the span."""
        super().close()
        self._end_if_over()

    def _end_if_over(self) -> None:
        span = self._span
        if span is None or not self.is_over:
            return
        self._span = None
        if self.error is not None:
            span.failed((self.error,))
        span.end()


class TracedGeneratorCall(_Following, GeneratorCall):
    """Caller of a generator function that creates a span per message."""

    def __init__(self, tracing: Tracing, function: Callable[..., Any], context: Context | None, output: SerDe) -> None:
        """Create a caller, with the arguments of `GeneratorCall`."""
        super().__init__(function, context, output)
        self._tracing = tracing

    def begin(self, value: Any) -> RunningCall:
        """Call the function on a value, and start its span."""
        span = self._tracing.begin(self._unit, self._base + self.place.position)
        token = span.enter()
        try:
            running = super().begin(value)
        except BaseException as error:
            span.failed((error,))
            span.end()
            raise
        finally:
            span.leave(token)
        return TracedRunningCall(running, span)


class TracedAsyncCall(AsyncCall):
    """Caller of an async function or async generator function that creates a span per message."""

    def __init__(self, tracing: Tracing, function: Callable[..., Any], context: Context | None, output: SerDe) -> None:
        """Create a caller, with the arguments of `AsyncCall`."""
        super().__init__(function, context, output)
        self._tracing = tracing

    async def process(self, call: OneCall, made: Callable[[OneCall], Any]) -> None:
        """Process a call; its span is current in the call's task and in tasks that it starts."""
        span = self._tracing.begin(call.unit, call.position)
        token = span.enter()
        try:
            await super().process(call, made)
        except BaseException as error:
            span.failed((error,))
            raise
        finally:
            span.leave(token)
            if call.failure is not None:
                span.failed((call.failure.error,))
            span.end()


class InstanceTracing(Tracing):
    """An `opening.OpenTracing` that creates spans and callers."""

    def call_of(self, loaded: LoadedFunction, context: Context | None, output: SerDe) -> BatchCall:
        """Return a caller for a function that creates spans."""
        if loaded.kind is Kind.BATCH:
            return TracedBatchFunctionCall(self, loaded.call, context, output, loaded.batch_size)
        if loaded.kind.is_async:
            return TracedAsyncCall(self, loaded.call, context, output)
        kind = TracedGeneratorCall if loaded.kind is Kind.GENERATOR else TracedCall
        return kind(self, loaded.call, context, output)
