"""Which table keeps the state of a function."""

from __future__ import annotations

from ...wire.functions_pb2 import FunctionMetaData


def table_of(metadata: FunctionMetaData) -> str:
    """Return the name of the function's table."""
    details = metadata.functionDetails
    return f"{details.tenant}/{details.namespace}/{details.name}"
