"""The queue of spans of a process, and the thread that sends them to the endpoint.

Design: a call leaves its span in a bounded queue and goes on; what does not fit is counted. A thread sends what has
gathered, with OpenTelemetry's own exporter, which retries for as long as its timeout says. What is lost is logged at
once, and then once a minute. Rejected: the SDK's batch processor, which drops without a count, and whose flush may
wait for every retry of an endpoint that is not there.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from opentelemetry import context as otel_context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from .settings import batch_setting

QUEUE_MAX = 8192
BATCH_MAX = 512
DELAY_MS = 5000
SAID_EVERY_S = 60.0
CLOSE_S = 2.0
_GIVE_UP_S = 1.0
_EXPORTER_LOGGER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"

log = logging.getLogger(__name__)


class SpanQueue(SpanProcessor):
    """Takes spans that have ended, from any thread, and has them sent by a thread of its own.

    Attributes:
        lost: spans that did not reach the endpoint.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        *,
        spans_max: int = QUEUE_MAX,
        batch_max: int = BATCH_MAX,
        delay_s: float = DELAY_MS / 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin.

        Args:
            exporter: sends spans.
            spans_max: that wait at most.
            batch_max: that are sent at once.
            delay_s: how long spans wait for others.
            clock: seconds.
        """
        self.lost = 0
        self._exporter = exporter
        self._spans_max = spans_max
        self._batch_max = min(batch_max, spans_max)
        self._delay_s = delay_s
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[ReadableSpan] = deque()
        self._taken = 0  # into the queue, of all time
        self._done = 0  # of these, sent or lost
        self._is_hurried = False
        self._is_closing = False
        self._untold = 0
        self._reason = ""
        self._said_s = float("-inf")
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing: only spans that have ended are sent."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, or count it as lost if the queue is full; never waits for the endpoint."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._changed:
            if self._is_closing or len(self._waiting) >= self._spans_max:
                self._lose(1, f"more than {self._spans_max} waited to be sent (OTEL_BSP_MAX_QUEUE_SIZE)")
                return
            self._waiting.append(span)
            self._taken += 1
            if len(self._waiting) >= self._batch_max:
                self._changed.notify_all()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what has been taken so far; return whether that was done in time."""
        with self._changed:
            goal = self._taken
            self._is_hurried = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._done >= goal, timeout_millis / 1000)

    def shutdown(self) -> None:
        """Send what is left for `CLOSE_S`, then give up and count the rest, and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(CLOSE_S)
        self._exporter.shutdown()  # ends its waiting for another try
        self._thread.join(_GIVE_UP_S)  # so that what it was sending is counted
        with self._changed:
            left = len(self._waiting)
            self._waiting.clear()
            self._done += left
            if left:
                self._lose(left, self._reason or f"the endpoint had not taken them after {CLOSE_S:g} s")
        self._say(is_last=True)

    # -- on the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        otel_context.attach(otel_context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        exporter_log = logging.getLogger(_EXPORTER_LOGGER)
        exporter_log.addFilter(self._note)
        try:
            while (batch := self._next()) is not None:
                if batch:
                    self._send(batch)
                self._say()
        finally:
            exporter_log.removeFilter(self._note)

    def _next(self) -> list[ReadableSpan] | None:
        """Return what is to be sent now, None at the end."""
        with self._changed:
            self._changed.wait_for(self._is_due, self._delay_s)
            count = min(len(self._waiting), self._batch_max)
            if not count:
                self._is_hurried = False
                return None if self._is_closing else []
            return [self._waiting.popleft() for _ in range(count)]

    def _is_due(self) -> bool:
        return self._is_hurried or self._is_closing or len(self._waiting) >= self._batch_max

    def _send(self, batch: list[ReadableSpan]) -> None:
        try:
            is_sent = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001  whatever it is, the spans behind these are sent all the same
            is_sent, self._reason = False, f"{type(error).__name__}: {error}"
        with self._changed:
            self._done += len(batch)
            if not is_sent:
                self._lose(len(batch), self._reason or "the endpoint did not take them")
            self._changed.notify_all()

    def _note(self, record: logging.LogRecord) -> bool:
        """Keep what the exporter logs on this thread as the reason: it would say it for each batch."""
        if record.thread != self._thread.ident:
            return True
        self._reason = record.getMessage()
        return False

    def _lose(self, count: int, reason: str) -> None:
        self.lost += count
        self._untold += count
        self._reason = reason

    def _say(self, *, is_last: bool = False) -> None:
        """Log what was lost, once in a while."""
        with self._changed:
            now_s = self._clock()
            if not self._untold or (now_s - self._said_s < SAID_EVERY_S and not is_last):
                return
            count, self._untold, self._said_s = self._untold, 0, now_s
            reason = self._reason
        log.warning("%d spans were lost: %s", count, reason)


_lock = threading.Lock()
_shared: SpanQueue | None = None
_users = 0


def acquire() -> SpanQueue:
    """Return the queue of this process, created if needed; call `release` afterwards.

    Raises:
        Exception: a setting in the environment is invalid.
    """
    global _shared, _users  # one for each process
    with _lock:
        if _shared is None:
            _shared = SpanQueue(
                OTLPSpanExporter(),
                spans_max=batch_setting(os.environ, "OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_MAX),
                batch_max=batch_setting(os.environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH_MAX),
                delay_s=batch_setting(os.environ, "OTEL_BSP_SCHEDULE_DELAY", DELAY_MS) / 1000,
            )
        _users += 1
        return _shared


def release() -> None:
    """Release the queue; the last user shuts it down.

    Other users need not wait: the queue stays alive and sends soon.
    """
    global _shared, _users
    with _lock:
        _users -= 1
        if _users:
            return
        queue, _shared = _shared, None
    assert queue is not None
    queue.shutdown()
