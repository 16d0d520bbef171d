"""What authors of functions and connectors write against.

A part of every process that runs a function, so it imports next to nothing: the names of connectors at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy_names
from ..errors import StateRefused, StateStoreFailed, StateUnavailable
from .batches import batch_function
from .context import Context
from .function import Function
from .message_id import FunctionMessageId
from .serde import IdentitySerDe, JsonSerDe, PickleSerDe, SerDe

if TYPE_CHECKING:
    from .connector import (
        Batching,
        BatchSource,
        DeadLetter,
        EndOfInput,
        Record,
        RecordRefused,
        Retry,
        Sink,
        SinkContext,
        Source,
        SourceContext,
        Trigger,
    )
    from .connector_config import option

__all__ = [
    "BatchSource",
    "Batching",
    "Context",
    "DeadLetter",
    "EndOfInput",
    "Function",
    "FunctionMessageId",
    "IdentitySerDe",
    "JsonSerDe",
    "PickleSerDe",
    "Record",
    "RecordRefused",
    "Retry",
    "SerDe",
    "Sink",
    "SinkContext",
    "Source",
    "SourceContext",
    "StateRefused",
    "StateStoreFailed",
    "StateUnavailable",
    "Trigger",
    "batch_function",
    "option",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of the package
    __getattr__ = lazy_names(
        __name__,
        {
            ".connector": [
                "BatchSource", "Batching", "DeadLetter", "EndOfInput", "Record", "RecordRefused", "Retry", "Sink",
                "SinkContext", "Source", "SourceContext", "Trigger",
            ],
            ".connector_config": ["option"],
        },
    )  # fmt: skip
