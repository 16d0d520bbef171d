"""Queue the spans of a process, and send them to the endpoint on a thread.

Design: a call puts its span into a bounded queue and continues; spans beyond the limit are counted as lost. A thread
sends the queued spans with OpenTelemetry's own exporter, which retries within its timeout. Lost spans are logged
immediately, and then once a minute. Rejected: the SDK's batch processor, which drops spans without counting them, and
whose flush may wait for every retry of an unavailable endpoint.
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
    """Accepts ended spans from any thread, and sends them on its own thread.

    Attributes:
        lost: number of spans that did not reach the endpoint.
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
        """Create the queue, and start its thread.

        Args:
            exporter: sends spans to the endpoint.
            spans_max: maximum number of queued spans.
            batch_max: maximum number of spans per request.
            delay_s: maximum time that spans wait for others.
            clock: returns seconds.
        """
        self.lost = 0
        self._exporter = exporter
        self._spans_max = spans_max
        self._batch_max = min(batch_max, spans_max)
        self._delay_s = delay_s
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[ReadableSpan] = deque()
        self._taken = 0  # number of spans queued since the start
        self._done = 0  # number of those sent or lost
        self._is_hurried = False
        self._is_closing = False
        self._untold = 0
        self._reason = ""
        self._said_s = float("-inf")
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing: only ended spans are sent."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, or count it as lost if the queue is full; never blocks."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._changed:
            if self._is_closing or len(self._waiting) >= self._spans_max:
                self._lose(1, f"more than {self._spans_max} spans were queued (OTEL_BSP_MAX_QUEUE_SIZE)")
                return
            self._waiting.append(span)
            self._taken += 1
            if len(self._waiting) >= self._batch_max:
                self._changed.notify_all()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send the spans queued so far; return whether they were sent in time."""
        with self._changed:
            goal = self._taken
            self._is_hurried = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._done >= goal, timeout_millis / 1000)

    def shutdown(self) -> None:
        """Send remaining spans for up to `CLOSE_S`, count the rest as lost, and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(CLOSE_S)
        self._exporter.shutdown()  # ends waits for retries
        self._thread.join(_GIVE_UP_S)  # so that spans in flight are counted
        with self._changed:
            left = len(self._waiting)
            self._waiting.clear()
            self._done += left
            if left:
                self._lose(left, self._reason or f"the endpoint did not accept them within {CLOSE_S:g} s")
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
        """Return the spans to send now, or None if the queue is closed."""
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
        except Exception as error:  # noqa: BLE001  on any error, later spans are still sent
            is_sent, self._reason = False, f"{type(error).__name__}: {error}"
        with self._changed:
            self._done += len(batch)
            if not is_sent:
                self._lose(len(batch), self._reason or "the endpoint did not accept them")
            self._changed.notify_all()

    def _note(self, record: logging.LogRecord) -> bool:
        """Use the exporter's log record as the reason of lost spans instead of logging it for each batch."""
        if record.thread != self._thread.ident:
            return True
        self._reason = record.getMessage()
        return False

    def _lose(self, count: int, reason: str) -> None:
        self.lost += count
        self._untold += count
        self._reason = reason

    def _say(self, *, is_last: bool = False) -> None:
        """Log lost spans, at most once per `SAID_EVERY_S` except at the end."""
        with self._changed:
            now_s = self._clock()
            if not self._untold or (now_s - self._said_s < SAID_EVERY_S and not is_last):
                return
            count, self._untold, self._said_s = self._untold, 0, now_s
            reason = self._reason
        log.warning("lost %d spans: %s", count, reason)


_lock = threading.Lock()
_shared: SpanQueue | None = None
_users = 0


def acquire() -> SpanQueue:
    """Return the queue of this process, creating it if needed; pair each call with `release`.

    Raises:
        Exception: a setting in the environment is invalid.
    """
    global _shared, _users  # one queue per process
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

    Others return immediately, because the queue continues to send.
    """
    global _shared, _users
    with _lock:
        _users -= 1
        if _users:
            return
        queue, _shared = _shared, None
    assert queue is not None
    queue.shutdown()
