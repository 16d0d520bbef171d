"""Counters of one instance, as shown by `functions status` and `functions stats`.

The function's thread counts messages once per run. Exceptions may also come from the event loop, so counting them takes
a lock. Readers may see a run's counters half updated, but never a wrong total afterwards.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..client.checks import check_finite, check_text
from ..errors import InvalidConfig, MagnetarError
from ..wire.functions_pb2 import FunctionStatus, MetricsData
from .logs.tracebacks import traceback_of
from .stopping import PoisonMessage
from .user_metrics import UserMetrics

LATEST_MAX = 10  # exceptions retained per kind, as in Pulsar
TRACEBACK_CHARACTERS_MAX = 8 * 1024
MINUTE_S = 60.0
USER_METRIC_PREFIX = "user_metric_"
METRICS_MAX = 1000
"""Maximum number of user metrics per instance; each is a line in every response and scrape."""
METRIC_NAME_BYTES_MAX = 256


def now_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def occurrence(text: str, time_ms: int) -> FunctionStatus.ExceptionInformation:
    """Return an exception and its time as an item of a status."""
    return FunctionStatus.ExceptionInformation(exceptionString=text, msSinceEpoch=time_ms)


@dataclass(slots=True)
class Counters:
    """A set of counters."""

    received: int = 0
    processed: int = 0
    user_exceptions: int = 0
    system_exceptions: int = 0
    calls: int = 0
    busy_s: float = 0.0

    @property
    def latency_ms(self) -> float:
        """Mean processing time of a message in the function."""
        return self.busy_s / self.calls * 1000 if self.calls else 0.0

    def since(self, before: Counters) -> Counters:
        """Return the difference from ``before``."""
        return Counters(*(getattr(self, name) - getattr(before, name) for name in self.__slots__))

    def copy(self) -> Counters:
        """Return a copy of the counters."""
        return self.since(Counters())


def format_error(error: BaseException) -> str:
    """Format a traceback, without Magnetar's own frames, and with the middle omitted if it is too long.

    The result can always be encoded: characters without a UTF-8 form are escaped.
    """
    try:
        text = traceback_of(error)
    except Exception as failure:  # noqa: BLE001  formatting a user exception may raise, too
        text = f"{type(error).__name__}; formatting it raised {type(failure).__name__}"
    text = encodable(text)
    if len(text) <= TRACEBACK_CHARACTERS_MAX:
        return text
    half = TRACEBACK_CHARACTERS_MAX // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters omitted …\n{text[-half:]}"


def reason_of(error: BaseException) -> str:
    """Return why an instance ends with ``error``, with a traceback if the function's code raised it.

    For errors of the function, call it on the function's thread, because formatting may run its code.
    """
    traceback_text = format_error(error)
    try:
        if isinstance(error, PoisonMessage):
            return encodable(str(error))
        if isinstance(error, SystemExit):
            return encodable(f"the code called sys.exit({error.code!r:.200})\n{traceback_text}")
        if isinstance(error, MagnetarError):
            return encodable(f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001  raised by repr or str of user code; the traceback is sufficient
        return traceback_text
    return traceback_text


def encodable(text: str) -> str:
    """Escape characters of a string that UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class InstanceStats:
    """Counters, latest exceptions and user metrics.

    Attributes:
        metrics_of_code: counters, gauges and histograms created by user code through its context.
        trouble: returns what blocks a running instance, on one line, or an empty string.
    """

    def __init__(self, now_s: float, hiding: Callable[[str], str] = str) -> None:
        """Create counters that start at 0.

        Args:
            now_s: monotonic time, by the same clock as for `roll`.
            hiding: removes secrets from a string.
        """
        self._hiding = hiding
        self.total = Counters()
        self.metrics_of_code = UserMetrics(self._refused_metric)
        self.last_invocation_ms = 0
        self.trouble: Callable[[], str] = str
        self._minute_start = Counters()
        self._minute_start_s = now_s
        self._user: dict[str, tuple[float, int]] = {}
        self._has_refused_metrics = False
        self._latest_user: deque[tuple[str, int]] = deque(maxlen=LATEST_MAX)
        self._latest_system: deque[tuple[str, int]] = deque(maxlen=LATEST_MAX)
        self._lock = threading.Lock()

    def count_run(self, messages: int, failed: int, busy_s: float, now_ms: int) -> None:
        """Count messages passed to the function, of which some failed."""
        total = self.total
        total.processed += messages - failed
        total.calls += messages
        total.busy_s += busy_s
        self.last_invocation_ms = now_ms

    def user_exception(self, text: str, now_ms: int) -> None:
        """Count and store an exception of the function."""
        with self._lock:
            self.total.user_exceptions += 1
            self._latest_user.append((text, now_ms))

    def system_exception(self, text: str, now_ms: int, count: int = 1) -> None:
        """Count and store a failure outside the function, such as in decoding or sending."""
        with self._lock:
            self.total.system_exceptions += count
            self._latest_system.append((text, now_ms))

    def _refused_metric(self, text: str) -> None:
        self.user_exception(text, now_ms())

    def record(self, metric: str, value: float) -> str:
        """Add a value to a user metric.

        Returns: a log text for the first metric beyond `METRICS_MAX`, which the status also shows; otherwise empty.

        Raises:
            InvalidConfig: the name or the value is not valid.
        """
        if metric not in self._user:
            check_text("metric name", metric, METRIC_NAME_BYTES_MAX)
            if not metric or not metric.isprintable():
                raise InvalidConfig(f"invalid metric name {metric!a}: expected a non-empty printable string")
        number = float(value)
        check_finite(f"metric {metric!a:.40}", number)
        return self.record_many(metric, number, 1)

    def record_many(self, metric: str, total: float, count: int) -> str:
        """Add the sum of several values to a user metric; returns the same as `record`."""
        with self._lock:
            known = self._user.get(metric)
            if known is None and len(self._user) >= METRICS_MAX:
                if self._has_refused_metrics:
                    return ""
                self._has_refused_metrics = True
                text = (
                    f"record_metric({metric!a:.40}): the function has reached the limit of {METRICS_MAX} metrics;"
                    " further names are not recorded: use fewer names, and publish values such as user ids to a topic"
                )
                self.total.user_exceptions += 1
                self._latest_user.append((text, now_ms()))
                return text
            sum_before, count_before = known or (0.0, 0)
            # The sum of finite numbers may be infinite, which JSON and consumers of Prometheus metrics do not accept.
            largest = sys.float_info.max
            self._user[metric] = (max(-largest, min(sum_before + total, largest)), count_before + count)
        return ""

    def take_recorded(self) -> dict[str, tuple[float, int]]:
        """Return sum and count of each user metric, and reset them."""
        with self._lock:
            recorded, self._user = self._user, {}
            self._has_refused_metrics = False
        return recorded

    def user_metrics(self) -> dict[str, float]:
        """Return sum and count of each user metric, with Pulsar's names."""
        with self._lock:
            recorded = list(self._user.items())
        values: dict[str, float] = {}
        for name, (total, count) in recorded:
            values[f"{USER_METRIC_PREFIX}{name}_sum"] = total
            values[f"{USER_METRIC_PREFIX}{name}_count"] = float(count)
        return values

    def roll(self, now_s: float) -> None:
        """Start a new minute if the current one is over."""
        if now_s - self._minute_start_s >= MINUTE_S:
            self._minute_start_s += math.floor((now_s - self._minute_start_s) / MINUTE_S) * MINUTE_S
            self._minute_start = self.total.copy()

    def reset(self) -> None:
        """Reset the counters of the minute and the user metrics."""
        with self._lock:
            self._minute_start = self.total.copy()
            self._user.clear()
            self._has_refused_metrics = False

    def status(self) -> FunctionStatus:
        """Return the counters and latest exceptions as Pulsar's status record."""
        with self._lock:
            total = self.total.copy()
            latest_user, latest_system = list(self._latest_user), list(self._latest_system)
        return FunctionStatus(
            failureException=self._hiding(encodable(self.trouble())),
            numReceived=total.received,
            numSuccessfullyProcessed=total.processed,
            numUserExceptions=total.user_exceptions,
            latestUserExceptions=self._shown(latest_user),
            numSystemExceptions=total.system_exceptions,
            latestSystemExceptions=self._shown(latest_system),
            averageLatency=total.latency_ms,
            lastInvocationTime=self.last_invocation_ms,
        )

    def _shown(self, latest: list[tuple[str, int]]) -> list[FunctionStatus.ExceptionInformation]:
        """Return exceptions as items of a status, without secrets."""
        return [occurrence(self._hiding(encodable(text)), time_ms) for text, time_ms in latest]

    def metrics(self) -> MetricsData:
        """Return the counters as Pulsar's metrics record."""
        with self._lock:
            total = self.total.copy()
        minute = total.since(self._minute_start)
        return MetricsData(
            receivedTotal=total.received,
            processedSuccessfullyTotal=total.processed,
            systemExceptionsTotal=total.system_exceptions,
            userExceptionsTotal=total.user_exceptions,
            avgProcessLatency=total.latency_ms,
            lastInvocation=self.last_invocation_ms,
            userMetrics=self.user_metrics(),
            receivedTotal_1min=minute.received,
            processedSuccessfullyTotal_1min=minute.processed,
            systemExceptionsTotal_1min=minute.system_exceptions,
            userExceptionsTotal_1min=minute.user_exceptions,
            avgProcessLatency_1min=minute.latency_ms,
            metrics=self.metrics_of_code.records(),
        )
