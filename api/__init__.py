"""What the author of a function sees; `config*` is read by the worker and the command line only."""

from .context import Context
from .function import Function
from .message_id import FunctionMessageId
from .serde import IdentitySerDe, PickleSerDe, SerDe

__all__ = ["Context", "Function", "FunctionMessageId", "IdentitySerDe", "PickleSerDe", "SerDe"]
