"""Start tracing an instance if the worker's environment enables it; only then import OpenTelemetry."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from ...api.context import Context
from ...api.serde import SerDe
from ..batch_call import BatchCall
from ..loading.loader import LoadedFunction
from ..publish_request import MessageOptions
from ..spec import InstanceSpec
from .settings import wish_of


class OpenTracing(Protocol):
    """Interface for tracing the calls of an instance."""

    def call_of(self, loaded: LoadedFunction, context: Context | None, output: SerDe) -> BatchCall:
        """Return a caller for a function that creates spans."""

    def carry(self, options: MessageOptions) -> None:
        """Add the context of the current span, if any, to the properties of a message."""

    def close(self) -> None:
        """Send remaining spans; blocks for a limited time, so do not call it on an event loop."""


def open_tracing(
    spec: InstanceSpec, hide: Callable[[str], str], report: Callable[[str, str], None], *, is_alone: bool
) -> OpenTracing | None:
    """Start tracing an instance; return None if tracing is disabled, or fails to start, which is logged.

    Args:
        spec: the instance's spec.
        hide: removes secrets from a string.
        report: writes a log line, given level and text.
        is_alone: whether the instance has its own process; passed to `Tracing`.
    """
    wish = wish_of(os.environ)
    if wish.refusal:
        report("WARNING", wish.refusal)
    if not wish.variable:
        return None
    try:
        from .calls import InstanceTracing

        tracing = InstanceTracing(spec, hide, is_alone=is_alone)
    except ImportError as error:
        report(
            "WARNING",
            f"{wish.variable} is set, but calls are not traced: {error}; install magnetar[otel] on the worker",
        )
    except Exception as error:  # noqa: BLE001  on any tracing error, the function still runs
        report("WARNING", f"{wish.variable} is set, but calls are not traced: {type(error).__name__}: {error}")
    else:
        report("INFO", f"tracing calls: sending spans to the endpoint in {wish.variable}")
        return tracing
    return None


def tell_untraced(report: Callable[[str, str], None]) -> None:
    """Log that sources and sinks are not traced, if the environment enables tracing."""
    wish = wish_of(os.environ)
    if wish.variable:
        report("INFO", f"{wish.variable} is set, but only functions are traced, not sources and sinks")
