"""The public API for functions and connectors.

Every process that runs a function imports this package, so the connector names load on first use.
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

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
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
