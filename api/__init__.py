"""What authors of functions write against; part of every process that runs one, so it imports next to nothing."""

from ..errors import StateRefused, StateStoreFailed, StateUnavailable
from .context import Context
from .function import Function
from .message_id import FunctionMessageId
from .serde import IdentitySerDe, PickleSerDe, SerDe

__all__ = [
    "Context",
    "Function",
    "FunctionMessageId",
    "IdentitySerDe",
    "PickleSerDe",
    "SerDe",
    "StateRefused",
    "StateStoreFailed",
    "StateUnavailable",
]
